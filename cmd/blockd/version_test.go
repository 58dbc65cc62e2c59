package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/version"
	"blockd/internal/testkit"
)

// said runs blockd and returns its exit code and both outputs.
func said(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func TestVersion(t *testing.T) {
	code, out, errs := said("version", "--json")
	var v version.Info
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || v.Version == "" || !strings.HasPrefix(v.Go, "go1.") || len(v.Modules) == 0 {
		t.Errorf("version --json = %d, %v: %s%s", code, err, out, errs)
	}
	code, out, _ = said("version")
	if code != 0 || !strings.HasPrefix(out, "blockd    "+v.Version+"\n") || !strings.Contains(out, "\ngo        "+v.Go+"\n") {
		t.Errorf("version = %d:\n%s", code, out)
	}
	code, out, _ = said("version", "--licences")
	if code != 0 || !strings.Contains(out, "github.com/spf13/cobra v") || !strings.Contains(out, "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION") {
		t.Errorf("version --licences = %d, %d octets", code, len(out))
	}
	if code, _, errs := said("version", "--json", "--licences"); code != exitUsage || !strings.Contains(errs, "not both") {
		t.Errorf("both: %d %s", code, errs)
	}
}

// TestLicencesAreOfWhatIsLinkedIn holds that no module is in the program without its licence, and that versions agree.
func TestLicencesAreOfWhatIsLinkedIn(t *testing.T) {
	table, _, _ := strings.Cut(licences, "\n\n")
	var have []string
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) != 3 {
			t.Fatalf("a line of licences.txt: %q", line)
		}
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
