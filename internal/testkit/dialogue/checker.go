package dialogue

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit/domains"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/nameserver"
	"blockd/lists"
	"blockd/mail/msgauth"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// Index compiles the dialogue's lists, by the same code as the daemon.
func (d *Dialogue) Index(t testing.TB) *index.Index {
	t.Helper()
	var sources []index.Source
	for _, l := range d.Lists {
		source := indexes.Source(t, l.Name, strings.Join(l.Entries, "\n")+"\n")
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
		sources = append(sources, source)
	}
	return indexes.Build(t, sources...)
}

// Checker decides by the dialogue's lists and its name server, with its settings
// "exempt" (words), "on_error", "on_dns_error" and "unverified_allow".
func (d *Dialogue) Checker(t testing.TB) *policy.Checker {
	t.Helper()
	s := policy.Settings{
		RecipientsExempt: []string{"postmaster", "abuse"},
		OnError:          rule.OnError(d.Settings["on_error"]),
	}
	if words, ok := d.Settings["exempt"]; ok {
		s.RecipientsExempt = strings.Fields(words)
	}
	s.Auth = rule.Auth{Ignore: d.Settings["unverified_allow"] == "ignore", Tempfail: d.Settings["on_dns_error"] == "tempfail"}
	s.Auth.Resolver = d.Resolver(t)
	s.Lists = map[string]rule.List{}
	for _, l := range d.Lists {
		r := rule.List{}
		var require, match error
		r.Require, require = verdict.ParseProofs(d.Require[l.Name])
		r.Match, match = verdict.ParseSources(d.Match[l.Name])
		if err := errors.Join(require, match); err != nil {
			t.Fatalf("%s: list %s: %v", d.Name, l.Name, err)
		}
		switch l.Kind {
		case "quarantine", "tag", "tempfail":
			r.OnMatch = rule.OnMatch(l.Kind)
		}
		if text, ok := d.Settings["tarpit"]; ok {
			wait, err := time.ParseDuration(text)
			if err != nil {
				t.Fatalf("%s: tarpit: %v", d.Name, err)
			}
			r.Tarpit = wait
		}
		s.Lists[l.Name] = r
	}
	for _, p := range d.Policies {
		s.Policies = append(s.Policies, rule.Recipients{Recipients: p.Recipients, Lists: p.Lists})
	}
	if on, ok := d.Settings["first_seen"]; ok {
		s.FirstSeen = policy.FirstSeen{Domains: domains.Known(t, strings.Fields(d.Settings["seen"])...), Defers: on == "tempfail"}
	}
	ix := d.Index(t)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	return policy.New(func() *index.Index { return ix }, s, log, prometheus.NewRegistry())
}

// Resolver asks the dialogue's name server; nil without one.
func (d *Dialogue) Resolver(t testing.TB) *msgauth.Resolver {
	t.Helper()
	if d.Zone == nil {
		return nil
	}
	r, err := msgauth.NewResolver(msgauth.Settings{Server: nameserver.Serve(t, d.Zone).Address})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
