package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blockd/internal/config"
	"blockd/internal/daemon"
	"blockd/internal/term"
)

// completion offers words to a shell: those of the configuration at *path, as the flags
// before the word have it. A configuration that cannot be read offers nothing; the command
// itself will say why.
func completion(path *string, words func(config.Config) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := config.Load(*path)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(words(c), func(word string) bool {
			return !strings.HasPrefix(word, begun) || slices.Contains(given, word)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// listNames are the words of flags that take the name of a list.
func listNames(c config.Config) (names []string) {
	for _, l := range c.Lists {
		names = append(names, l.Name+"\t"+term.Path(l.Path))
	}
	return names
}

// completedEntries bounds what a shell is offered: nobody reads more, and a shell waits.
const completedEntries = 1000

// liveEntries are the words of commands that take live entries, as far as this user may
// read them.
func liveEntries(c config.Config) (entries []string) {
	set, err := daemon.ReadLive(c)
	if err != nil || set == nil {
		return nil
	}
	for _, e := range set.Entries() {
		if len(entries) == completedEntries {
			break
		}
		entries = append(entries, e.Text)
	}
	return entries
}
