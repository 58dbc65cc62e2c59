package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/doctor"
	"blockd/cmd/blockd/internal/setup"
	"blockd/internal/spelling"
	"blockd/internal/term"
	"blockd/packaging"
	"blockd/sources/catalogue"
)

func newInit() *cobra.Command {
	var in beginner
	var undo bool
	cmd := &cobra.Command{
		Use:   "init [-c config.toml] [--server S] [--way W] [--list L]... [--doctor=BOOL] [--force | --undo]",
		Short: "write the first configuration, and say what the mail server needs",
		Long: `Write the first configuration, with comments, and print the lines that the mail server
needs. Four questions are asked at most: which mail server there is, how it is to ask
blockd, which lists to begin with, and whether blockd doctor is to look at it at once. An
empty answer takes what stands in brackets. A flag answers its question before it is asked.

A list is a file, or FORMAT=FILE, which counts at once; an https address or a name of blockd catalogue,
which only watch at first. Your own list, lists/senders.txt, is always there.

A configuration that is there already stays, unless it is the one of a package, untouched,
or blockd init's own; --force replaces any and keeps the old one. --undo takes back what
blockd init has done, if nobody has changed it since. No mail server is touched, and no
daemon.`,
		Example: `  sudo blockd init
  blockd init --server postfix --way milter --list disposable-domains --doctor=false
  sudo blockd init --undo`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if undo {
				if cmd.Flags().NFlag() > 1 && !(cmd.Flags().NFlag() == 2 && cmd.Flags().Changed("config")) {
					return usagef("--undo goes with -c alone")
				}
				done, err := setup.Undo(in.file)
				for _, line := range done {
					fmt.Fprintln(cmd.OutOrStdout(), line)
				}
				return err
			}
			in.out, in.answers, in.prompt = cmd.OutOrStdout(), bufio.NewReader(cmd.InOrStdin()), cmd.ErrOrStderr()
			in.asksDoctor = !cmd.Flags().Changed("doctor")
			in.asksLists = !cmd.Flags().Changed("list")
			return in.run(cmd.Context())
		},
	}
	configFlag(cmd, &in.file)
	cmd.Flags().StringVar(&in.server, "server", "", "the mail `server`: postfix, exim, sendmail, opensmtpd, other or none")
	cmd.Flags().StringVar(&in.way, "way", "", "the `way` it asks: milter, policy, front or http")
	cmd.Flags().StringArrayVar(&in.lists, "list", nil, "a `list` to begin with, besides your own: file, https address or name of the catalogue")
	cmd.Flags().BoolVar(&in.examine, "doctor", false, "look at it at once, as blockd doctor does")
	cmd.Flags().BoolVar(&in.force, "force", false, "replace a configuration that is there")
	cmd.Flags().BoolVar(&undo, "undo", false, "take back what blockd init has done")
	return cmd
}

// beginner is one run of blockd init.
type beginner struct {
	file, server, way     string
	lists                 []string
	examine, force        bool
	asksDoctor, asksLists bool // for want of a flag

	out, prompt io.Writer
	answers     *bufio.Reader
}

