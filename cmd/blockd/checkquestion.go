package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"blockd/addr"
	"blockd/index"
	"blockd/internal/config"
	"blockd/internal/control"
	"blockd/internal/daemon"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/policy"
	"blockd/reload"
	"blockd/verdict"
)

// asker turns the texts of check into questions.
type asker struct {
	checker *policy.Checker
	client  netip.Addr // of --client: then each text is a sender; zero without
	to      string     // of --recipient: the same; "" without
}

// question reads a text as people mean it: an IP address is a client, a name with a dot
// and without "@", or with nothing before it, is a domain, and everything else is a
// sender.
func (a asker) question(text string) policy.Question {
	if !a.client.IsValid() && a.to == "" && strings.IndexByte(text, '@') <= 0 {
		if ip, ok := clientOf(text); ok {
			return policy.Question{About: policy.AboutClient, Client: ip}
		}
		if name, ok := domainOf(text); ok {
			return policy.Question{About: policy.AboutDomain, Text: name}
		}
	}
	return policy.Question{Text: text, Client: a.client, Recipient: a.to}
}

// clientOf reads an IP address, with or without brackets.
func clientOf(text string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(text)
	return ip, err == nil
}

// domainOf tells a text that asks for a domain. "root" is a local sender, as mail
// from the machine itself has it; ask for "@root" if that is a domain.
func domainOf(text string) (string, bool) {
	if name, ok := strings.CutPrefix(text, "@"); ok && !strings.Contains(name, "@") {
		return name, true
	}
	return text, !strings.ContainsAny(text, "@<\"!%") && !strings.ContainsFunc(text, addr.WideAt) && strings.Contains(text, ".")
}

// shownSubject is what a verdict is about, in canonical form: the sender, "<>" for
// the null sender, the domain or the client; and the text that was asked where
// that is none of them, or of which only the domain can be read.
func shownSubject(input string, v *verdict.Verdict) string {
	switch {
	case v.Unread != "" && (v.Sender.Null() || v.Kind == verdict.Unknown):
		return shownInput(input)
	case !v.Sender.Null():
		return term.Visible(v.Sender.String())
	case v.Domain.Text != "":
		return term.Visible(v.Domain.Text)
	case input == "", input == "<>":
		return "<>"
	case v.Client.IsValid() && v.Err == nil:
		return v.Client.String()
	}
	return shownInput(input)
}

// shownInput is a text that was asked, as much of it as a line may have.
func shownInput(input string) string { return term.Visible(input[:min(len(input), 320)]) }

// openToCheck opens the index file, or the one of the configuration at path, with a
// Checker over it, and says on standard error if it is not what is configured.
func openToCheck(cmd *cobra.Command, path, file string) (*index.Index, *policy.Checker, config.Auth, error) {
	c := config.Config{Auth: config.Default().Auth}
	var settings policy.Settings
	var sources []index.Source // as configured; nil with -i
	if file == "" {
		var err error
		if c, err = config.Load(path); err != nil {
			return nil, nil, config.Auth{}, err
		}
		file, settings = c.Index.Path, c.Policy()
		if settings.Live, err = control.ReadLive(c); err != nil {
			return nil, nil, config.Auth{}, err
		}
		settings.Stores = daemon.OpenAsked(c, slog.New(slog.DiscardHandler)) // until the process ends
		daemon.LoadFilters(c, settings.Stores)
		if sources, err = reload.Sources(c.Reload().Lists); err != nil {
			return nil, nil, config.Auth{}, err
		}
	}
	if sources == nil {
		path = ""
	}
	ix, err := control.OpenIndex(file, path)
	if err != nil {
		return nil, nil, config.Auth{}, err
	}
	if sources != nil {
		if other := otherwise(cmd.Context(), c, ix); other != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s; the answers are those of %s\n", cmd.CommandPath(), other, term.Path(file))
		}
	}
	if stale := staleness(cmd.Context(), ix, sources); stale != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s; the answers are those of %s\n", cmd.CommandPath(), stale, term.Path(file))
	}
	live := func() *index.Index { return ix }
	// Its log and metrics are a daemon's; here the output says it all.
	checker := policy.New(live, settings, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return ix, checker, c.Auth, nil
}

// otherwise says that the daemon may answer otherwise than the index file; "" if it answers by that, or if none runs.
func otherwise(ctx context.Context, c config.Config, ix *index.Index) string {
	switch generation, err := control.Serving(ctx, c); {
	case errors.Is(err, control.ErrNoDaemon):
	case err != nil:
		return "the daemon does not say which lists it answers by: " + err.Error()
	case generation != ix.Generation():
		return "the daemon answers by another generation, " + cmp.Or(generation, "none")
	}
	return ""
}

// staleness says in what the index is not what the configuration asks for now;
// "" if it is, or if nothing was configured. A list that is as long as it was
// and older than the index is not read again.
func staleness(ctx context.Context, ix *index.Index, sources []index.Source) string {
	rows := ix.Lists()
	for i, s := range sources {
		if len(rows) != len(sources) || !rows[i].Source.Equal(s) {
			return "the lists are configured otherwise by now"
		}
		if rows[i].Guard != s.Settings.Guard.ID() {
			return "what no entry may cover is configured otherwise by now"
		}
		was := rows[i].Summary
		if info, err := os.Stat(s.Path); err == nil && info.Size() == was.Size && info.ModTime().Before(ix.Built()) {
			continue
		}
		hash, err := lists.HashFile(ctx, s.Path)
		if err != nil && !s.Optional {
			return err.Error()
		}
		if hash != was.Hash {
			return term.Path(s.Path) + " has changed since"
		}
	}
	return ""
}
