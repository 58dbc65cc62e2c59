package lists_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"blockd/internal/testkit"
	"blockd/lists"
)

var update = flag.Bool("update", false, "write testdata/bad/*.want and suffixes.bin anew")

// lintLine and lintSummary are the objects of docs/lists.md, section 9.
type lintLine struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column,omitempty"` // not of section 9: for the caret below the line
	Kind    string `json:"kind"`
	Key     string `json:"key"`
	Scope   string `json:"scope"`
	Action  string `json:"action"`
	Reason  string `json:"reason"`
	Class   string `json:"class"`
	Message string `json:"message"`
}

type lintSummary struct {
	File    string `json:"file"`
	Summary struct {
		Format  string `json:"format"`
		Lines   int    `json:"lines"`
		Entries int    `json:"entries"`
		Keys    int    `json:"keys"`
		Errors  int    `json:"errors"`
		Skipped int    `json:"skipped"`
		Verdict string `json:"verdict"`
		Why     string `json:"why"`
	} `json:"summary"`
}

// TestBadLists lints each file of testdata/bad as the format that its name ends
// with, and compares everything that is said about it.
func TestBadLists(t *testing.T) {
	paths, err := filepath.Glob("testdata/bad/*")
	if err != nil || len(paths) < 19 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasSuffix(name, ".want") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got := lintOutput(t, path, lists.Settings{Format: strings.TrimPrefix(filepath.Ext(name), ".")})
			if *update {
				testkit.Write(t, path+".want", got)
			}
			want := testkit.Read(t, path+".want")
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func lintOutput(t *testing.T, path string, s lists.Settings) []byte {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	file := filepath.Base(path)
	sum, keys, err := lists.Lint(t.Context(), path, s, func(it *lists.Item) error {
		if it.Class == lists.Comment || it.Class == lists.Blank {
			return nil
		}
		l := lintLine{File: file, Line: it.Line, Column: it.Column, Kind: it.Kind.String(), Class: string(it.Class), Message: it.Message}
		if it.Kind != lists.Skip && it.Kind != lists.Err {
			l.Key, l.Scope, l.Action, l.Reason = it.Name(), it.Scope.String(), it.Action.String(), it.Reason
		}
		return enc.Encode(l)
	})
	testkit.Equal(t, fmt.Sprintf("verdict %s with %v", sum.Verdict, err), err != nil, sum.Verdict == lists.Refused)
	end := lintSummary{File: file}
	end.Summary.Format, end.Summary.Lines, end.Summary.Entries, end.Summary.Keys = sum.Format, sum.Lines, sum.Entries, keys
	end.Summary.Errors, end.Summary.Skipped, end.Summary.Verdict, end.Summary.Why = sum.Errors, sum.Skipped, string(sum.Verdict), sum.Why
	testkit.Must(t, enc.Encode(end))
	return out.Bytes()
}

// TestEveryFaultHasAHint: whoever reads an error is told what to do.
func TestEveryFaultHasAHint(t *testing.T) {
	seen := map[lists.Class]bool{}
	paths, _ := filepath.Glob("testdata/bad/*")
	for _, path := range paths {
		lists.Lint(t.Context(), path, lists.Settings{Format: strings.TrimPrefix(filepath.Ext(path), ".")}, func(it *lists.Item) error {
			if it.Kind != lists.Skip && it.Class != "" {
				seen[it.Class] = true
			}
			return nil
		})
	}
	for class := range seen {
		if lists.Hint(class) == "" {
			t.Errorf("no hint for %s", class)
		}
	}
	if len(seen) < 18 {
		t.Errorf("testdata/bad shows %d classes only", len(seen))
	}
}

func TestLintComparesEntries(t *testing.T) {
	const text = "bulk.test\n" + // 1
		"Bulk.Test.\n" + // 2: the same
		".bulk.test\n" + // 3: another scope
		"!bulk.test\n" + // 4: an exception from 1
		"!bulk.test\n" + // 5: conflict comes before dup
		"bulk.test\n" + // 6
		"198.51.100.0/25\n" + // 7
		"198.51.100.9/25\n" + // 8: dup comes before host-bits
		"!a@bulk.test\n" + // 9
		"a@bulk.test\n" + // 10
		"b@bulk.test\n" // 11: nothing, whatever the line before is
	want := []string{
		"1 domain bulk.test tree block ",
		"2 domain bulk.test tree block dup same as line 1",
		"3 domain bulk.test sub block ",
		"4 domain bulk.test tree allow conflict an exception from line 1, and wins",
		"5 domain bulk.test tree allow conflict an exception from line 1, and wins",
		"6 domain bulk.test tree block conflict line 4 is an exception from it, and wins",
		"7 cidr 198.51.100.0/25 tree block ",
		"8 cidr 198.51.100.0/25 tree block dup same as line 7",
		"9 addr a@bulk.test exact allow ",
		"10 addr a@bulk.test exact block conflict line 9 is an exception from it, and wins",
		"11 addr b@bulk.test exact block ",
	}
	var got []string
	sum, keys, err := lists.Lint(t.Context(), testkit.File(t, "list", text), lists.Settings{Format: "plain"}, func(it *lists.Item) error {
		line := fmt.Sprintf("%d %s", it.Line, show(it))
		if it.Message != "" {
			line += " " + it.Message
		} else {
			line += " "
		}
		got = append(got, line)
		return nil
	})
	if err != nil || sum.Entries != 11 || keys != 5 {
		t.Errorf("%d entries, %d keys, %v; want 11 and 5", sum.Entries, keys, err)
	}
	equal(t, got, want)
}

func TestWords(t *testing.T) {
	for got, want := range map[fmt.Stringer]string{
		lists.Skip: "skip", lists.Err: "err", lists.Addr: "addr", lists.Domain: "domain", lists.IP: "ip", lists.CIDR: "cidr", lists.Kind(9): "kind(9)",
		lists.Exact: "exact", lists.Sub: "sub", lists.Tree: "tree", lists.Local: "local", lists.Scope(9): "scope(9)",
		lists.Block: "block", lists.Allow: "allow", lists.Tempfail: "tempfail", lists.Discard: "discard", lists.Action(9): "action(9)",
	} {
		if got.String() != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for text, want := range map[string]lists.Action{"": lists.Block, "block": lists.Block, "allow": lists.Allow} {
		testkit.Equal(t, fmt.Sprintf("ParseAction(%q)", text), testkit.Value(lists.ParseAction(text))(t), want)
	}
	for _, text := range []string{"Block", "tempfail", "discard", "deny"} {
		if _, err := lists.ParseAction(text); err == nil {
			t.Errorf("ParseAction(%q) succeeds", text)
		}
	}
}

func aboutOf(t *testing.T, text, format string) lists.About {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list.txt")
	testkit.Write(t, path, text)
	sum, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: format}, func(*lists.Item) error { return nil })
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return sum.About
}

