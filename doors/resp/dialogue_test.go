package resp

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

var clientID = regexp.MustCompile(`(\$2\r\nid\r\n):\d+`)

// TestDialogues holds what clients hear, octet for octet.
func TestDialogues(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	f := testkit.Value(os.Open("testdata/dialogues.txt"))(t)
	defer f.Close()
	var p *peer
	var asked []string
	for n, lines := 1, bufio.NewScanner(f); lines.Scan(); n++ {
		text := lines.Text()
		switch {
		case strings.HasPrefix(text, "== "):
			p = dial(t, address)
		case strings.HasPrefix(text, "C: "):
			asked = words(t, text[3:])
		case strings.HasPrefix(text, "S: "):
			got := clientID.ReplaceAllString(p.ask(t, asked...), "$1:N")
			testkit.Equal(t, fmt.Sprintf("line %d: %q is answered", n, asked), got, strings.ReplaceAll(text[3:], " | ", "\r\n")+"\r\n")
		}
	}
}

// words splits a command; a word in quotes is one of Go's.
func words(t *testing.T, text string) (all []string) {
	for text != "" {
		if text[0] == '"' {
			quoted := testkit.Value(strconv.QuotedPrefix(text))(t)
			word, _ := strconv.Unquote(quoted)
			all, text = append(all, word), strings.TrimPrefix(text[len(quoted):], " ")
			continue
		}
		word, rest, _ := strings.Cut(text, " ")
		all, text = append(all, word), rest
	}
	return all
}
