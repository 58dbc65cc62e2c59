package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

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
		Args: func(_ *cobra.Command, args []string) error {
			return usagef("want new, list or revoke")
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	for _, sub := range []*cobra.Command{newTokenNew(), newTokenList(), newTokenRevoke()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

func newTokenNew() *cobra.Command {
	var path, name string
	var write bool
	cmd := &cobra.Command{
		Use:   "new [-c config.toml] --name NAME [--write]",
		Short: "make a token, and print it once",
		Long: `Make a token with the scope read, or write with --write, and print it. It is kept
nowhere: the file has its hash alone.`,
		Example: `  blockd token new --name helpdesk --write`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := tokensFile(path)
			if err != nil {
				return err
			}
			if name == "" {
				return usagef("want --name: it stands beside what is done with the token")
			}
			scope := httpapi.Read
			if write {
				scope = httpapi.Write
			}
			token, err := httpapi.NewToken(file, name, scope)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: token %s may %s; it is shown this once:\n", cmd.CommandPath(), name, scope)
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of who is to have it")
	cmd.Flags().BoolVar(&write, "write", false, "it may add and remove entries")
	return cmd
}

func newTokenList() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "list [-c config.toml]",
		Short: "show who has a token",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := tokensFile(path)
			if err != nil {
				return err
			}
			all, err := httpapi.ReadTokens(file)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "no tokens")
				return err
			}
			p := term.NewPaint(cmd.OutOrStdout())
			var t term.Table
			t.Add(p.Faint("name"), p.Faint("scope"), p.Faint("made"))
			for _, token := range all {
				t.Add(token.Name, token.Scope.String(), term.Visible(token.Made))
			}
			return t.Print(cmd.OutOrStdout())
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func newTokenRevoke() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "revoke [-c config.toml] NAME",
		Short: "make a token worthless, at once",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := tokensFile(path)
			if err != nil {
				return err
			}
			found, err := httpapi.RevokeToken(file, args[0])
			if err == nil && !found {
				err = fmt.Errorf("%s has no token named %q", term.Path(file), args[0])
			}
			return err
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// tokensFile is http.tokens of a configuration.
func tokensFile(path string) (string, error) {
	c, err := config.Load(path)
	if err != nil {
		return "", err
	}
	if c.HTTP.Tokens == "" {
		return "", errors.New(`http.tokens names no file; set it, such as tokens = "tokens"`)
	}
	return c.HTTP.Tokens, nil
}
