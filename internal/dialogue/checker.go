package dialogue

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/nameserver"
	"blockd/lists"
	"blockd/msgauth"
	"blockd/policy"
)

// Index compiles the dialogue's lists, by the same code as the daemon.
func (d *Dialogue) Index(t testing.TB) *index.Index {
	t.Helper()
	folder := t.TempDir()
	var sources []index.Source
	for _, l := range d.Lists {
		source := index.Source{List: l.Name, Path: filepath.Join(folder, l.Name+".txt")}
		source.Settings.Format = "plain"
		switch l.Kind {
		case "":
		case "allow":
			source.Settings.Action = lists.Allow
		case "shadow":
			source.Mode = index.Shadow
		case "postfix":
			source.Settings.Format = l.Kind
		case "spamassassin":
			source.Settings.Format, source.Exceptions = l.Kind, index.AllExceptions
		case "quarantine", "tag", "tempfail": // see Checker
		default:
			t.Fatalf("%s: list %s: unknown kind %q", d.Name, l.Name, l.Kind)
		}
		if err := os.WriteFile(source.Path, []byte(strings.Join(l.Entries, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source)
	}
	draft, err := index.Build(t.Context(), filepath.Join(folder, "index.bdx"), sources, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(draft.Discard)
	return draft.Index()
}

// Checker decides by the dialogue's lists and its name server, with its settings
// "exempt" (words), "on_error", "on_dns_error" and "unverified_allow".
func (d *Dialogue) Checker(t testing.TB) *policy.Checker {
	t.Helper()
	s := policy.Settings{
		RecipientsExempt: []string{"postmaster", "abuse"},
		OnError:          policy.OnError(d.Settings["on_error"]),
	}
	if words, ok := d.Settings["exempt"]; ok {
		s.RecipientsExempt = strings.Fields(words)
	}
	s.Auth = policy.Auth{Ignore: d.Settings["unverified_allow"] == "ignore", Tempfail: d.Settings["on_dns_error"] == "tempfail"}
	if d.Zone != nil {
		r, err := msgauth.NewResolver(msgauth.Settings{Server: nameserver.Serve(t, d.Zone).Address})
		if err != nil {
			t.Fatal(err)
		}
		s.Auth.Resolver = r
	}
	s.Lists = map[string]policy.ListRule{}
	for _, l := range d.Lists {
		rule := policy.ListRule{}
		var require, match error
		rule.Require, require = policy.ParseProofs(d.Require[l.Name])
		rule.Match, match = policy.ParseSources(d.Match[l.Name])
		if err := errors.Join(require, match); err != nil {
			t.Fatalf("%s: list %s: %v", d.Name, l.Name, err)
		}
		switch l.Kind {
		case "quarantine", "tag", "tempfail":
			rule.OnMatch = policy.OnMatch(l.Kind)
		}
		if text, ok := d.Settings["tarpit"]; ok {
			wait, err := time.ParseDuration(text)
			if err != nil {
				t.Fatalf("%s: tarpit: %v", d.Name, err)
			}
			rule.Tarpit = wait
		}
		s.Lists[l.Name] = rule
	}
	for _, p := range d.Policies {
		s.Policies = append(s.Policies, policy.RecipientPolicy{Recipients: p.Recipients, Lists: p.Lists})
	}
	ix := d.Index(t)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	return policy.New(func() *index.Index { return ix }, s, log, prometheus.NewRegistry())
}