func TestAbout(t *testing.T) {
	for name, tt := range map[string]struct {
		text, format string
		want         lists.About
	}{
		"adblock": {"[Adblock Plus 2.0]\n! Title: Scam Blocklist\n! Expires: 4 days (update frequency)\n! Homepage: https://list.example/\n! License: MIT (https://mit-license.org/)\n! Last modified: 2026-07-06 00:40:31 UTC\n!\n||bad.example^\n", "adblock",
			lists.About{Title: "Scam Blocklist", Homepage: "https://list.example/", Licence: "MIT (https://mit-license.org/)", Modified: "2026-07-06 00:40:31 UTC", Expires: 96 * time.Hour}},
		"hosts": {"# ---[UPDATE]---\n# Title: Malware\n# Expires: 12 hours\n# Home: http://list.example\n# Contribute: https://list.example/issues\n# License: https://unlicense.org\n\n0.0.0.0 bad.example\n", "hosts",
			lists.About{Title: "Malware", Homepage: "http://list.example", Complaints: "https://list.example/issues", Licence: "https://unlicense.org", Expires: 12 * time.Hour}},
		"after windows": {"\ufeff# Title: One\r\n# Complaints: mailto:help@list.example\r\nbad.example\r\n", "plain", lists.About{Title: "One", Complaints: "mailto:help@list.example"}},
		"first":         {"# Title: One\n# Title: Two\nbad.example\n# Homepage: https://late.example\n", "plain", lists.About{Title: "One"}},
		"DROP": {"; Spamhaus DROP List 2026/08/22 - (c) 2026 The Spamhaus Project SLU\n; https://www.spamhaus.org/drop/drop.txt\n; Last-Modified: Fri, 21 Aug 2026 20:10:41 GMT\n; Expires: Sat, 22 Aug 2026 23:10:41 GMT\n192.0.2.0/24 ; SBL1\n", "drop",
			lists.About{Licence: "Spamhaus DROP List 2026/08/22 - (c) 2026 The Spamhaus Project SLU", Modified: "Fri, 21 Aug 2026 20:10:41 GMT"}},
		"DROP in JSON": {`{"cidr":"192.0.2.0/24","sblid":"SBL1"}` + "\n" + `{"type":"metadata","records":1,"copyright":"(c) 2026 The Spamhaus Project SLU","terms":"https://www.spamhaus.org/drop/terms/"}` + "\n", "drop",
			lists.About{Licence: "(c) 2026 The Spamhaus Project SLU, https://www.spamhaus.org/drop/terms/"}},
		"phrase":  {"# You are free to copy and distribute this file for non-commercial uses,\nbad.example\n", "plain", lists.About{Licence: "You are free to copy and distribute this file for non-commercial uses,"}},
		"nothing": {"bad.example\n", "plain", lists.About{}},
		"expires": {"# Expires: 2\nbad.example\n", "plain", lists.About{Expires: 48 * time.Hour}},
		"never":   {"# Expires: never\n# Expires: 3 fortnights\nbad.example\n", "plain", lists.About{}},
		"hostile": {"# Title: a\u202eb\u2066c\u200bd\u0085e\u2028f<script>\n# Homepage: javascript:alert(1)\n# Homepage: https://user:pass@list.example/\n# Complaints: mailto:a@b.example?bcc=c@d.example\n# Support: https://list.example/\"onclick=x\n# License: " + strings.Repeat("x", 500) + "\nbad.example\n", "plain",
			lists.About{Title: "abcd e f<script>", Licence: strings.Repeat("x", lists.MaxAboutText)}},
		"cut at a character": {"# Title: " + strings.Repeat("é", 150) + "\nbad.example\n", "plain", lists.About{Title: strings.Repeat("é", 100)}},
		"many lines":         {strings.Repeat("#\n", 100) + "# Title: late\nbad.example\n", "plain", lists.About{}},
		"a megabyte":         {"# Title: One\n# Homepage: https://" + strings.Repeat("x", 1<<20) + "\n# License: MIT\nbad.example\n", "plain", lists.About{Title: "One"}},
		"a long line":        {"# " + strings.Repeat("x", 70_000) + "\n# Title: late\nbad.example\n", "plain", lists.About{}},
	} {
		testkit.Equal(t, name, aboutOf(t, tt.text, tt.format), tt.want)
	}
}

