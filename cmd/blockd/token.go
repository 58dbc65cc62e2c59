package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/mail/addr"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token [-c config.toml] new|list|rotate|revoke",
		Short: "make and revoke tokens for the HTTP door",
		Long: `Make tokens for who asks at [http] listen. Their hashes are kept in the file that
http.tokens names; the daemon sees at once what changes there.`,
		Example: `  blockd token new --name helpdesk --write
  blockd token list
  blockd token rotate helpdesk
  blockd token revoke helpdesk`,
		RunE: func(*cobra.Command, []string) error { return usagef("want new, list, rotate or revoke") },
	}
	for _, sub := range []*cobra.Command{newTokenNew(), newTokenList(), newTokenRotate(), newTokenRevoke()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

// withTokens gives a command -c, and runs it with the file that http.tokens names.
func withTokens(cmd *cobra.Command, run func(cmd *cobra.Command, c config.Config, args []string) error) *cobra.Command {
	var path string
	configFlag(cmd, &path)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := config.Load(path)
		if err == nil && c.HTTP.Tokens == "" && c.Live.Shared == "" {
			err = errors.New(`http.tokens names no file; set it, such as tokens = "tokens"`)
		}
		if err != nil {
			return err
		}
		return run(cmd, c, args)
	}
	return cmd
}

func newTokenNew() *cobra.Command {
	var name string
	var owners []string
	var write, admin, report, local bool
	cmd := withTokens(&cobra.Command{
		Use:   "new [-c config.toml] --name NAME [--owner OWNER]... [--write | --admin | --report] [--local]",
		Short: "make a token, and print it once",
		Long: `Make a token with the scope read, or write with --write, and print it. With --admin it
may also make and revoke tokens, and sign others out of the console. With --report
it may tell the publisher how a node is, and nothing else (fleet.report). It is kept
nowhere: the file has its hash alone. Where machines share their live entries
(live.shared) the token is valid on all of them, unless --local says otherwise.

With --owner the token is bound to a mailbox, a domain with its mailboxes, or several of
them: it sees and changes their own entries (/v1/owners/OWNER/entries), may check mail to
them, and nothing else. A webmail has one for each mailbox, a tenant's panel one for its
domains.`,
		Example: `  blockd token new --name helpdesk --write
  blockd token new --name boss --admin
  blockd token new --name panel-7 --owner here.example --owner there.example --write`,
		Args: noArgs,
	}, func(cmd *cobra.Command, c config.Config, _ []string) error {
		if name == "" {
			return usagef("want --name: it stands beside what is done with the token")
		}
		scope := httpapi.Read
		switch {
		case write && report:
			return usagef("--write goes without --report")
		case report && len(owners) > 0:
			return usagef("--report goes without --owner")
		case admin && (write || report || len(owners) > 0):
			return usagef("--admin goes without --write, --report and --owner")
		case admin:
			scope = httpapi.Admin
		case write:
			scope = httpapi.Write
		case report:
			scope = httpapi.Reporting
		}
		var bound []addr.Key
		for _, text := range owners {
			owner, err := addr.ParseOwner(text)
			if err != nil {
				return usagef("--owner: %v", err)
			}
			bound = append(bound, owner)
		}
		var token string
		var err error
		if ofFleet(c, local) {
			token, err = control.NewFleetToken(cmd.Context(), c, name, scope, userName(), bound...)
		} else if err = wantTokenFile(c); err == nil {
			token, err = httpapi.NewToken(c.HTTP.Tokens, name, scope, c.Journal(), userName(), bound...)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: token %s may %s; it is shown this once:\n", cmd.CommandPath(), name, scope)
		_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
		return err
	})
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of who is to have it")
	cmd.Flags().StringArrayVar(&owners, "owner", nil, "`OWNER`, a mailbox or a domain, that it is bound to; may be repeated")
	cmd.Flags().BoolVar(&write, "write", false, "it may add and remove entries")
	cmd.Flags().BoolVar(&report, "report", false, "it may tell how a node is, and nothing else")
	cmd.Flags().BoolVar(&admin, "admin", false, "it may do that, and say who may: tokens and sessions")
	localFlag(cmd, &local)
	return cmd
}

// ofFleet reports whether a command is about the tokens of all machines that share them.
func ofFleet(c config.Config, local bool) bool { return c.Live.Shared != "" && !local }

func wantTokenFile(c config.Config) error {
	if c.HTTP.Tokens == "" {
		return errors.New(`http.tokens names no file; set it, such as tokens = "tokens"`)
	}
	return nil
}

func localFlag(cmd *cobra.Command, local *bool) {
	cmd.Flags().BoolVar(local, "local", false, "of this machine alone, where live.shared has the others share theirs")
}

func newTokenList() *cobra.Command {
	return withTokens(&cobra.Command{
		Use:   "list [-c config.toml]",
		Short: "show who has a token",
		Args:  noArgs,
	}, func(cmd *cobra.Command, c config.Config, _ []string) error {
		var all []httpapi.Token
		var err error
		if c.HTTP.Tokens != "" {
			all, err = httpapi.ReadTokens(c.HTTP.Tokens)
		}
		if err != nil {
			return err
		}
		own := len(all)
		fleet, err := control.FleetTokens(c)
		if err != nil {
			return err
		}
		all = append(all, fleet...)
		if len(all) == 0 {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "no tokens")
			return err
		}
		p := term.NewPaint(cmd.OutOrStdout())
		var t term.Table
		head := []string{p.Faint("name"), p.Faint("scope"), p.Faint("made"), p.Faint("owners")}
		if c.Live.Shared != "" {
			head = append(head, p.Faint("where"))
		}
		t.Add(head...)
		for i, token := range all {
			owners := "-"
			for i, owner := range token.Owners {
				if i == 0 {
					owners = term.Visible(owner.Text)
				} else {
					owners += " " + term.Visible(owner.Text)
				}
			}
			row := []string{token.Name, token.Scope.String(), term.Visible(token.Made), owners}
			if c.Live.Shared != "" {
				row = append(row, map[bool]string{true: "this machine", false: "fleet"}[i < own])
			}
			t.Add(row...)
		}
		return t.Print(cmd.OutOrStdout())
	})
}

