package lists_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"blockd/internal/testkit"
	"blockd/lists"
)

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
		if got := aboutOf(t, tt.text, tt.format); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
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
		if got := (lists.About{Licence: licence}).Forbids(); got != want {
			t.Errorf("Forbids of %q = %v, want %v", licence, got, want)
		}
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
