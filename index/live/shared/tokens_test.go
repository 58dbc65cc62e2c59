package shared_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/testkit"
)

// Who can write to the store makes no token: neither from nothing, nor of one that there is, nor by bringing back one
// that was revoked.
func TestWhoCanWriteToTheStoreMakesNoToken(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a := fleet(t, e, 1, nil)[0]
		stranger := e.open(t, nil)
		defer stranger.Close()
		sum := func(digits string) string { return "sha256:" + strings.Repeat(digits, 32) }
		add := func(name, scope, digits, owners string, anew bool) {
			t.Helper()
			testkit.Must(t, a.AddToken(t.Context(), shared.Token{Name: name, Scope: scope, Sum: sum(digits), Owners: owners, By: "anna"}, anew))
		}
		rows := func() map[string]live.Row {
			t.Helper()
			all := map[string]live.Row{}
			testkit.Must(t, stranger.All(t.Context(), func(rows []live.Row, _ []string) error {
				for _, r := range rows {
					all[r.Entry] = r
				}
				return nil
			}))
			return all
		}
		write := func(r live.Row) {
			t.Helper()
			testkit.Value(stranger.Write(context.Background(), []live.Want{{Row: r}}, live.Terms{}))(t)
		}
		add("desk", "read", "aa", "", false)
		add("panel", "write", "bb", "here.example", false)
		add("gone", "write", "cc", "", false)
		add("turned", "write", "dd", "", false)
		before := rows()
		add("turned", "write", "de", "", true)
		testkit.Equal(t, "found", testkit.Value(a.RevokeToken(t.Context(), "gone", "anna"))(t), true)

		desk, panel := before["desk"], before["panel"]
		forged := map[string]live.Row{
			"nothing": {Why: sum("ee")}, "an empty proof": {Why: sum("ee") + " proof:"}, "owners for a proof": {Why: sum("ee") + " here.example"},
			"the proof of another": {Why: strings.Replace(desk.Why, sum("aa"), sum("ee"), 1), Created: desk.Created},
			"another scope":        {Why: desk.Why, Created: desk.Created}, "another name": {Why: panel.Why, Action: panel.Action, Created: panel.Created},
			"no owner": {Why: strings.TrimSuffix(panel.Why, " here.example"), Created: panel.Created},
		}
		for name, r := range forged {
			r.Entry, r.Scope, r.By = strings.ReplaceAll(name, " ", "-"), shared.ScopeToken, "mallory"
			if r.Action == "" {
				r.Action = "admin"
			}
			write(r)
		}
		raised, freed := desk, panel // in the place of what there was
		raised.Action, freed.Why = "admin", strings.TrimSuffix(panel.Why, " here.example")
		write(raised)
		write(freed)
		gone, turned := before["gone"], before["turned"]
		write(gone)
		write(turned)
		add("last", "read", "ff", "", false)
		file := func() string {
			text, _ := os.ReadFile(a.TokenFile())
			return string(text)
		}
		check := func() {
			t.Helper()
			testkit.Eventually(t, "the last one", func() bool { return strings.Contains(file(), "\nlast read") })
			for line := range strings.Lines(file()) {
				if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "last read") {
					t.Errorf("valid: %s", line)
				}
			}
			testkit.Has(t, strings.Join(a.Problems(), "\n"), "tokens of the fleet are not valid here")
		}
		check()
		gone.Gone, turned.Gone = gone.Created, turned.Created
		write(gone) // what was revoked before a machine came is known to no machine that comes
		write(turned)
		a = fleet(t, e, 1, nil)[0]
		check()
	})
}

// Without a key there are no tokens of the fleet: neither new ones, nor those of others.
func TestWithoutAKeyNoToken(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a := fleet(t, e, 1, nil)[0]
		testkit.Must(t, a.AddToken(t.Context(), shared.Token{Name: "desk", Scope: "read", Sum: "sha256:" + strings.Repeat("ab", 32), By: "anna"}, false))
		b := fleet(t, e, 1, func(o *shared.Options) { o.Key = "" })[0]
		testkit.IsError(t, "a token", b.AddToken(t.Context(), shared.Token{Name: "other", Scope: "read", Sum: "sha256:ab", By: "anna"}, false), shared.ErrNoKey)
		testkit.Eventually(t, "it is named", func() bool {
			return strings.Contains(strings.Join(b.Problems(), "\n"), "the fleet has no key for tokens")
		})
		text, _ := os.ReadFile(b.TokenFile())
		testkit.Lacks(t, string(text), "desk")
	})
}

// What a node has kept of the fleet's tokens is worth nothing by another key, by none, or where nobody had one; and
// what is proved comes back by itself.
func TestTokensOfAnotherKey(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		const old = "# Tokens of the fleet.\nmallory admin sha256:"
		folder := filepath.Join(t.TempDir(), "live")
		key := "a key that the fleet has and its store has not"
		open := func(with string) *node {
			t.Helper()
			return begin(t, folder, e.kind, e.open(t, nil), func(o *shared.Options) { o.Key = with })
		}
		file := func() string {
			text, _ := os.ReadFile(shared.TokenFile(folder))
			return string(text)
		}
		a := open(key)
		testkit.Must(t, a.AddToken(t.Context(), shared.Token{Name: "desk", Scope: "read", Sum: "sha256:" + strings.Repeat("ab", 32), By: "anna"}, false))
		testkit.Eventually(t, "the token", func() bool { return strings.Contains(file(), "\ndesk read") })
		a.stop()
		testkit.Write(t, shared.TokenFile(folder), old+strings.Repeat("cd", 32)+" 2026-11-28\n") // as a version without keys left it
		a = open(key)
		testkit.Lacks(t, file(), "mallory")
		testkit.Eventually(t, "what is proved comes back", func() bool { return strings.Contains(file(), "\ndesk read") })
		a.stop()
		for _, other := range []string{"", "another key, which somebody has put in its place"} {
			a = open(other)
			testkit.Lacks(t, file(), "desk")
			testkit.Eventually(t, "it is up", func() bool { return a.Status().Up })
			a.stop()
			testkit.Lacks(t, file(), "desk")
		}
		a = open(key)
		testkit.Eventually(t, "by the right key it comes back", func() bool { return strings.Contains(file(), "\ndesk read") })
	})
}
