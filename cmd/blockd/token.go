package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"blockd/addr"
	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/internal/term"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token [-c config.toml] new|list|revoke",
		Short: "make and revoke tokens for the HTTP door",
		Long: `Make tokens for who asks at [http] listen. Their hashes are kept in the file that
http.tokens names; the daemon sees at once what changes there.`,
		Example: `  blockd token new --name helpdesk --write
  blockd token list
  blockd token revoke helpdesk`,
		RunE: func(*cobra.Command, []string) error { return usagef("want new, list or revoke") },
	}
	for _, sub := range []*cobra.Command{newTokenNew(), newTokenList(), newTokenRevoke()} {
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
		if err == nil && c.HTTP.Tokens == "" {
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
	var write bool
	cmd := withTokens(&cobra.Command{
		Use:   "new [-c config.toml] --name NAME [--owner OWNER]... [--write]",
		Short: "make a token, and print it once",
		Long: `Make a token with the scope read, or write with --write, and print it. It is kept
nowhere: the file has its hash alone.

With --owner the token is bound to a mailbox, a domain with its mailboxes, or several of
them: it sees and changes their own entries (/v1/owners/OWNER/entries), may check mail to
them, and nothing else. A webmail has one for each mailbox, a tenant's panel one for its
domains.`,
		Example: `  blockd token new --name helpdesk --write
  blockd token new --name panel-7 --owner here.example --owner there.example --write`,
		Args: noArgs,
	}, func(cmd *cobra.Command, c config.Config, _ []string) error {
		if name == "" {
			return usagef("want --name: it stands beside what is done with the token")
		}
		scope := httpapi.Read
		if write {
			scope = httpapi.Write
		}
		var bound []addr.Key
		for _, text := range owners {
			owner, err := addr.ParseOwner(text)
			if err != nil {
				return usagef("--owner: %v", err)
			}
			bound = append(bound, owner)
		}
		token, err := httpapi.NewToken(c.HTTP.Tokens, name, scope, c.Journal(), userName(), bound...)
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
	return cmd
}

func newTokenList() *cobra.Command {
	return withTokens(&cobra.Command{
		Use:   "list [-c config.toml]",
		Short: "show who has a token",
		Args:  noArgs,
	}, func(cmd *cobra.Command, c config.Config, _ []string) error {
		all, err := httpapi.ReadTokens(c.HTTP.Tokens)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "no tokens")
			return err
		}
		p := term.NewPaint(cmd.OutOrStdout())
		var t term.Table
		t.Add(p.Faint("name"), p.Faint("scope"), p.Faint("made"), p.Faint("owners"))
		for _, token := range all {
			owners := "-"
			for i, owner := range token.Owners {
				if i == 0 {
					owners = term.Visible(owner.Text)
				} else {
					owners += " " + term.Visible(owner.Text)
				}
			}
			t.Add(token.Name, token.Scope.String(), term.Visible(token.Made), owners)
		}
		return t.Print(cmd.OutOrStdout())
	})
}

func newTokenRevoke() *cobra.Command {
	return withTokens(&cobra.Command{
		Use:   "revoke [-c config.toml] NAME",
		Short: "make a token worthless, at once",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one NAME")
			}
			return nil
		},
	}, func(_ *cobra.Command, c config.Config, args []string) error {
		file := c.HTTP.Tokens
		found, err := httpapi.RevokeToken(file, args[0], c.Journal(), userName())
		if err == nil && !found {
			err = fmt.Errorf("%s has no token named %q", term.Path(file), args[0])
		}
		return err
	})
}
