package forget

import (
	"testing"

	"blockd/addr"
)

// All spellings of an address name the person, for a recipient those with a tag too. Other addresses do not.
func TestPerson(t *testing.T) {
	parse := func(text string) addr.Addr {
		a, err := addr.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
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
