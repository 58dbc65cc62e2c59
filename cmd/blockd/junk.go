package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/internal/term"
	"blockd/mail/addr"
	"blockd/policy/junk"
)

// exitAsk is how blockd junk ends if a guard wants to hear it once more.
const exitAsk = 3

func newJunk() *cobra.Command {
	var path, recipient, life string
	var undo, ham, force, asJSON bool
	cmd := &cobra.Command{
		Use:   "junk [-c config.toml] --recipient USER [--for 30d] [--undo | --ham] [--force] [--json]",
		Short: "block, for one user, the sender of a message on standard input",
		Long: `Make the sender of the message on standard input an entry of the user's own, with an
end: for the mail server to call when the user moves a message to Junk. With --undo or
--ham, when it is moved back, that entry goes; one that the user has made himself stays.

The sender is that of Return-Path, which the delivering server has written, never From:
that is the sender's own words. Nobody is blocked yet, and the command ends with 3, if the
sender is of the user's own domain, or of a protected one such as a big mailbox provider,
or if users of this server write to the sender or to the mailing list. --force says that
it is meant.

Several users who agree make a proposal for everybody: see blockd proposals.

Ends with 0 when it is done, 1 with a sentence when nothing is blocked, 3 with a sentence
when it wants --force, 2 on an error.`,
		Example: `  blockd junk --recipient anna@here.example <mail
  blockd junk --recipient anna@here.example --undo <mail`,
		Args: noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			owner, err := addr.ParseOwner(recipient)
			if err != nil || owner.Kind != addr.Address {
				return usagef("want --recipient, the mailbox of the user")
			}
			if life != "" {
				if _, err := live.ParseLife(life); err != nil {
					return usagef("--for: want how long, such as 30d or 12h, have %q", life)
				}
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			mail, err := begin(cmd.InOrStdin(), junk.MaxHeader)
			if err != nil {
				return err
			}
			q := junk.Question{User: control.Untagged(c, owner), Undo: undo || ham, Force: force}
			if q.Author = q.User.Text; len(q.Author) > live.MaxAuthor {
				q.Author = "user"
			}
			a, alone, err := control.Move(cmd.Context(), c, q, life, header(mail))
			if err != nil {
				return err
			}
			return printMoved(cmd, a, alone, asJSON)
		}),
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&recipient, "recipient", "", "mailbox of the `USER` who has moved the message")
	cmd.Flags().StringVar(&life, "for", "", "how long the sender is blocked, a `TIME` such as 30d; junk.for if it is not said")
	cmd.Flags().BoolVar(&undo, "undo", false, "the message was moved back: the entry goes")
	cmd.Flags().BoolVar(&ham, "ham", false, "the same")
	cmd.Flags().BoolVar(&force, "force", false, "the user was asked, and means it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return cmd
}

// begin reads the beginning of a message, and passes over the rest: whoever pipes it shall not see a closed pipe.
func begin(in io.Reader, max int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, max))
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	return text, err
}

// header cuts a message after its header, of which alone anything is read.
func header(mail []byte) []byte {
	for _, end := range []string{"\r\n\r\n", "\n\n"} {
		if at := bytes.Index(mail, []byte(end)); at >= 0 {
			return mail[:at+len(end)]
		}
	}
	return mail
}

func printMoved(cmd *cobra.Command, a httpapi.JunkAnswer, alone, asJSON bool) (err error) {
	out := cmd.OutOrStdout()
	changed := httpapi.ChangeResults{Results: []httpapi.ChangeResult{{Result: a.Result, Entry: a.Entry, Was: a.Was}}}
	code := 0
	switch a.Result {
	case httpapi.JunkAsk:
		code = exitAsk
	case httpapi.JunkKept, httpapi.JunkRefused:
		code = exitFault
	}
	switch {
	case asJSON:
		err = term.JSON(out, a)
	case a.Result == httpapi.JunkAsk:
		_, err = fmt.Fprintf(out, "%s; if that is meant, say --force\n", term.Visible(a.Reason))
	case code != 0:
		_, err = fmt.Fprintln(out, term.Visible(a.Reason))
	case a.Entry == nil && a.Was == nil:
		_, err = fmt.Fprintf(out, "%s was not blocked\n", term.Visible(a.Sender))
	default:
		err = printChanges(out, changed, nil, "")
		if alone {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: no daemon runs; it is in the file, and acts when one starts\n", cmd.CommandPath())
		}
	}
	if err == nil && code != 0 {
		return answer(code)
	}
	return err
}

