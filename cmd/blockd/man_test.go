package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"blockd/internal/testkit"
)

func manPage(t *testing.T, name string) []string {
	t.Helper()
	text := testkit.Read(t, testkit.Root(t)+"/docs/man/"+name)
	return strings.Split(string(text), "\n")
}

// blockd(8) names the commands and their flags, no others.
func TestManPageOfTheProgram(t *testing.T) {
	want := map[string]bool{}
	for _, cmd := range newRoot().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			want["--"+f.Name] = true
			if f.Shorthand != "" {
				want["-"+f.Shorthand] = true
			}
		})
	}
	got := map[string]bool{}
	described := regexp.MustCompile(`\bFl (\\-)?([a-z]+(?:\\-[a-z]+)*)`)
	synopsis := map[string]bool{}
	for _, line := range manPage(t, "blockd.8") {
		if strings.HasPrefix(line, ".It Fl ") {
			for _, m := range described.FindAllStringSubmatch(line, -1) {
				got[strings.ReplaceAll(m[1]+"-"+m[2], `\-`, "-")] = true
			}
		}
		if name, ok := strings.CutPrefix(line, ".Cm "); ok {
			synopsis[name] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("blockd(8) describes the flags\n%q, want\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for _, cmd := range newRoot().Commands() {
		if !cmd.Hidden && !synopsis[cmd.Name()] {
			t.Errorf("blockd(8) has no command %s", cmd.Name())
		}
	}
}
