package addr

import (
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestRealSenders(t *testing.T) {
	for name, want := range map[string]int{"ham-senders.txt": 729, "spam-senders.txt": 940} {
		senders := 0
		for line := range strings.Lines(string(testkit.Read(t, testkit.Shared(t, "lists/"+name)))) {
			senders++
			line = strings.TrimSuffix(line, "\n")
			a, err := Parse(line)
			if err != nil {
				t.Error(err)
			}
			checkKeys(t, a)
			checkPath(t, []byte("<"+line+">"))
		}
		if senders != want {
			t.Errorf("%s: %d senders, want %d", name, senders, want)
		}
	}
}
