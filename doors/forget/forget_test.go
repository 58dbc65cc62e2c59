package forget

import (
	"fmt"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
)

// All spellings of an address name the person, for a recipient those with a tag too. Other addresses do not.
func TestPerson(t *testing.T) {
	parse := func(text string) addr.Addr {
		a := testkit.Value(addr.Parse(text))(t)
		return a
	}
	p := person{parse("Anna.B@Büro.example"), "+"}
	for _, tt := range []struct {
		text            string
		is, gets, named bool
	}{
		{"anna.b@büro.example", true, true, true},
		{"ANNA.B@xn--bro-hoa.EXAMPLE", true, true, true},
		{`"anna.b"@büro.example`, true, true, true},
		{"anna.b+shop@büro.example", false, true, true},
		{"anna.b+@büro.example", false, true, true},
		{"anna@büro.example", false, false, false},
		{"xanna.b@other.example", false, false, false},
		{"anna.b@mail.büro.example", false, false, false},
		{"büro.example", false, false, false},
		{"", false, false, false},
		{"would lift refusals: c@d.example -> Anna.B@büro.example, and more", false, false, true},
		{"(see <anna.b+x@xn--bro-hoa.example>).", false, false, true},
		{"ask anna.b at büro.example", false, false, false},
	} {
		if is, gets, named := p.is(tt.text), p.gets(tt.text), p.named(tt.text); is != tt.is || gets != tt.gets || named != tt.named {
			t.Errorf("%q: is %v, gets %v, named %v; want %v, %v, %v", tt.text, is, gets, named, tt.is, tt.gets, tt.named)
		}
	}
}

// What is kept about others stays, however their address looks.
func TestOthersAreNotNamed(t *testing.T) {
	a := testkit.Value(addr.Parse("ann@here.example"))(t)
	who := person{address: a, separators: "+"}
	for text, want := range map[string]bool{
		"joann@here.example": false, "ann@here.example.org": false, "I am jo.ann@here.example": false, "recipient:joann@here.example": false,
		"x+ann@here.example": false, "ann@here.example-shop.org": false, "ann@here.exampleé": false, "joann@here.example, ann@here.example.net": false,
		"ann@here.example": true, "I am ANN@here.example.": true, "recipient:ann@here.example": true, "Ann <ann@here.example>": true,
		"from=ann@here.example": true, "'ann@here.example'": true, "joann@here.example and ann@here.example": true, "ann+shop@here.example": true, "mail ann@here.example!": true,
	} {
		testkit.Equal(t, fmt.Sprintf("%q names the person", text), who.named(text), want)
	}
}