func TestForbids(t *testing.T) {
	for licence, want := range map[string]bool{
		"CC BY-NC 4.0": true, "CC-BY-NC-ND-4.0": true, "https://creativecommons.org/licenses/by-nc-sa/4.0/": true, "free for non-commercial uses": true,
		"No redistribution": true, "may not be redistributed": true, "do not redistribute": true, "Redistribution is prohibited.": true, "for personal use only": true,
		"All rights reserved": true, "(c) 2026 The Spamhaus Project SLU": true, "proprietary": true,
		"": false, "MIT": false, "CC0-1.0": false, "CC BY-SA 4.0": false, "GPL-3.0": false, "Unlicense": false, "https://unlicense.org": false,
		"Redistribution and use in source and binary forms": false,
	} {
		testkit.Equal(t, fmt.Sprintf("Forbids of %q", licence), (lists.About{Licence: licence}).Forbids(), want)
	}
}

// What a list says of itself can be shown anywhere, whatever the file holds.
func FuzzAbout(f *testing.F) {
	f.Add("# Title: x\u202ey\n! Homepage: https://a.example\n; (c) 2026 somebody\n")
	f.Add("#Complaints:mailto:a@b\r#License:\xff\x1b[2J\n")
	f.Fuzz(func(t *testing.T, text string) {
		sum, err := lists.Read(t.Context(), strings.NewReader(text), int64(len(text)), "x", lists.Settings{Format: "plain"}, func(*lists.Item) error { return nil })
		if err != nil {
			return
		}
		a := sum.About
		for _, text := range []string{a.Title, a.Licence, a.Modified, a.Homepage, a.Complaints, a.String()} {
			if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) && strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) }) || len(text) > 4*lists.MaxAboutLink {
				t.Errorf("%q", text)
			}
		}
		for _, link := range []string{a.Homepage, a.Complaints} {
			if link != "" && !strings.HasPrefix(strings.ToLower(link), "http://") && !strings.HasPrefix(strings.ToLower(link), "https://") && !strings.HasPrefix(strings.ToLower(link), "mailto:") {
				t.Errorf("link %q", link)
			}
		}
		if a.Expires < 0 || lists.CleanAbout(a.Title, lists.MaxAboutText) != a.Title {
			t.Errorf("%+v", a)
		}
	})
}
