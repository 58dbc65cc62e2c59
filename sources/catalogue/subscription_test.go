package catalogue

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/lists"
)

var (
	day     = time.Date(2026, 11, 23, 23, 30, 0, 0, time.UTC)
	example = List{Name: "some-list", URL: "https://lists.example/some.txt", Format: "plain", Cadence: "daily"}
)

// What is taken away again leaves the text as it was, octet for octet, whatever an operator has written around it.
func TestSubscribeAndUnsubscribe(t *testing.T) {
	for _, before := range []string{"", "# mine\n", "# mine, without an end", "[smtp]\nlisten = \"\" # mine\n\n\n", "[[list]]\nname = \"x\"\n[list.source]\nkind = \"y\"\n"} {
		with := testkit.Value(Subscribe([]byte(before), example, "/var/lib/blockd/subscribed/some-list", day))(t)
		if !strings.HasPrefix(string(with), before) {
			t.Errorf("%q became %q", before, with)
		}
		s, there, err := Find(with, "some-list")
		if !there || err != nil || s.Enforced || s.Since.Format(time.DateOnly) != "2026-11-23" {
			t.Errorf("%+v, %v, %v", s, there, err)
		}
		testkit.Fails(Subscribe(with, example, "", day))(t, "once more", ErrSubscribed)
		enforced, err := Enforce(with, "some-list")
		if err != nil || strings.Replace(string(with), "shadow", "enforce", 1) != string(enforced) {
			t.Errorf("enforced: %v\n%s", err, enforced)
		}
		if s, there, err := Find(enforced, "some-list"); !there || err != nil || !s.Enforced {
			t.Errorf("%+v, %v, %v", s, there, err)
		}
		more := string(enforced) + "\n# behind it\n"
		for text, want := range map[string]string{string(with): before, string(enforced): before, more: strings.TrimSuffix(before, "\n") + "\n\n# behind it\n"} {
			got, err := Unsubscribe([]byte(text), "some-list")
			if before == "" && text == more {
				want = "\n# behind it\n"
			} else if !strings.HasSuffix(before, "\n") && before != "" { // the end of the line that was missing stays
				want = strings.Replace(want, before, before+"\n", 1)
				want = strings.Replace(want, "\n\n\n", "\n\n", 1)
			}
			if err != nil || string(got) != want {
				t.Errorf("%q without it: %q, %v; want %q", text, got, err, want)
			}
		}
	}
}

func TestOtherSubscriptionsStay(t *testing.T) {
	other := example
	other.Name = "other"
	text, _ := Subscribe([]byte("# mine\n"), example, "/a", day)
	text, err := Subscribe(text, other, "/b", day)
	testkit.Must(t, err)
	text = testkit.Value(Unsubscribe(text, "some-list"))(t)
	testkit.Begins(t, "the file", string(text), "# mine\n")
	testkit.Lacks(t, string(text), "some-list")
	if _, there, err := Find(text, "other"); !there || err != nil {
		t.Errorf("the other one: %v, %v", there, err)
	}
}

// Nothing is guessed where somebody has changed the lines.
func TestChangedSubscription(t *testing.T) {
	text, _ := Subscribe(nil, example, "/a", day)
	for what, changed := range map[string]string{
		"no end":       strings.Replace(string(text), "# end of some-list\n", "", 1),
		"no mode":      strings.Replace(string(text), shadow, "", 1),
		"another list": strings.Replace(string(text), shadow, shadow+"[[list]]\n", 1),
		"no list":      strings.Replace(string(text), "[[list]]\n", "", 1),
		"no such day":  strings.Replace(string(text), "2026-11-23", "2026-13-99", 1),
	} {
		for name, change := range map[string]func([]byte, string) ([]byte, error){"enforce": Enforce, "remove": Unsubscribe} {
			if got, err := change([]byte(changed), "some-list"); !errors.Is(err, ErrChanged) || got != nil {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
	}
	testkit.Fails(Enforce([]byte("# mine\n"), "some-list"))(t, "not there", ErrNotSubscribed)
}

func TestNamed(t *testing.T) {
	if l, err := Named("disposable-domains"); err != nil || l.URL == "" {
		t.Errorf("%+v, %v", l, err)
	}
	testkit.Got(Named("no-such-list"))(t, "a name that is none", testkit.Any, "…disposable-domains, ipsum-4…")
}

func TestLists(t *testing.T) {
	all := testkit.Value(Lists())(t)
	testkit.AtLeast(t, "lists", len(all), 1)
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
