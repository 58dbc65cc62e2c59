package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/index"
	"blockd/internal/term"
	"blockd/lists"
)

func newServe() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve [-c config.toml]",
		Short: "filter mail by the lists",
		Long: `Filter mail: refuse listed senders, pass everything else on to the next server.
A list file that changes is taken up by itself, without a session noticing.

SIGTERM or SIGINT ends it: transactions under way may finish; a second signal ends
it at once. SIGHUP, as blockd reload, reads the configuration
and all lists now, and asks the servers of remote ones. SIGUSR2 starts the program anew beside this process: it takes over
all sockets, and this one ends its sessions. SIGHUP does so too if the program was replaced. The log goes to standard error.`,
		Example: `  blockd serve
  blockd serve -c /etc/blockd/config.toml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.LoadToServe(path)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, func() { time.AfterFunc(signalPair, stop) })
			return daemon.Run(ctx, path, c, cmd.ErrOrStderr(), []string{builderName}, program(), func(s daemon.Started) {
				if out := cmd.OutOrStdout(); term.IsTerminal(out) {
					greet(out, c, s)
				}
			})
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// program is this program at the path by which it was started, where a package puts a newer one. What /proc/self/exe
// names is the old one, even if it is deleted.
func program() daemon.Program {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		path = "" // the daemon says so when it is asked to upgrade
	}
	return daemon.Program{Path: path, Args: os.Args[1:]}
}

// signalPair is how long further signals count as the first: timeout(1), make
// and others signal a process and then its group. Later ones find their default,
// which ends the process at once.
const signalPair = 500 * time.Millisecond

// greet tells a person at a terminal what serves and what to try. The log has
// the same facts; this is for the one who types `make run` for the first time.
func greet(w io.Writer, c config.Config, s daemon.Started) {
	p := term.NewPaint(w)
	var t term.Table
	for _, l := range s.SMTP {
		t.Add("smtp", l.Addr().String(), "-> "+shownUpstream(c.SMTP.Upstream))
	}
	for _, door := range []struct{ name, where, what string }{
		{"milter", c.Milter.Listen, "smtpd_milters of Postfix, INPUT_MAIL_FILTER of Sendmail"},
		{"policy", c.Postfix.PolicyListen, "check_policy_service of Postfix"},
		{"socketmap", c.Postfix.SocketmapListen, "tables of Postfix"},
		{"tcp", c.Postfix.TCPListen, "tables of Postfix"},
		{"dns", c.DNS.Listen, "lists by DNS"},
		{"resp", c.RESP.Listen, "programs that speak the protocol of Redis"},
	} {
		if door.where != "" {
			t.Add(door.name, door.where, door.what)
		}
	}
	for _, l := range s.HTTP {
		where := c.HTTP.Scheme() + "://" + l.Addr().String() + "/"
		if l.Addr().Network() == "unix" {
			where = l.Addr().String()
		}
		t.Add("http", where, "checks, state of the lists, metrics")
	}
	if file := c.FirstToken(); file != "" {
		t.Add("console", c.HTTP.Scheme()+"://"+s.HTTP[0].Addr().String()+"/", "wants the token in "+term.Path(file))
	}
	for _, f := range s.Lists.Files {
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
	if listed := listedSender(s.Lists.Files); listed != "" && c.SMTP.Listen != "" {
		fmt.Fprintf(w, "%s\n  curl -sv smtp://%s --mail-from %s --mail-rcpt you@here.example --crlf -T FILE\n",
			p.Bold("try, from another terminal"), s.SMTP[0].Addr(), listed)
		if len(s.HTTP) > 0 && c.HTTP.Listen != "" {
			fmt.Fprintf(w, "  curl '%s://%s/v1/check?sender=%s'\n", c.HTTP.Scheme(), s.HTTP[0].Addr(), listed)
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
			if it.Action != lists.Block || !term.PlainWord(it.Key.Text) {
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
