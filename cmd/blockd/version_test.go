package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/version"
	"blockd/internal/testkit"
)

func TestVersion(t *testing.T) {
	code, out, errs := blockd(t, "", "version", "--json")
	var v version.Info
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || v.Version == "" || !strings.HasPrefix(v.Go, "go1.") || len(v.Modules) == 0 {
		t.Errorf("version --json = %d, %v: %s%s", code, err, out, errs)
	}
	code, out, _ = blockd(t, "", "version")
	if code != 0 || !strings.HasPrefix(out, "blockd    "+v.Version+"\n") || !strings.Contains(out, "\ngo        "+v.Go+"\n") {
		t.Errorf("version = %d:\n%s", code, out)
	}
	code, out, _ = blockd(t, "", "version", "--licences")
	if code != 0 || !strings.Contains(out, "github.com/spf13/cobra v") || !strings.Contains(out, "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION") {
		t.Errorf("version --licences = %d, %d octets", code, len(out))
	}
	if code, _, errs := blockd(t, "", "version", "--json", "--licences"); code != exitUsage || !strings.Contains(errs, "not both") {
		t.Errorf("both: %d %s", code, errs)
	}
}

// TestLicencesAreOfWhatIsLinkedIn holds that no module is in the program without its licence, and that versions agree.
func TestLicencesAreOfWhatIsLinkedIn(t *testing.T) {
	table, _, _ := strings.Cut(licences, "\n\n")
	var have []string
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		testkit.MustEqual(t, fmt.Sprintf("a line of licences.txt: %q", line), len(words), 3)
		have = append(have, words[0]+" "+words[1])
	}
	out := testkit.Value(exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", ".").Output())(t)
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(have, line) {
			t.Errorf("licences.txt lacks %s: make licences", line)
		}
	}
	if !slices.Contains(have, "std -") {
		t.Error("licences.txt lacks Go's own library")
	}
}