func newComplaints() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "complaints [-c config.toml] [--json] [FILE|FOLDER]...",
		Short: "take complaints of users and servers (ARF)",
		Long: `Read complaints in the Abuse Reporting Format (RFC 5965), from standard input, files, and the
files of folders, such as new and cur of a Maildir. Each counts for the user that it names
(Original-Rcpt-To) as a message in Junk does: several users make a proposal for everybody
(blockd proposals). Nothing is blocked by it.

A complaint counts only if the history has an accepted message from that sender
(Original-Mail-From, or the Return-Path of the message in it) by that client (Source-IP) to
that user: what it says beside that is the word of whoever has written it.

Ends with 0 if all of them count, 1 with a line for each that does not, 2 if one could not
be read or handed in; that one is named, and the others are taken all the same.`,
		Example: `  blockd complaints <complaint
  blockd complaints /var/mail/abuse/new`,
		RunE: answering(func(cmd *cobra.Command, names []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			fault, failed, all := false, 0, 0
			var unsaid error // of standard output
			take := func(name string, in io.Reader, err error) bool {
				var a httpapi.ComplaintAnswer
				var text []byte
				if err == nil {
					text, err = begin(in, junk.MaxComplaint)
				}
				if err == nil {
					a, err = control.Complain(cmd.Context(), c, text, userName())
				}
				if all++; err != nil {
					failed++
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: %s\n", cmd.CommandPath(), term.Path(name), term.Visible(err.Error()))
					return cmd.Context().Err() == nil
				}
				fault = fault || len(a.Users) == 0
				unsaid = printComplaint(cmd.OutOrStdout(), name, a, asJSON)
				return unsaid == nil
			}
			if len(names) == 0 {
				take("standard input", cmd.InOrStdin(), nil)
			}
			for _, name := range names {
				if !eachFile(name, take) {
					break
				}
			}
			switch {
			case unsaid != nil:
				return unsaid
			case failed > 0:
				return fmt.Errorf("%d of %s could not be handed in", failed, term.Counted(all, "complaint"))
			case fault:
				return answer(exitFault)
			}
			return nil
		}),
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a complaint")
	return cmd
}

func printComplaint(w io.Writer, name string, a httpapi.ComplaintAnswer, asJSON bool) error {
	if asJSON {
		return term.JSONLines(w, []struct {
			File string `json:"file"`
			httpapi.ComplaintAnswer
		}{{name, a}})
	}
	if len(a.Users) == 0 {
		_, err := fmt.Fprintf(w, "%s: %s: %s\n", term.Path(name), a.Result, term.Visible(a.Reason))
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %s: %s, by %s\n", term.Path(name), a.Result, term.Visible(a.Sender), term.Visible(strings.Join(a.Users, ", ")))
	return err
}

// eachFile takes a file; or the files of a folder by name, and those of its folders new and cur if it is a Maildir. take gets what
// cannot be opened too, with its error, and is false to end.
func eachFile(name string, take func(name string, in io.Reader, err error) bool) bool {
	info, err := os.Stat(name)
	if err != nil {
		return take(name, nil, err)
	}
	if !info.IsDir() {
		f, err := os.Open(name)
		if err != nil {
			return take(name, nil, err)
		}
		defer f.Close()
		return take(name, f, nil)
	}
	entries, err := os.ReadDir(name)
	if err != nil && !take(name, nil, err) {
		return false
	}
	for _, e := range entries {
		inside := e.IsDir() && (e.Name() == "new" || e.Name() == "cur")
		if (e.Type().IsRegular() && e.Name()[0] != '.' || inside) && !eachFile(filepath.Join(name, e.Name()), take) {
			return false
		}
	}
	return true
}
