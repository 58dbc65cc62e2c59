package pattern

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		name  string
		kind  Kind
		text  string
		yes   []string
		no    []string
		needs string
	}{
		{"a glob matches the whole address", Glob, "promo*@bulk.test", []string{"promo@bulk.test", "promo1@bulk.test", "promo@x@bulk.test"}, []string{"xpromo@bulk.test", "promo@bulk.test.shop.test"}, "[[promo] [@bulk.test]]"},
		{"a star crosses dots and the at sign", Glob, "a*.test", []string{"a@b.test", "a@x.y.test"}, []string{"b@a.test"}, "[[.test]]"},
		{"a question mark is one character", Glob, "a?c@x.test", []string{"abc@x.test", "aéc@x.test"}, []string{"ac@x.test", "abbc@x.test"}, "[[c@x.test]]"},
		{"a glob's case does not matter", Glob, "PROMO*@Bulk.test", []string{"promo7@bulk.test"}, nil, "[[promo] [@bulk.test]]"},
		{"parts between stars come in order", Glob, "*one*two*", []string{"one@two.test", "xone.two@y.test"}, []string{"two@one.test"}, "[[one] [two]]"},
		{"a part is not used twice", Glob, "*aba*ab", []string{"aba@ab"}, []string{"x@abab"[2:], "abab"}, "[[aba]]"},
		{"a glob without a star", Glob, "a@b.test", []string{"a@b.test"}, []string{"aa@b.test", "a@b.test."}, "[[a@b.test]]"},
		{"question marks behind a star", Glob, "*@??.test", []string{"x@ab.test"}, []string{"x@abc.test", "x@a.test"}, "[[.test]]"},

		{"an expression is searched for anywhere", Regexp, `bulk`, []string{"x@bulk.test", "bulk@x.test"}, []string{"x@bul.k.test"}, "[[bulk]]"},
		{"anchors hold", Regexp, `^promo[0-9]+@`, []string{"promo7@x.test"}, []string{"xpromo7@x.test", "promo@x.test"}, "[[promo]]"},
		{"an expression's case does not matter", Regexp, `^PROMO@\w+\.Test$`, []string{"promo@bulk.test"}, nil, "[[promo@] [.test]]"},
		{"classes are folded too", Regexp, `^[A-C]x[^X]@`, []string{"bxa@x.test"}, []string{"bxx@x.test"}, "[]"},
		{"what stands around .* comes in order", Regexp, `^.*@.*\.bulk-[0-9]+\.example$`, []string{"x@mx.bulk-17.example"}, []string{"x@mx.bulk-.example", "x.bulk-17.example@y.test"}, "[[.bulk-] [.example]]"},
		{"alternatives are one need", Regexp, `^(newsletter|promo)[0-9]*@`, []string{"promo@x.test", "newsletter1@x.test"}, []string{"news@x.test"}, "[[newsletter promo]]"},
		{"alternatives are put together with what is beside them", Regexp, `ne(ws|wz)letter@`, []string{"newsletter@x.test", "newzletter@x.test"}, nil, "[[newsletter@ newzletter@ newſletter@]]"},
		{"a part that may be missing is no need", Regexp, `(promo)?[0-9]@`, []string{"7@x.test"}, nil, "[]"},
		{"nor is one of a star", Regexp, `(promo)*[0-9]@`, []string{"7@x.test"}, nil, "[]"},
		{"one of a plus is", Regexp, `(promo)+[0-9]@`, []string{"promopromo7@x.test"}, []string{"7@x.test"}, "[[promo]]"},
		{"a counted repetition is written out", Regexp, `(ab){2}@`, []string{"abab@x.test"}, []string{"ab@x.test"}, "[[abab@]]"},
		{"an alternative without a literal spoils the need", Regexp, `promo|[0-9]{9}`, []string{"123456789@x.test"}, nil, "[]"},
		{"an alternative within more", Regexp, `(foo[0-9]|bar[a-z]+bazaar)@x`, []string{"foo1@x.test", "barqbazaar@x.test"}, []string{"bar@x.test"}, "[[foo bazaar]]"},
		{"Greek has two small letters for one capital", Regexp, `^ΜΣ@`, []string{"μσ@x.test"}, nil, "[[µς@ µσ@ μς@ μσ@]]"},
		{"the long s is another letter", Regexp, `^spam@`, []string{"spam@x.test"}, []string{"ſpam@x.test"}, "[[spam@]]"},
		{"decomposed letters are composed", Regexp, "^e\u0301te\u0301@", []string{"été@x.test"}, nil, "[[été@]]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := testkit.Value(Parse(tt.kind, tt.text))(t)
			for _, text := range tt.yes {
				if !p.Match(text) {
					t.Errorf("%s does not match %s", p, text)
				}
			}
			for _, text := range tt.no {
				if p.Match(text) {
					t.Errorf("%s matches %s", p, text)
				}
			}
			testkit.Equal(t, "needs", fmt.Sprint(p.Needs()), tt.needs)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		name, text string
		class      error
		want       string
	}{
		{"look-ahead", `a(?=b)`, ErrUnsupported, "unsupported pattern: (?=: look-around and other Perl groups are not matched in linear time"},
		{"look-behind", `(?<!x)abc`, ErrUnsupported, "unsupported pattern: (?<!x)abc: look-behind is not matched in linear time"},
		{"back-reference", `(a)\1`, ErrUnsupported, `unsupported pattern: \1: back-references and Perl's other escapes are not known here`},
		{"possessive", `a++`, ErrUnsupported, "unsupported pattern: ++: there are no possessive repetitions"},
		{"repetition too long", `a{1001}`, ErrUnsupported, "unsupported pattern: {1001}: write shorter repetitions, at most 1000"},
		{"program too large", `abc[0-9]{999}[a-f]{999}`, ErrUnsupported, "unsupported pattern: a program of 2003 steps, at most 1100 are run; write shorter repetitions"},
		{"program too large to run always", `[0-9]{200}`, ErrUnsupported, "unsupported pattern: a program of 202 steps, at most 150 are run; write shorter repetitions"},
		{"classes of many ranges", `^\pL{20}@evil[.]example$`, ErrUnsupported, "unsupported pattern: a program with 13256 steps and ranges of characters, at most 6000; write shorter repetitions, or [a-z] for \\pL"},
		{"an expression of many octets that is none", strings.Repeat("(é", 300), ErrSyntax, "no pattern: error parsing regexp: missing closing ): `" + strings.Repeat("(é", 30) + "…`"},
		{"open group", `(abc`, ErrSyntax, "no pattern: error parsing regexp: missing closing ): `(abc`"},
		{"open class", `[abc`, ErrSyntax, "no pattern: error parsing regexp: missing closing ]: `[abc`"},
		{"nothing to repeat", `*abc`, ErrSyntax, "no pattern: error parsing regexp: missing argument to repetition operator: `*`"},
		{"not UTF-8", "a\xff", ErrSyntax, "no pattern: octets that are not UTF-8"},
		{"too long", strings.Repeat("a", 1001), ErrTooLong, "pattern too long: 1001 octets, at most 1000 are read"},
	}
	for _, tt := range tests {
		_, err := Parse(Regexp, tt.text)
		if !errors.Is(err, tt.class) || err.Error() != tt.want {
			t.Errorf("%s: Parse(%s) = %v, want %s", tt.name, tt.text, err, tt.want)
		}
	}
	testkit.Fails(Parse(Glob, strings.Repeat("a", 1001)))(t, "a glob of 1001 octets", ErrTooLong)
}

