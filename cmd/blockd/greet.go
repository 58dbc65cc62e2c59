package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"blockd/index"
	"blockd/internal/config"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/reload"
)

// greet tells a person at a terminal what serves and what to try. The log has
// the same facts; this is for the one who types `make run` for the first time.
func greet(w io.Writer, c config.Config, smtp *smtpDoor, http *httpDoor, s reload.Status) {
	p := term.NewPaint(w)
	var t term.Table
	for _, l := range smtp.listeners {
		t.Add("smtp", l.Addr().String(), "-> "+shownUpstream(c.SMTP.Upstream))
	}
	for _, door := range []struct{ name, where, what string }{
		{"milter", c.Milter.Listen, "smtpd_milters of Postfix, INPUT_MAIL_FILTER of Sendmail"},
		{"policy", c.Postfix.PolicyListen, "check_policy_service of Postfix"},
		{"socketmap", c.Postfix.SocketmapListen, "tables of Postfix"},
		{"tcp", c.Postfix.TCPListen, "tables of Postfix"},
	} {
		if door.where != "" {
			t.Add(door.name, door.where, door.what)
		}
	}
	for _, l := range http.listeners {
		where := c.HTTP.Scheme() + "://" + l.Addr().String() + "/"
		if l.Addr().Network() == "unix" {
			where = l.Addr().String()
		}
		t.Add("http", where, "checks, state of the lists, metrics")
	}
	if file := c.FirstToken(); file != "" {
		t.Add("console", c.HTTP.Scheme()+"://"+http.listeners[0].Addr().String()+"/", "wants the token in "+term.Path(file))
	}
	for _, f := range s.Files {
		what := fmt.Sprintf("%s, %s", term.Counted(f.Summary.Entries, "entry"), f.Source.Settings.Action)
		if f.Source.Mode == index.Shadow {
			what += ", shadow"
		}
		if f.Summary.Verdict == lists.Refused {
			what = p.Red("refused: " + term.Visible(f.Summary.Why))
		}
		t.Add("list", f.Source.List, term.Path(f.Source.Path)+" ("+what+")")
	}
	fmt.Fprintln(w, p.Bold("blockd filters mail")+p.Faint(", the log follows; Ctrl-C ends it"))
	for _, line := range t.Lines() {
		fmt.Fprintln(w, "  "+line)
	}
	if listed := listedSender(s.Files); listed != "" && c.SMTP.Listen != "" {
		fmt.Fprintf(w, "%s\n  curl -sv smtp://%s --mail-from %s --mail-rcpt you@here.example --crlf -T FILE\n",
			p.Bold("try, from another terminal"), smtp.listeners[0].Addr(), listed)
		if len(http.listeners) > 0 && c.HTTP.Listen != "" {
			fmt.Fprintf(w, "  curl '%s://%s/v1/check?sender=%s'\n", c.HTTP.Scheme(), http.listeners[0].Addr(), listed)
		}
	}
	fmt.Fprintln(w)
}

func shownUpstream(text string) string {
	if dir, ok := strings.CutPrefix(text, "maildir:"); ok {
		return "maildir:" + term.Path(dir)
	}
	return term.Visible(text)
}

// listedSender returns some sender that a list blocks, for a trial; "" if none
// can be had.
func listedSender(files []index.ListInfo) string {
	found := errors.New("found")
	sender := ""
	for _, f := range files {
		if f.Source.Mode == index.Shadow || f.Source.Settings.Action != lists.Block {
			continue
		}
		// The file may be gone, or another one by now; then there is no example.
		_, _ = lists.ReadFile(context.Background(), f.Source.Path, f.Source.Settings, func(it *lists.Item) error {
			if it.Action != lists.Block || !plainName(it.Key.Text) {
				return nil
			}
			switch {
			case it.Kind == lists.Addr && it.Scope == lists.Exact:
				sender = strings.Clone(it.Key.Text)
			case it.Kind == lists.Domain && it.Scope != lists.Sub:
				sender = "someone@" + it.Key.Text
			default:
				return nil
			}
			return found
		})
		if sender != "" {
			return sender
		}
	}
	return ""
}

// plainName reports a text that a shell takes as it is.
func plainName(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r == '@' || r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z')
	})
}
