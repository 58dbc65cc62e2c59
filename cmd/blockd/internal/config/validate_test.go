package config

import (
	"strings"
	"testing"
)

func TestListNameOf(t *testing.T) {
	for file, want := range map[string]string{
		"lists/disposable.txt.gz": "disposable",
		"sender_access":           "sender_access",
		"two words.txt":           "two-words",
		".hidden.txt":             "hidden",
		"ümlaut.txt":              "mlaut",
		"...":                     "list",
		strings.Repeat("x", 99):   strings.Repeat("x", 64),
	} {
		got := ListNameOf(file)
		if got != want || !listName.MatchString(got) {
			t.Errorf("ListNameOf(%q) = %q, want %q", file, got, want)
		}
	}
}
