package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/internal/term"
	"blockd/policy/printout"
)

// daemonMail has a message explained by the daemon, which looks for its proofs.
func daemonMail(ctx context.Context, d *control.Daemon, flags checked, mail printout.Mail) (text []byte, blocked bool, err error) {
	c, err := config.Load(flags.path)
	if err != nil {
		return nil, false, err
	}
	if mail.Text, err = readMessage(mail.File, int64(c.Auth.MaxMessage)); err != nil {
		return nil, false, err
	}
	query := flags.query()
	query.Set("file", mail.File)
	if mail.Helo != "" {
		query.Set("helo", mail.Helo)
	}
	if mail.Sender != nil {
		query.Set("sender", *mail.Sender)
	}
	return d.Check(ctx, query, "message/rfc822", flags.form.JSON, mail.Text)
}

// fileMail explains a message by the index file. why is as in openToCheck.
func fileMail(cmd *cobra.Command, flags checked, why string, mail printout.Mail) (text []byte, blocked bool, err error) {
	_, checker, auth, err := openToCheck(cmd, flags.path, flags.file, why)
	if err != nil {
		return nil, false, err
	}
	resolver, err := daemon.NewResolver(auth, nil)
	if err != nil {
		return nil, false, err
	}
	if mail.Text, err = readMessage(mail.File, int64(auth.MaxMessage)); err != nil {
		return nil, false, err
	}
	asker := printout.Asker{Checker: checker, Form: flags.form}
	return asker.AskMail(cmd.Context(), nil, resolver, mail)
}

// readMessage reads a saved message with the line ends that it had under way: files
// on Unix have LF alone.
func readMessage(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: over auth.max_message, %s: its signatures would prove nothing", term.Path(path), config.Octets(most))
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")), nil
}
