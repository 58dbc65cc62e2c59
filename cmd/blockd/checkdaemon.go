package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/policy/printout"
	"blockd/reload"
)

// daemonAsker asks a daemon.
type daemonAsker struct {
	ctx    context.Context
	daemon *control.Daemon
	flags  checked
}

// Ask asks as many texts at once as a request may have.
func (a daemonAsker) Ask(dst []byte, texts []string) (answers []byte, blocked bool, err error) {
	query := a.flags.query()
	if len(texts) == 1 { // which may have line ends in it
		query.Set("whole", "1")
	}
	for some := range slices.Chunk(texts, httpapi.MaxTexts) {
		body := some[0]
		if len(texts) > 1 {
			body = strings.Join(some, "\r\n") + "\r\n" // of a line that ends with CR no more is cut off than this
		}
		text, any, err := a.daemon.Check(a.ctx, query, "text/plain", a.flags.form.JSON, []byte(body))
		dst, blocked = append(dst, text...), blocked || any
		if err != nil {
			return dst, blocked, err
		}
	}
	return dst, blocked, nil
}

// query are the flags as the daemon takes them.
func (f checked) query() url.Values {
	query := url.Values{}
	if f.client.IsValid() {
		query.Set("client", f.client.String())
	}
	if f.recipient != "" {
		query.Set("recipient", f.recipient)
	}
	if f.form.Explain {
		query.Set("explain", "1")
	}
	if f.form.Paint.On() {
		query.Set("paint", "1")
	}
	return query
}

// findToCheck returns the daemon that check asks; nil if that is the file, and why if nobody has asked for that. Where the
// daemon serves otherwise than the files have it, standard error says so.
func findToCheck(cmd *cobra.Command, flags checked) (d *control.Daemon, why string, err error) {
	if flags.alone {
		return nil, "", nil
	}
	c, err := config.Load(flags.path)
	if err != nil {
		return nil, "", err
	}
	d, err = control.FindDaemon(cmd.Context(), c)
	switch {
	case err != nil && cmd.Context().Err() != nil:
		return nil, "", cmd.Context().Err()
	case err != nil:
		return nil, err.Error(), nil
	}
	var other string
	switch {
	case d.Index != c.Index.Path:
		other = fmt.Sprintf("it serves another index, %s", term.Path(d.Index))
	case d.Configuration != c.Digest():
		other = fmt.Sprintf("it serves another configuration than %s, which it has not taken up", term.Path(flags.path))
	default:
		other = behind(cmd.Context(), c, d)
	}
	tellStandings(cmd, c)
	if other != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s; the answers are those of the daemon\n", cmd.CommandPath(), other)
	}
	return d, "", nil
}

// behind says in what the daemon serves otherwise than the files have it now; "" if it does not.
func behind(ctx context.Context, c config.Config, d *control.Daemon) string {
	ix, err := reload.OpenIndex(c.Index.Path)
	if err != nil {
		return "" // it need not be readable for who asks
	}
	if ix.Generation() != d.Generation {
		return fmt.Sprintf("it serves generation %s, and the file %s is another", cmp.Or(term.Visible(d.Generation), "none"), term.Path(c.Index.Path))
	}
	store := c.Kept()
	pins, err := store.Pins()
	if err != nil {
		return "" // it need not be readable for who asks
	}
	sources, err := reload.PinnedSources(c.Reload().Lists, pins, store)
	if err != nil {
		return ""
	}
	return staleness(ctx, ix, sources, pins)
}

// checkMessage explains the decision about one saved message.
func checkMessage(cmd *cobra.Command, flags checked, mail printout.Mail) error {
	daemon, why, err := findToCheck(cmd, flags)
	if err != nil {
		return err
	}
	var text []byte
	var blocked bool
	if daemon != nil {
		text, blocked, err = daemonMail(cmd.Context(), daemon, flags, mail)
	} else {
		text, blocked, err = fileMail(cmd, flags, why, mail)
	}
	if _, writeErr := cmd.OutOrStdout().Write(text); cmp.Or(err, writeErr) != nil {
		return cmp.Or(err, writeErr)
	}
	if blocked {
		return nil
	}
	return noneBlocked
}
