package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"blockd/internal/config"
	"blockd/internal/spelling"
	"blockd/internal/term"
	"blockd/reload"
)

// lintHeld shows the entries that are held back, of some lists of a configuration or of
// all. That there are some is no fault of a list.
func lintHeld(w io.Writer, path string, names []string, asJSON bool) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	var known []string
	for _, l := range c.Reload().Lists {
		known = append(known, l.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return usagef("--held: no list %q%s", name, spelling.Hint(name, "", known))
		}
	}
	held, err := reload.Held(c.Index.Path)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		held = slices.DeleteFunc(held, func(e reload.HeldEntry) bool { return !slices.Contains(names, e.List) })
	}
	if asJSON {
		return heldJSON(w, held)
	}
	if len(held) == 0 {
		_, err := fmt.Fprintln(w, "nothing is held back")
		return err
	}
	var t term.Table
	t.Add("list", "file", "line", "entry", "scope", "senders", "such as", "since")
	for _, e := range held {
		t.Add(term.Visible(e.List), term.Path(e.File), fmt.Sprint(e.Line), term.Visible(e.Name), e.Scope.String(),
			term.Grouped(e.Senders), term.Visible(e.Example), term.Moment(e.Since))
	}
	return t.Print(w, 2, 5)
}

// heldJSON prints an object a line. docs/lists.md, section 9, fixes its form.
func heldJSON(w io.Writer, held []reload.HeldEntry) error {
	for _, e := range held {
		if err := term.JSON(w, struct {
			List    string    `json:"list"`
			File    string    `json:"file"`
			Line    int       `json:"line"`
			Kind    string    `json:"kind"`
			Key     string    `json:"key"`
			Scope   string    `json:"scope"`
			Senders int       `json:"senders"`
			Example string    `json:"example"`
			Since   time.Time `json:"since"`
		}{e.List, e.File, e.Line, e.Kind.String(), e.Name, e.Scope.String(), e.Senders, e.Example, e.Since}); err != nil {
			return err
		}
	}
	return nil
}