func newTokenRotate() *cobra.Command {
	var path string
	var local bool
	cmd := &cobra.Command{
		Use:   "rotate [-c config.toml] [--local] [NAME]",
		Short: "make another token for a name, and the one before worthless, at once",
		Long: `Make another token for a name, with what it may, and print it. The one before is refused
from then on, and browsers that have signed in with it are signed out. Without NAME it is
the token that the daemon has made at its first start: it stands in its file, and is not
printed.`,
		Example: `  blockd token rotate helpdesk
  blockd token rotate`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("want one NAME, or none for the token of the first start")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				file := c.FirstToken()
				if file == "" {
					return errors.New("this configuration has no token of a first start (http.token_file); want the NAME of one of http.tokens")
				}
				if err := httpapi.RotateFirst(file, c.Journal(), userName()); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s: another token is in %s\n", cmd.CommandPath(), term.Path(file))
				return err
			}
			var token string
			if ofFleet(c, local) {
				token, err = control.RotateFleetToken(cmd.Context(), c, args[0], userName())
			} else if err = wantTokenFile(c); err == nil {
				token, err = httpapi.RotateToken(c.HTTP.Tokens, args[0], c.Journal(), userName())
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: another token for %s; it is shown this once:\n", cmd.CommandPath(), args[0])
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	configFlag(cmd, &path)
	localFlag(cmd, &local)
	return cmd
}

func newTokenRevoke() *cobra.Command {
	var local bool
	cmd := withTokens(&cobra.Command{
		Use:   "revoke [-c config.toml] [--local] NAME",
		Short: "make a token worthless, at once",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one NAME")
			}
			return nil
		},
	}, func(cmd *cobra.Command, c config.Config, args []string) error {
		if ofFleet(c, local) {
			found, err := control.RevokeFleetToken(cmd.Context(), c, args[0], userName())
			if err == nil && !found {
				err = fmt.Errorf("the fleet has no token named %q; --local is about those of this machine alone", args[0])
			}
			return err
		}
		if err := wantTokenFile(c); err != nil {
			return err
		}
		file := c.HTTP.Tokens
		found, err := httpapi.RevokeToken(file, args[0], c.Journal(), userName())
		if err == nil && !found {
			err = fmt.Errorf("%s has no token named %q", term.Path(file), args[0])
		}
		return err
	})
	localFlag(cmd, &local)
	return cmd
}
