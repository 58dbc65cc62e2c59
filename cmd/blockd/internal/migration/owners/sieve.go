package owners

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration"
	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
)

// Sieve imports the scripts below a folder (*.sieve), of which rules that drop the mail of a named sender become
// entries. Everything else is named as not taken.
func Sieve(ctx context.Context, folder string, o Options) (*migration.Result, error) {
	r := begin("Sieve", folder, o)
	err := r.walk(ctx, folder, func(name string) bool { return strings.HasSuffix(name, ".sieve") }, r.sieve)
	if err != nil {
		return nil, err
	}
	return r.end()
}

// sieve reads one script.
func (r *reading) sieve(path, owner string, data []byte) error {
	commands, err := parseSieve(string(data))
	if err != nil {
		return r.lose(migration.Place{File: path}, "the script", "", "%s", err)
	}
	earlier := 0 // the line of a rule that may have decided before
	for i, c := range commands {
		place := migration.Place{File: path, Line: c.line}
		if c.name == "require" {
			continue
		}
		keys, scope, author, why := c.drops()
		follows := i+1 < len(commands) && (commands[i+1].name == "elsif" || commands[i+1].name == "else")
		switch {
		case why == "" && earlier > 0:
			why = fmt.Sprintf("the rule of line %d may keep such mail before", earlier)
		case why == "" && follows && c.name != "if":
			why = "it is part of a chain"
		}
		if why != "" {
			if err := r.lose(place, c.shown(), "", "%s", why); err != nil {
				return err
			}
			if c.decides() && earlier == 0 {
				earlier = c.line
			}
			continue
		}
		for _, key := range keys {
			f, err := r.find(place, c.shown(), "drop mail from "+original.Shown(key))
			if err != nil {
				return err
			}
			text, named := key, key // as an entry, and as the test has it
			switch {
			case scope == lists.Local:
				text = key + "@"
			case !strings.Contains(key, "@"):
				text = "@" + key
				named = text
			}
			it, err := lists.ParseEntry(text, lists.Settings{})
			if e, is := errors.AsType[*lists.EntryError](err); is {
				f.Lose("%s: %s", e.Class, e.Message)
				continue
			} else if err != nil {
				return err
			}
			m := meaning{Finding: f, text: named, is: asSetting, author: author, fate: migration.Dropped}
			if slices.ContainsFunc(c.commands, func(c command) bool { return c.name != "discard" && c.name != "stop" }) {
				m.fate = migration.Refused
			}
			r.means(m, owner, false)
			r.add(f, owner, it, fmt.Sprintf("Sieve, line %d", c.line))
		}
	}
	return nil
}

// drops gives the senders whose mail a rule drops, or why it is no such rule. author: by From: alone.
func (c *command) drops() (keys []string, scope lists.Scope, author bool, why string) {
	if c.name != "if" {
		return nil, 0, false, "no rule that drops the mail of a named sender"
	}
	if why := c.block(); why != "" {
		return nil, 0, false, why
	}
	t, part, named := c.test, "", false
	scope = lists.Exact
	if t == nil || t.name != "address" && t.name != "envelope" {
		return nil, 0, false, "its test is not the address of a sender"
	}
	for i := 0; i < len(t.args); i++ {
		switch a := t.args[i]; {
		case a.tag == ":is" || a.tag == ":all":
		case a.tag == ":domain":
			scope, part = lists.Exact, a.tag
		case a.tag == ":localpart":
			scope, part = lists.Local, a.tag
		case a.tag == ":comparator" && i+1 < len(t.args) && len(t.args[i+1].texts) == 1 && t.args[i+1].texts[0] == "i;ascii-casemap":
			i++
		case a.tag != "":
			return nil, 0, false, "its test is of the kind " + original.Shown(a.tag)
		case !named && len(a.texts) == 1 && strings.EqualFold(a.texts[0], "from"):
			named = true
		case !named:
			return nil, 0, false, "it does not look at the sender alone"
		default:
			keys = append(keys, a.texts...)
		}
	}
	if len(keys) == 0 {
		return nil, 0, false, "it names no sender"
	}
	for _, key := range keys {
		if strings.Contains(key, "@") != (part == "") {
			return nil, 0, false, fmt.Sprintf("%q is never equal to that part of an address", original.Shown(key))
		}
	}
	return keys, scope, t.name == "address", ""
}

// block says why the commands of a rule are not just a drop.
func (c *command) block() string {
	dropped := false
	for _, b := range c.commands {
		switch b.name {
		case "discard", "reject", "ereject":
			dropped = true
		case "stop":
		default:
			return "it does more, or else, than to drop the mail: " + original.Shown(b.name)
		}
	}
	if !dropped {
		return "it does not drop the mail"
	}
	return ""
}

// decides reports whether a rule may end the script, or keep the mail, so that what comes after it is not reached.
func (c *command) decides() bool {
	switch c.name {
	case "stop", "return", "keep", "fileinto", "redirect", "include":
		return true
	case "if", "elsif":
		if c.block() == "" { // it drops the mail, and that is what a later rule would do
			return false
		}
	}
	return slices.ContainsFunc(c.commands, func(b command) bool { return b.decides() })
}

// shown is a rule in one line.
func (c *command) shown() string { return original.Shown(strings.Join(strings.Fields(c.text), " ")) }