// What is costly is refused before it is written out: neither its time nor its memory nor the error's text follow the
// repetitions.
func TestCostlyExpressionsAreRefusedAtOnce(t *testing.T) {
	for _, text := range []string{`^\pL{1000}[0-9]{1,30}@evil[.]example$`, `^\PL{999}@evil[.]example$`, `^[^\pN]{1,900}@evil[.]example$`, `^(\pL|\pN){500}@evil[.]example$`,
		`^((\pL{10}){10}){9}@evil[.]example$`, `^(?:\pL?){700}@evil[.]example$`, `^\pL{800,}@evil[.]example$`, `(?i)^\p{Latin}{1000}@evil[.]example$`, strings.Repeat("a{1000}", 142),
		strings.Repeat(`\pL`, 300) + "@evil", `^[\pL\pM\pN\pP\pS\pZ]{1000}@evil[.]example$`} {
		before := testing.AllocsPerRun(1, func() { Parse(Regexp, text) })
		_, err := Parse(Regexp, text)
		if !errors.Is(err, ErrUnsupported) || len(err.Error()) > 250 || before > 20_000 {
			t.Errorf("%s: %v, %v allocations", text, err, before)
		}
	}
	for _, text := range []string{`^[a-z]{1000}@evil[.]example$`, `^\pL+[.]\pL+@evil[.]example$`, `^\w{1,64}@evil[.]example$`, `^[^@]{1,64}@evil[.]example$`, `^\p{Cyrillic}{3,20}@evil[.]example$`} {
		if _, err := Parse(Regexp, text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTooBroad(t *testing.T) {
	tests := []struct {
		kind Kind
		text string
		want bool
	}{
		{Glob, "*", true}, {Glob, "*@*", true}, {Glob, "*.*", true}, {Glob, "?*@*", true},
		{Regexp, "", true}, {Regexp, ".", true}, {Regexp, ".*", true}, {Regexp, "^.*$", true}, {Regexp, "@", true},
		{Regexp, `[^@]+@[^@]+`, true}, {Regexp, `\.`, true}, {Regexp, `^[a-z]`, true}, {Regexp, `[0-9]`, true},
		{Regexp, `^.{1,4}@`, true}, {Regexp, `(promo|)`, true}, {Regexp, `\w+@\w+`, true},
		{Glob, "a*@*", false}, {Glob, "promo*", false}, {Regexp, `bulk`, false}, {Regexp, `^[0-9]{8,}@`, false},
		{Regexp, `^x{3}`, false}, {Regexp, `@[a-z]{30}\.`, false},
	}
	for _, tt := range tests {
		p := testkit.Value(Parse(tt.kind, tt.text))(t)
		testkit.Equal(t, fmt.Sprintf("%s: too broad", p), p.TooBroad(), tt.want)
	}
}

// naive is what a pattern means, by the shortest way to say it.
func naive(t testing.TB, k Kind, text string) *regexp.Regexp {
	if k == Glob {
		text = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(text))
		text = "^(?:" + text + ")$"
	}
	re, err := regexp.Compile("(?is)" + text)
	if err != nil {
		t.Fatalf("naive %q: %v", text, err)
	}
	return re
}

func TestChooseTakesTheRarestText(t *testing.T) {
	var patterns []*Pattern
	for _, text := range []string{`newsletter.*@one\.test`, `newsletter.*@two\.test`, `newsletter.*@no`, `[0-9]`} {
		p := testkit.Value(Parse(Regexp, text))(t)
		patterns = append(patterns, p)
	}
	want := []Need{{"@one.test"}, {"@two.test"}, {"@no"}, nil}
	if got := Choose(patterns); !reflect.DeepEqual(got, want) {
		t.Errorf("Choose = %q, want %q", got, want)
	}
}
