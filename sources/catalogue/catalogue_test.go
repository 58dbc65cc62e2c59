package catalogue

import (
	"net/url"
	"slices"
	"testing"

	"blockd/lists"
)

func TestLists(t *testing.T) {
	all, err := Lists()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d lists, %v", len(all), err)
	}
	var formats []string
	for _, f := range lists.Formats() {
		formats = append(formats, f.Name)
	}
	names := map[string]bool{}
	for _, l := range all {
		if l.Name == "" || names[l.Name] {
			t.Errorf("the name %q is empty, or there twice", l.Name)
		}
		names[l.Name] = true
		for _, text := range []string{l.URL, l.Complaints} {
			if u, err := url.Parse(text); err != nil || u.Scheme != "https" || u.Host == "" {
				t.Errorf("%s: %q is no https address", l.Name, text)
			}
		}
		if !slices.Contains(formats, l.Format) {
			t.Errorf("%s: no format %q", l.Name, l.Format)
		}
		if l.What == "" || l.Licence == "" || l.Cadence == "" || l.Entries <= 0 || l.Refused < 0 || l.Judged.Year < 2026 {
			t.Errorf("%s: something is missing: %+v", l.Name, l)
		}
	}
}
