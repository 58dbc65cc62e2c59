package lists_test

import (
	"errors"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestJSON(t *testing.T) {
	for _, tt := range []struct{ name, format, text, want string }{
		{"array", "json", `["bulk.test", "promo@bulk.test", "198.51.100.0/25"]`,
			"domain bulk.test tree block + addr promo@bulk.test exact block + cidr 198.51.100.0/25 tree block"},
		{"plain entries with marks", "json", `["!bulk.test", "=shop.test", ".x.test"]`,
			"domain bulk.test tree allow + domain shop.test exact block + domain x.test sub block"},
		{"escapes", "json", `["b\u00fccher.test", "\u0061.test"]`, "domain xn--bcher-kva.test tree block + domain a.test tree block"},
		{"members that block", "json", `{"blacklist":["a.test"],"blocklist":["b.test"],"block":["c.test"],"deny":["d.test"],"domains":["e.test"],"emails":["f@f.test"],"disposable":["g.test"]}`,
			"domain a.test tree block + domain b.test tree block + domain c.test tree block + domain d.test tree block + domain e.test tree block + addr f@f.test exact block + domain g.test tree block"},
		{"members that allow", "json", `{"whitelist":["a.test"],"allowlist":["b.test"],"allow":["c.test"],"welcomelist":["d.test"]}`,
			"domain a.test tree allow + domain b.test tree allow + domain c.test tree allow + domain d.test tree allow"},
		{"other members, never their strings", "json", `{"name":"x.test","more":{"block":["y.test"]},"block":["a.test"],"z":["z.test",[1]]}`,
			"skip other-member + skip other-member + domain a.test tree block + skip other-member"},
		{"a member that is one string", "json", `{"block":"a.test"}`, "domain a.test tree block"},
		{"KEY instead of the members that block", "json:members", `{"block":["a.test"],"members":["b.test"],"allow":["c.test"]}`,
			"skip other-member + domain b.test tree block + domain c.test tree allow"},
		{"KEY of objects in an array", "json:host", `[{"id":1,"host":"a.test"},{"host":"b.test","tags":["c.test"]},"d.test"]`,
			"domain a.test tree block + domain b.test tree block + domain d.test tree block"},
		{"object without KEY", "json:host", `[{"id":1},{"host":"b.test"}]`, "err syntax + domain b.test tree block"},
		{"KEY that is no string", "json:host", `[{"host":["a.test"]},{"host":7},{"host":"b.test"}]`, "err syntax + err syntax + domain b.test tree block"},
		{"empty and non-string elements", "json", `["", " ", 1, true, null, ["a.test"], {"a":"b.test"}, "c.test"]`,
			"err syntax + err syntax + err syntax + err syntax + err syntax + err syntax + err syntax + domain c.test tree block"},
		{"comment", "json", `["# a.test", "b.test # c"]`, "skip comment + domain b.test tree block"},
		{"control", "json", `["a\u0001.test", "b\u0000.test", "c\n.test", "d.test"]`, "err control + err nul + err control + domain d.test tree block"},
		{"broken octets", "json", "[\"b\xfclk@a.test\", \"d.test\"]", "err bad-utf8 + domain d.test tree block"},
		{"half a surrogate pair", "json", `["\ud800@a.test", "d.test"]`, "err bad-utf8 + domain d.test tree block"},
		{"long string", "json", `["` + strings.Repeat("a", 65537) + `", "d.test"]`, "err too-long + domain d.test tree block"},
		{"CR as line end", "json", "[\"a.test\",\r\"b.test\"]\r", "domain a.test tree block + domain b.test tree block"},
		{"empty array", "json", `[]`, ""},
		{"a list that allows", "json", `["a.test"]`, "domain a.test tree block"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := items(t, tt.text, lists.Settings{Format: tt.format})
			testkit.Must(t, err)
			if got := strings.Join(got, " + "); got != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.text, got, tt.want)
			}
		})
	}
}

func TestJSONListOfExceptions(t *testing.T) {
	got, _, err := items(t, `{"domains":["a.test"],"allow":["b.test","!c.test"],"block":["d.test"]}`,
		lists.Settings{Format: "json", Action: lists.Allow})
	testkit.Must(t, err)
	equal(t, got, []string{"domain a.test tree allow", "domain b.test tree allow", "err unsupported-action", "err unsupported-action"})
}

func TestJSONIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, format, text, want string }{
		{"unclosed array", "json", `["a.test"`, "json: the text ends in the middle"},
		{"unclosed string", "json", `["a.test`, "json: the text ends in the middle"},
		{"empty file", "json", ``, "json: the text ends in the middle"},
		{"trailing comma", "json", "[\"a.test\",\n]", ":2: json: invalid character"},
		{"two values", "json", `["a.test"] ["b.test"]`, ":1: json: more text behind"},
		{"garbage behind", "json", `["a.test"] x`, "json: invalid character 'x'"},
		{"a string", "json", `"a.test"`, ":1: json: neither an array nor an object"},
		{"no known member", "json", `{"foo":["a.test"]}`, "json: no member that is known to hold a list"},
		{"no such member", "json:bar", "{\"foo\":[\"a.test\"]\n}", `:2: json: no member "bar"`},
		{"too deep", "json", strings.Repeat("[", 1001), "json: more than 1000 arrays and objects in each other"},
		{"too deep in another member", "json", `{"x":` + strings.Repeat("[", 2000), "json: more than 1000 arrays and objects in each other"},
		{"a string without bounds", "json", `["` + strings.Repeat("a", 2<<20), "json: a string, a number or a gap of more than 1048576 octets"},
		{"a gap without bounds", "json", `[` + strings.Repeat(" ", 2<<20), "json: a string, a number or a gap of more than 1048576 octets"},
		{"a number without bounds", "json", `[` + strings.Repeat("1", 2<<20), "json: a string, a number or a gap of more than 1048576 octets"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, sum, err := items(t, tt.text, lists.Settings{Format: tt.format})
			fe, ok := errors.AsType[*lists.FileError](err)
			if !ok || fe.Class != lists.JSON || !strings.Contains(err.Error(), tt.want) || sum.Verdict != lists.Refused {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestJSONLinesAreCounted(t *testing.T) {
	for _, text := range []string{
		"[\n\"a.test\",\n\n\"b.test\"\n]\n",
		"[\r\n\"a.test\",\r\n\r\n\"b.test\"\r\n]",
		"[\r\"a.test\",\r\r\"b.test\"\r]\r",
	} {
		var at []int
		sum, err := lists.ReadFile(t.Context(), testkit.File(t, "list", text), lists.Settings{Format: "json"}, func(it *lists.Item) error {
			at = append(at, it.Line)
			return nil
		})
		if err != nil || sum.Lines != 5 || len(at) != 2 || at[0] != 2 || at[1] != 4 {
			t.Errorf("%q: lines %v of %d, %v; want 2 and 4 of 5", text, at, sum.Lines, err)
		}
	}
}