func (b *beginner) run(ctx context.Context) error {
	file, err := filepath.Abs(b.file)
	if err != nil {
		return err
	}
	if err := setup.MayInstall(file, packaging.Config, b.force); err != nil {
		return err // before anything is asked
	}
	server, err := b.chooseServer()
	if err != nil {
		return err
	}
	way, err := b.chooseWay(server)
	if err != nil {
		return err
	}
	text := setup.Config(server, way, filepath.Dir(file))
	text, added, err := b.addLists(ctx, file, text)
	if err != nil {
		return err
	}
	err = setup.Install(file, text, packaging.Config, packaging.Senders, b.force, func(draft string) error {
		if _, err := config.LoadToServe(draft); err != nil {
			return fmt.Errorf("%s is not written: it would not be good: %s", file, strings.ReplaceAll(err.Error(), draft, file))
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.tell(file, way, added)
	return b.look(ctx, file)
}

// choice is an answer that there is to a question.
type choice struct{ name, what string }

// ask puts a question until the answer is one that take likes. An empty answer, and the end of all
// answers, is usual.
func (b *beginner) ask(question string, choices []choice, usual string, take func(answer string) error) error {
	var t term.Table
	for _, c := range choices {
		t.Add("  "+c.name, c.what)
	}
	var wrong error
	for {
		fmt.Fprintf(b.prompt, "\n%s\n", question)
		if err := t.Print(b.prompt); err != nil {
			return err
		}
		fmt.Fprintf(b.prompt, "[%s] ", usual)
		line, err := b.answers.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		ended := err != nil
		if ended {
			fmt.Fprintln(b.prompt)
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "" && ended && wrong != nil: // nobody is there to mend it
			return wrong
		case line == "":
			line = usual
		}
		if wrong = take(line); wrong == nil || ended {
			return wrong
		}
		fmt.Fprintf(b.prompt, "%s\n", term.Visible(wrong.Error()))
	}
}

// none is the answer that adds nothing.
const none = "none"

func (b *beginner) chooseServer() (s setup.Server, err error) {
	var names []string
	var choices []choice
	for _, s := range setup.Servers() {
		names = append(names, s.Name)
		choices = append(choices, choice{s.Name, "asks by " + strings.Join(waysOf(s), " or ")})
	}
	take := func(name string) error {
		var ok bool
		if s, ok = setup.ServerNamed(name); !ok {
			return fmt.Errorf("no mail server %q%s; it is one of %s", name, spelling.Hint(name, "", names), strings.Join(names, ", "))
		}
		return nil
	}
	if b.server != "" {
		if err := take(b.server); err != nil {
			return s, usagef("--server: %s", err)
		}
		return s, nil
	}
	return s, b.ask("Which mail server do you have?", choices, setup.Installed(os.DirFS("/")).Name, take)
}

func (b *beginner) chooseWay(s setup.Server) (w setup.Way, err error) {
	names := waysOf(s)
	var choices []choice
	for _, w := range s.Ways {
		choices = append(choices, choice{w.Name, w.What})
	}
	take := func(name string) error {
		var ok bool
		if w, ok = s.Way(name); !ok {
			return fmt.Errorf("%s has no way %q%s; it is one of %s", s.Name, name, spelling.Hint(name, "", names), strings.Join(names, ", "))
		}
		return nil
	}
	if b.way != "" {
		if err := take(b.way); err != nil {
			return w, usagef("--way: %s", err)
		}
		return w, nil
	}
	if len(s.Ways) == 1 {
		return s.Ways[0], nil
	}
	return w, b.ask("How is it to ask blockd?", choices, names[0], take)
}

func waysOf(s setup.Server) (names []string) {
	for _, w := range s.Ways {
		names = append(names, w.Name)
	}
	return names
}

// addLists returns the text with the lists in it, and a line about each.
func (b *beginner) addLists(ctx context.Context, file string, text []byte) (with []byte, said []string, err error) {
	folder := filepath.Dir(file)
	copies := filepath.Join(folder, "var/subscribed")
	if folder == "/etc/blockd" {
		copies = "/var/lib/blockd/subscribed"
	}
	with = text
	take := func(words []string) error {
		with, said = text, nil
		taken := []string{"senders"}
		for _, word := range words {
			var name, about string
			if with, name, about, err = setup.AddList(ctx, with, word, folder, copies, taken, time.Now()); err != nil {
				return err
			}
			taken = append(taken, name)
			said = append(said, fmt.Sprintf("list %s: %s", name, about))
		}
		return nil
	}
	if !b.asksLists || len(b.lists) > 0 {
		return with, said, take(b.lists)
	}
	all, err := catalogue.Lists()
	if err != nil {
		return nil, nil, err
	}
	var known []choice
	for _, l := range all {
		known = append(known, choice{l.Name, l.What})
	}
	err = b.ask("Which lists, besides your own (lists/senders.txt)? Files, https addresses, or names of these:", known, none, func(answer string) error {
		if answer == none {
			answer = ""
		}
		return take(strings.Fields(answer))
	})
	return with, said, err
}

// tell says what was done and what is left to do.
func (b *beginner) tell(file string, w setup.Way, added []string) {
	fmt.Fprintf(b.out, "written: %s\nyour own list: %s\n", file, filepath.Join(filepath.Dir(file), setup.OwnListPath))
	for _, line := range added {
		fmt.Fprintln(b.out, term.Visible(line))
	}
	place, lines := w.Recipe()
	fmt.Fprintf(b.out, "\n%s%s\n", place, map[bool]string{true: ":"}[lines != ""])
	if lines != "" {
		fmt.Fprintf(b.out, "\n%s", indent(lines))
	}
	fmt.Fprintln(b.out, "\nThen:")
	installed := filepath.Dir(file) == "/etc/blockd"
	if !installed {
		fmt.Fprintf(b.out, "    blockd serve -c %s\n", b.file)
	} else {
		opens, shuts := w.Units()
		for _, unit := range opens {
			fmt.Fprintf(b.out, "    systemctl enable --now %s\n", unit)
		}
		fmt.Fprintf(b.out, "    systemctl disable --now %s\n    systemctl reload-or-restart blockd\n", strings.Join(shuts, " "))
	}
	fmt.Fprintf(b.out, "    blockd doctor -c %s\n", b.file)
}

// look is the doctor's visit, if it is wanted. What it finds is no fault of init's.
func (b *beginner) look(ctx context.Context, file string) error {
	if b.asksDoctor {
		err := b.ask("Look at it now, as blockd doctor does?", []choice{{"yes", "in ten seconds at most"}, {"no", "later: blockd doctor"}}, "no", func(answer string) error {
			switch strings.ToLower(answer) {
			case "y", "yes":
				b.examine = true
			case "n", "no":
			default:
				return fmt.Errorf("it is yes or no")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if !b.examine {
		return nil
	}
	fmt.Fprintln(b.out)
	return printFindings(b.out, doctor.Examine(ctx, file))
}

// indent moves lines to the right, so that they are seen to be for another file.
func indent(lines string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", "\n    ") + "\n"
}
