package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"blockd/internal/testkit"
)

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
	for _, line := range strings.Split(string(testkit.Read(t, "../../man/blockd.toml.5")), "\n") {
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
