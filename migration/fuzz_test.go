package migration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzMainCF: no text of a main.cf and no parameter in it crashes, hangs or grows.
func FuzzMainCF(f *testing.F) {
	f.Add("a = 1\nb = $a, ${a?yes}\n  ${c:no} # x\n# c\nd = ${{$a} == {1} ? {$b} : {no}}\n")
	f.Add("a = $b$b\nb = $c$c\nc = $a\n")
	f.Add("smtpd_sender_restrictions = check_sender_access { inline:{ {a@b.test = REJECT x} }, y }\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, _ := parseMainCF("main.cf", []byte(text))
		p := parameters{dir: ".", set: set}
		for name := range set {
			if value, err := p.value(name); err == nil && len(value) > maxValue+len(text) {
				t.Errorf("%s expands to %d octets", name, len(value))
			}
		}
		parseMasterCF("master.cf", []byte(text))
	})
}

// FuzzUCL: no document crashes or hangs, and what is read is not more than was there.
func FuzzUCL(f *testing.F) {
	f.Add("A { type = \"from\"; map = [ \"x\", 'y' ]; /* c */ }\n.include \"z\"\n# d\nB c { k v; }\n")
	f.Add("A {\n x = <<EOD\nline\nEOD\n;}")
	f.Add("{ \"a\": [ {\"b\": 1}, 2 ] }")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseUCL(text)
		if err == nil && size(v) > len(text) {
			t.Errorf("%d octets of text from %d", size(v), len(text))
		}
	})
}

// size is the length of all texts of a value.
func size(v uclValue) int {
	n := len(v.text)
	for _, i := range v.items {
		n += size(i)
	}
	for _, f := range v.fields {
		n += len(f.key) + size(f.value)
	}
	return n
}

// FuzzLocalCF: whatever a local.cf holds, what comes out of it is lists that read back
// as what was meant, or an error.
func FuzzLocalCF(f *testing.F) {
	f.Add("blocklist_from a@b.test *@c.test *.d.test x*@e.test\nunblocklist_from a@b.test\n")
	f.Add("if (version >= 4)\nwelcomelist_from a@b.test\nelse\nblacklist_from #\nendif\nall_spam_to x@y.test\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "local.cf")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "include", "xinclude")), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := SpamAssassin(t.Context(), path, Options{})
		checkResult(t, r, err)
	})
}

// FuzzTables: the same for the tables of Postfix.
func FuzzTables(f *testing.F) {
	f.Add("bulk.test REJECT\na@b.test OK\n198.51.100 DUNNO\n<> REJECT\n.x.test 450 later\n")
	f.Add("198.51.100.0/24 REJECT\n!203.0.113.0/24 OK\nif 192.0.2.0/24\n192.0.2.1 OK\nendif\n")
	f.Add("/^promo[0-9]+@/i REJECT $1\nif /x/\n/y/ OK\nendif\n!/z/ DUNNO\n/[\\w]+@bulk/ REJECT\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		main := "myhostname = mx.here.example\nrecipient_delimiter = +\nsmtpd_sender_restrictions = check_sender_access hash:t check_client_access cidr:t check_client_access hash:t\n" +
			"  check_sender_access pcre:t check_sender_access regexp:t check_recipient_access hash:t check_sender_access hash:t\n"
		for name, text := range map[string]string{"main.cf": main, "t": text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Postfix(t.Context(), filepath.Join(dir, "main.cf"), Options{})
		checkResult(t, r, err)
	})
}

// checkResult: every finding that is carried over has a list, and no text of the
// result has a line end where none belongs.
func checkResult(t *testing.T, r *Result, err error) {
	t.Helper()
	if err != nil {
		return
	}
	for _, f := range r.Findings {
		if strings.ContainsAny(f.Text+f.Now+f.List, "\n\r\x00") {
			t.Errorf("a control in %q, %q", f.Text, f.Now)
		}
		if f.Outcome == Lost && (f.List != "" || f.Now == "") {
			t.Errorf("%s: not carried over, list %q, %q", f.Place, f.List, f.Now)
		}
	}
	if config := string(r.Config("lists")); strings.Count(config, "[[list]]") != len(r.Lists) {
		t.Errorf("%d lists in\n%s", len(r.Lists), config)
	}
}
