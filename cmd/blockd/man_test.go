package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"
)

func manPage(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile("../../man/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// blockd.toml(5) names the keys of Config, no others, with their defaults.
func TestManPageOfTheConfiguration(t *testing.T) {
	bare := func(value string) string { // without the marks of TOML and mdoc
		value = regexp.MustCompile(`\b(Qq|Qo|Qc|Bq|No)\b|[\\'",\[\]]`).ReplaceAllString(value, " ")
		return strings.Join(strings.Fields(value), " ")
	}
	defaults := map[string]string{}
	c := Default()
	c.Lists = []List{defaultList()}
	text, err := toml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	table := ""
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, " = "); ok {
			defaults[table+"."+key] = bare(value)
		} else if name := strings.Trim(line, "[]\n"); name != "" {
			table = name
		}
	}

	var keys []string
	table = ""
	for _, line := range manPage(t, "blockd.toml.5") {
		if name, ok := strings.CutPrefix(line, ".Ss ["); ok {
			table = strings.Trim(name, "[]")
		}
		item, ok := strings.CutPrefix(line, ".It Cm ")
		if !ok {
			continue
		}
		key, value, given := strings.Cut(item, " No = ")
		key = table + "." + key
		keys = append(keys, key)
		if given && bare(value) != defaults[key] {
			t.Errorf("blockd.toml(5): %s = %s, the default is %s", key, bare(value), defaults[key])
		} else if !given && defaults[key] != "" {
			t.Errorf("blockd.toml(5): no default for %s, it is %s", key, defaults[key])
		}
	}
	want := allKeys()
	slices.Sort(keys)
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("blockd.toml(5) has the keys\n%q, want\n%q", keys, want)
	}
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
		if !synopsis[cmd.Name()] {
			t.Errorf("blockd(8) has no command %s", cmd.Name())
		}
	}
}
