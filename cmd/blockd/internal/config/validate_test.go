package config

import (
	"blockd/internal/testkit"
	"fmt"
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
		testkit.Got(got, listName.MatchString(got))(t, fmt.Sprintf("ListNameOf(%q)", file), want, true)
	}
}
