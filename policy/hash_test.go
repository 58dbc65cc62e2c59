package policy_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/mail/digest"
	"blockd/policy"
	"blockd/policy/verdict"
)

// hashed makes an index that can be asked for digests by md5 and sha1.
func hashed(t *testing.T, path string, all ...list) *index.Index {
	t.Helper()
	return indexes.BuildWith(t, path, index.Options{Hashes: digest.SetOf(digest.MD5, digest.SHA1)}, sourcesOf(t, all)...)
}

func askHash(c *policy.Checker, a digest.Algorithm, text string) verdict.Verdict {
	return c.Ask(policy.Question{About: policy.AboutHash, Text: digest.Of(a, text).String()})
}

// A question by digest is answered as one about the address, if a list names that.
func TestHashes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lists  []list
		hashed string
		want   verdict.Kind
		by     string
	}{
		{"listed address", []list{block("a", "x@bad.example")}, "x@bad.example", verdict.Blocked, "a:x@bad.example"},
		{"another address", []list{block("a", "x@bad.example")}, "y@bad.example", verdict.Clear, ""},
		{"a domain tells no digest", []list{block("a", "bad.example")}, "x@bad.example", verdict.Clear, ""},
		{"internationalised, as a message in UTF-8 has it", []list{block("a", "x@xn--bcher-kva.example")}, "x@bücher.example", verdict.Blocked, "a:x@xn--bcher-kva.example"},
		{"internationalised, as DNS has it", []list{block("a", "x@bücher.example")}, "x@xn--bcher-kva.example", verdict.Blocked, "a:x@xn--bcher-kva.example"},
		{"exception for the address", []list{block("a", "x@bad.example"), allow("b", "x@bad.example")}, "x@bad.example", verdict.Allowed, "b:x@bad.example"},
		{"exception for the domain", []list{block("a", "x@mx.bad.example"), allow("b", "bad.example")}, "x@mx.bad.example", verdict.Allowed, "b:bad.example"},
		{"exception for the address, block of the domain", []list{block("a", "bad.example"), allow("b", "x@bad.example")}, "x@bad.example", verdict.Allowed, "b:x@bad.example"},
		{"exception of the same list", []list{block("a", "x@bad.example\n!bad.example")}, "x@bad.example", verdict.Allowed, "a:bad.example"},
		{"list in shadow mode", []list{block("a", "x@bad.example").shadow()}, "x@bad.example", verdict.Clear, "(a:x@bad.example)"},
		{"list in shadow mode, block of the domain", []list{block("a", "x@bad.example").shadow(), block("b", "bad.example")}, "x@bad.example", verdict.Blocked, "b:bad.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := checker(t, hashed(t, filepath.Join(t.TempDir(), "x.bdx"), tt.lists...), policy.Settings{})
			for _, a := range []digest.Algorithm{digest.MD5, digest.SHA1} {
				v := askHash(c, a, tt.hashed)
				by := ""
				if i := v.Told(); i >= 0 {
					by = v.ListName(i) + ":" + v.Matches[i].Name()
				}
				if v.Shadow >= 0 {
					by = "(" + by + ")"
				}
				if v.Kind != tt.want || by != tt.by || v.Err != nil {
					t.Errorf("%v: %s by %q, %v; want %s by %q", a, v.Kind, by, v.Err, tt.want, tt.by)
				}
				if len(v.Matches) > 0 {
					if sender := askSender(c, tt.hashed); sender.Kind != v.Kind || sender.Sender != v.Sender {
						t.Errorf("asked about the sender: %s, %v, by digest %s, %v", sender.Kind, sender.Sender, v.Kind, v.Sender)
					}
				}
			}
		})
	}
}

// What cannot be known is unknown, and never clear or blocked.
func TestUnknownHashes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.bdx")
	c, reg := checker(t, hashed(t, path, block("a", "x@bad.example")), policy.Settings{})
	for _, text := range []string{"", "test", "x@bad.example", "bad.example"} {
		if v := c.Ask(policy.Question{About: policy.AboutHash, Text: text}); v.Kind != verdict.Unknown || !errors.Is(v.Err, digest.ErrText) || v.Internal() {
			t.Errorf("%q: %s, %v", text, v.Kind, v.Err)
		}
	}
	if v := askHash(c, digest.SHA256, "x@bad.example"); v.Kind != verdict.Unknown || !errors.Is(v.Err, index.ErrNoDigests) || !v.Internal() {
		t.Errorf("another algorithm: %s, %v", v.Kind, v.Err)
	}
	wantMetric(t, reg, "blockd_internal_errors_total", `
		blockd_internal_errors_total{where="panic"} 0
		blockd_internal_errors_total{where="store"} 1`)

	data := testkit.Read(t, path)
	for at := 0; ; at++ { // in every record
		next := bytes.Index(data[at:], []byte("x@bad.example"))
		if next < 0 {
			break
		}
		at += next
		data[at]++
	}
	ix := testkit.Value(index.Open(testkit.File(t, "damaged.bdx", data)))(t)
	c, _ = checker(t, ix, policy.Settings{})
	if v := askHash(c, digest.SHA1, "x@bad.example"); v.Kind != verdict.Unknown || !errors.Is(v.Err, index.ErrRead) || !v.Internal() {
		t.Errorf("a damaged page: %s, %v", v.Kind, v.Err)
	}
}

// A live entry acts at once on questions by digest too.
func TestLiveEntriesHaveHashes(t *testing.T) {
	set := testkit.Value(live.Open(live.Settings{Folder: t.TempDir(), Hashes: digest.SetOf(digest.SHA1)}))(t)
	defer set.Close()
	c, _ := checker(t, hashed(t, filepath.Join(t.TempDir(), "x.bdx"), block("a", "x@bad.example\nbad.example")), policy.Settings{Live: set})
	apply := func(change live.Change) {
		t.Helper()
		testkit.Value(set.Apply(change))(t)
	}
	want := func(text string, kind verdict.Kind, by string) {
		t.Helper()
		v := askHash(c, digest.SHA1, text)
		list := ""
		if v.Decider >= 0 {
			list = v.ListName(v.Decider)
		}
		if v.Kind != kind || list != by {
			t.Errorf("%s: %s by %q, want %s by %q", text, v.Kind, list, kind, by)
		}
	}
	want("x@bad.example", verdict.Blocked, "a")
	want("new@other.example", verdict.Clear, "")
	apply(live.Change{Entry: "new@other.example"})
	want("new@other.example", verdict.Blocked, live.ListName)
	want("also@other.example", verdict.Clear, "")
	apply(live.Change{Entry: "new@other.example", Remove: true})
	want("new@other.example", verdict.Clear, "")
	apply(live.Change{Entry: "x@bad.example", Action: lists.Allow})
	want("x@bad.example", verdict.Allowed, live.ListName)
	apply(live.Change{Entry: "x@bad.example", Remove: true})
	apply(live.Change{Entry: "bad.example", Action: lists.Allow})
	want("x@bad.example", verdict.Allowed, live.ListName)
}
