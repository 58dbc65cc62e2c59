package e2e

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// Command is one line behind a prompt of a console block, with what the
// document says it prints.
type Command struct {
	line int // of the document
	Text string
	want []string
}

// Consoles returns the console blocks of a document, in order. A prompt is "$ "
// or, for root, "# ".
func Consoles(t *testing.T, document string) (blocks [][]Command) {
	t.Helper()
	inside := false
	for i, line := range Lines(t, filepath.Join(Root, document)) {
		switch {
		case line == "```console":
			inside = true
			blocks = append(blocks, nil)
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside:
			block := &blocks[len(blocks)-1]
			if text, ok := strings.CutPrefix(line, "$ "); ok {
				*block = append(*block, Command{line: i + 1, Text: text})
			} else if text, ok := strings.CutPrefix(line, "# "); ok {
				*block = append(*block, Command{line: i + 1, Text: text})
			} else if len(*block) > 0 {
				last := &(*block)[len(*block)-1]
				last.want = append(last.want, line)
			} else {
				t.Errorf("%s:%d: output before the first prompt", document, i+1)
			}
		}
	}
	return blocks
}

// Fenced returns the texts of a document's blocks in the given language.
func Fenced(t *testing.T, document, language string) (blocks []string) {
	t.Helper()
	inside := false
	for _, line := range Lines(t, filepath.Join(Root, document)) {
		switch {
		case line == "```"+language:
			inside = true
			blocks = append(blocks, "")
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside:
			blocks[len(blocks)-1] += line + "\n"
		}
	}
	return blocks
}

// pattern turns shown output into a regular expression: "…" stands for any text
// within a line, and alone on a line for any lines.
func pattern(want []string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, line := range want {
		if strings.TrimSpace(line) == "…" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", ".*") + ` *\n`)
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

// Perform runs the commands of a document in dir. Where a command's output is
// not yet what is shown it is run again for a while: a reader waits a second for
// a saved list to act, and so may the test.
func Perform(t *testing.T, document, dir string, env []string, commands []Command) {
	t.Helper()
	PerformAs(t, document, dir, env, commands, func(out []byte) []byte { return out })
}

// PerformAs is perform where documents and outputs are compared as a function makes them.
func PerformAs(t *testing.T, document, dir string, env []string, commands []Command, as func([]byte) []byte) {
	t.Helper()
	for _, c := range commands {
		for i, line := range c.want {
			c.want[i] = string(as([]byte(line)))
		}
		want := pattern(c.want)
		var got []byte
		shown := func() bool {
			cmd := exec.Command("bash", "-c", c.Text)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
			got, _ = cmd.CombinedOutput()                             // the exit status is the reader's to see, the output is what is shown
			got = bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")) // mail has CRLF, and looks the same
			got = as(got)
			return want.Match(got)
		}
		deadline := time.Now().Add(2 * time.Minute)
		for !shown() {
			if time.Now().After(deadline) || len(c.want) == 0 {
				t.Fatalf("%s:%d: $ %s\nprinted:\n%s\nthe document shows:\n%s", document, c.line, c.Text, got, strings.Join(c.want, "\n"))
			}
		}
	}
}

// Ran runs a command that has to work, and returns what it prints.
func Ran(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// Blockd is Ran for the program.
func Blockd(t *testing.T, args ...string) string {
	t.Helper()
	return Ran(t, exec.Command(Program, args...))
}

func CopyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// ComparePage holds a page of docs to a table between two marks; -update writes it.
func ComparePage(t *testing.T, path, mark string, table [][]string) {
	t.Helper()
	begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->\n"
	page := testkit.Read(t, path)
	head, rest, ok := strings.Cut(string(page), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	now := markdown(table)
	switch {
	case *Update:
		testkit.Write(t, path, head+begin+now+end+tail)
	case old != now:
		t.Errorf("%s shows another table (go test ./e2e -run '%s$' -update writes it)", path, t.Name())
	}
}

// markdown is a table whose first row is its head.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
		}
	}
	return b.String()
}

// Update has the tables of docs/servers.md written anew.
var Update = flag.Bool("update", false, "write the tables of docs/servers.md")

func Lines(t *testing.T, path string) []string {
	t.Helper()
	f := testkit.Value(os.Open(path))(t)
	defer f.Close()
	var all []string
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		all = append(all, scanner.Text())
	}
	testkit.Must(t, scanner.Err())
	return all
}
