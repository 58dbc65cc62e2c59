package postfix

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
)

func TestExternal(t *testing.T) {
	for _, tt := range []struct{ name, internal, want string }{
		{"null sender", "", ""},
		{"ordinary", "a.b+c@there.example", "a.b+c@there.example"},
		{"without a domain", "postmaster", "postmaster"},
		{"blank", "bad q@x.example", `"bad q"@x.example`},
		{"blank, without a domain", "bad q", `"bad q"`},
		{"quote and backslash", `a"b\c@x.example`, `"a\"b\\c"@x.example`},
		{"an @ in it", "a@b@x.example", `"a@b"@x.example`},
		{"empty local-part", "@x.example", `""@x.example`},
		{"leading dot", ".a@x.example", ".a@x.example"},
		{"trailing dot", "a.@x.example", "a.@x.example"},
		{"two dots", "a..b@x.example", "a..b@x.example"},
		{"literal", "a@[198.51.100.1]", "a@[198.51.100.1]"},
		{"UTF-8", "jürgen@bücher.example", "jürgen@bücher.example"},
		{"percent for an @, which Postfix delivers as one", "a%x.example", "a@x.example"},
		{"two percents", "a%y.example%x.example", "a%y.example@x.example"},
		{"percent beside an @", "100%@x.example", "100%@x.example"},
		{"percent at an end", "a%", "a%"},
		{"bang path", "x.example!a", "a@x.example"},
		{"longer bang path", "x.example!y.example!a", "y.example!a@x.example"},
		{"bang and percent", "x.example!a%y.example", "a%y.example@x.example"},
		{"bang beside an @", "y.example!a@x.example", "y.example!a@x.example"},
		{"bang at an end", "!a", "!a"},
		{"brackets", "a<b>@x.example", `"a<b>"@x.example`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := external(tt.internal)
			testkit.MustEqual(t, fmt.Sprintf("external(%q)", tt.internal), got, tt.want)
			if a, err := addr.Parse(got); err != nil {
				t.Errorf("%s: %v", got, err)
			} else if tt.internal != "" && !strings.Contains(got, `""`) && a.Null() {
				t.Errorf("%s reads as the null sender", got)
			}
		})
	}
}

// What is quoted here is read by addr as the same octets: no sender escapes by them.
func FuzzExternal(f *testing.F) {
	for _, s := range []string{"a@b.example", "bad q@x.example", `a"b\c@x.example`, "a@b@x.example", "@x.example", "bücher@x.example", ".a@x.example"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, internal string) {
		a, err := addr.Parse(external(internal))
		if err != nil || a.Null() {
			return
		}
		at := strings.LastIndexByte(internal, '@')
		if at < 0 {
			return
		}
		b := testkit.Value(addr.Parse("x" + internal[at:]))(t)
		testkit.MustEqual(t, "the domain", a.Domain(), b.Domain())
		testkit.MustEqual(t, internal, testkit.Value(addr.Parse(a.String()))(t), a)
	})
}
