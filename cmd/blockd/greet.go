package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"blockd/index"
	"blockd/lists"
	"blockd/reload"
)

// greet tells a person at a terminal what serves and what to try. The log has
// the same facts; this is for the one who types `make run` for the first time.
func (c Config) greet(w io.Writer, smtp *smtpDoor, http *httpDoor, s reload.Status) {
	p := newPaint(w)
	var t table
	for _, l := range smtp.listeners {
		t.add("smtp", l.Addr().String(), "-> "+shownUpstream(c.SMTP.Upstream))
	}
	for _, door := range []struct{ name, where, what string }{
		{"milter", c.Milter.Listen, "smtpd_milters of Postfix, INPUT_MAIL_FILTER of Sendmail"},
		{"policy", c.Postfix.PolicyListen, "check_policy_service of Postfix"},
		{"socketmap", c.Postfix.SocketmapListen, "tables of Postfix"},
		{"tcp", c.Postfix.TCPListen, "tables of Postfix"},
	} {
		if door.where != "" {
			t.add(door.name, door.where, door.what)
		}
	}
	for _, l := range http.listeners {
		where := c.HTTP.scheme() + "://" + l.Addr().String() + "/"
		if l.Addr().Network() == "unix" {
			where = l.Addr().String()
		}
		t.add("http", where, "checks, state of the lists, metrics")
	}
	if file := c.firstToken(); file != "" {
		t.add("console", c.HTTP.scheme()+"://"+http.listeners[0].Addr().String()+"/", "wants the token in "+shownPath(file))
	}
	for _, f := range s.Files {
		what := fmt.Sprintf("%s, %s", counted(f.Summary.Entries, "entry"), f.Source.Settings.Action)
		if f.Source.Mode == index.Shadow {
			what += ", shadow"
		}
		if f.Summary.Verdict == lists.Refused {
			what = p.red("refused: " + visible(f.Summary.Why))
		}
		t.add("list", f.Source.List, shownPath(f.Source.Path)+" ("+what+")")
	}
	fmt.Fprintln(w, p.bold("blockd filters mail")+p.faint(", the log follows; Ctrl-C ends it"))
	for _, line := range t.lines() {
		fmt.Fprintln(w, "  "+line)
	}
	if listed := listedSender(s.Files); listed != "" && c.SMTP.Listen != "" {
		fmt.Fprintf(w, "%s\n  curl -sv smtp://%s --mail-from %s --mail-rcpt you@here.example --crlf -T FILE\n",
			p.bold("try, from another terminal"), smtp.listeners[0].Addr(), listed)
		if len(http.listeners) > 0 && c.HTTP.Listen != "" {
			fmt.Fprintf(w, "  curl '%s://%s/v1/check?sender=%s'\n", c.HTTP.scheme(), http.listeners[0].Addr(), listed)
		}
	}
	fmt.Fprintln(w)
}

func shownUpstream(text string) string {
	if dir, ok := strings.CutPrefix(text, "maildir:"); ok {
		return "maildir:" + shownPath(dir)
	}
	return visible(text)
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
