package stores

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// guavaJar is where Debian keeps Guava.
const guavaJar = "/usr/share/java/guava.jar"

// javaWithGuava compiles a source file against Guava, and returns how its class is run.
func javaWithGuava(t *testing.T, source string) []string {
	t.Helper()
	javac, java := testkit.Peer(t, "javac"), testkit.Peer(t, "java")
	if _, err := os.Stat(guavaJar); err != nil {
		testkit.Missing(t, "libguava-java is not installed (make peers)")
	}
	dir := t.TempDir()
	e2e.Ran(t, exec.Command(javac, "-encoding", "UTF-8", "-cp", guavaJar, "-d", dir, source))
	return []string{java, "-cp", guavaJar + ":" + dir, strings.TrimSuffix(filepath.Base(source), ".java")}
}

// answersOf runs a command with text on its standard input. An exit code of 1 is an answer too.
func answersOf(t *testing.T, text string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = e2e.Root
	cmd.Stdin = strings.NewReader(text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1 && len(out) > 0) {
		t.Fatalf("%q: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

// words are the second column, of filter check.
func words(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(line[strings.LastIndexByte(line, '\t')+1:])
	}
	return b.String()
}

// guavaProgram writes and asks filters of Guava.
func guavaProgram(t *testing.T) []string {
	t.Helper()
	return javaWithGuava(t, filepath.Join(e2e.Root, "bloom/filter", "testdata", "Guava.java"))
}

// filterSenders are n listed addresses, and as text all of them and ten times as many others.
func filterSenders(n int) (list, asked string) {
	var b strings.Builder
	for i := range n * 11 {
		if i == n {
			list = b.String()
		}
		local := "user"
		if i%5 == 0 {
			local = "üser"
		}
		fmt.Fprintf(&b, "%s%d@bulk%d.example\n", local, i, i%977)
	}
	return list, b.String()
}

// compiledList is the index of a plain list.
func compiledList(t *testing.T, list string) (bdx string) {
	t.Helper()
	bdx = filepath.Join(t.TempDir(), "x.bdx")
	e2e.Blockd(t, "compile", "-o", bdx, "--format", "plain", testkit.File(t, "list.txt", list))
	return bdx
}

// Guava reads what we write, and says of every address what we say.
func TestGuavaReadsOurFilters(t *testing.T) {
	const n = 20_000
	list, asked := filterSenders(n)
	java, bdx := guavaProgram(t), compiledList(t, list)
	for _, funnel := range []string{"utf8", "utf16"} {
		file := filepath.Join(t.TempDir(), "bl.bf")
		e2e.Blockd(t, "filter", "export", "-i", bdx, "--as", "guava", "-p", "0.01", "--funnel", funnel, "-o", file)
		sameAnswers(t, funnel, n, answersOf(t, asked, append(java, "ask", file, funnel)...), words(answersOf(t, asked, e2e.Program, "filter", "check", "--raw", "--funnel", funnel, file, "-")))
	}
}

// We read what Guava writes, by both strategies and all funnels.
func TestOurReaderOfGuavasFilters(t *testing.T) {
	const n = 5_000
	java := guavaProgram(t)
	list, asked := filterSenders(n)
	numbers := func(text string) string {
		var b strings.Builder
		for i := range strings.Count(text, "\n") {
			fmt.Fprintf(&b, "%d\n", int32(uint32(i)*2654435761))
		}
		return b.String()
	}
	for _, strategy := range []string{"MURMUR128_MITZ_32", "MURMUR128_MITZ_64"} {
		for _, funnel := range []string{"utf8", "utf16", "int", "long"} {
			file := filepath.Join(t.TempDir(), "bl.bf")
			keys, all := list, asked
			if funnel == "int" || funnel == "long" {
				keys, all = numbers(list), numbers(asked)
			}
			answersOf(t, keys, append(java, "write", file, funnel, strategy, "5000", "0.01")...)
			theirs := answersOf(t, all, append(java, "ask", file, funnel)...)
			sameAnswers(t, strategy+" "+funnel, n, theirs, words(answersOf(t, all, e2e.Program, "filter", "check", "--raw", "--funnel", funnel, file, "-")))
		}
	}
}

// sameAnswers holds our answers to Guava's: the first n perhaps, and all alike.
func sameAnswers(t *testing.T, what string, n int, theirs, ours string) {
	t.Helper()
	if ours != theirs {
		t.Errorf("%s: we answer otherwise than Guava", what)
	}
	present := strings.Repeat("perhaps\n", n)
	rest, ok := strings.CutPrefix(theirs, present)
	perhaps := strings.Count(rest, "perhaps")
	if !ok || perhaps == 0 || perhaps > n*10/50 {
		t.Errorf("%s: all keys there: %v, %d of %d others", what, ok, perhaps, n*10)
	}
	t.Logf("%s: %d of %d absent keys are perhaps, here and there", what, perhaps, n*10)
}

// The files of others, whose keys are not known, get the same answers to any question.
func TestGuavaAndWeReadTheSharedFilters(t *testing.T) {
	java := guavaProgram(t)
	_, asked := filterSenders(20_000)
	for _, name := range []string{"MURMUR128_MITZ_32-utf8.bf", "MURMUR128_MITZ_64-utf8.bf"} {
		file := testkit.Shared(t, filepath.Join("filters", name))
		theirs := answersOf(t, asked, append(java, "ask", file, "utf8")...)
		if ours := words(answersOf(t, asked, e2e.Program, "filter", "check", "--raw", file, "-")); ours != theirs || !strings.Contains(ours, "perhaps") {
			t.Errorf("%s: we answer otherwise than Guava", name)
		}
	}
}

// filterList and filterAsked are for the programs of docs/filters.md.
const (
	filterList  = "promo@bulk.test\noffers@\nbad.test\n=alone.test\nmüller@bücher.test\n"
	filterAsked = "promo@bulk.test\nother@bulk.test\noffers@any.test\nx@bad.test\nx@a.b.bad.test\nx@alone.test\nmüller@xn--bcher-kva.test\nx@clear.example\nx@test\n"
)

// documented gives the one block of docs/filters.md in that language, with a file for its own.
func documented(t *testing.T, words, file, path string) string {
	t.Helper()
	blocks := e2e.Fenced(t, "docs/filters.md", words)
	if len(blocks) != 1 || file != "" && !strings.Contains(blocks[0], file) {
		t.Fatalf("docs/filters.md: blocks %q are %q", words, blocks)
	}
	return strings.ReplaceAll(blocks[0], file, path)
}

func exportedAs(t *testing.T, kind, out string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), out)
	e2e.Blockd(t, "filter", "export", "-i", compiledList(t, filterList), "--as", kind, "-p", "0.000001", "-o", path)
	return path
}

// The program of docs/filters.md looks up the four kinds of keys, as filter check does.
func TestDocumentedJava(t *testing.T) {
	file := exportedAs(t, "guava", "bl.bf")
	source := testkit.File(t, "Ask.java", `import com.google.common.hash.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
class Ask {
  public static void main(String[] args) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String sender; (sender = in.readLine()) != null; ) {
`+documented(t, "java guava", "bl.bf", file)+`
      System.out.println(perhaps ? "perhaps" : "absent");
    }
  }
}
`)
	theirs := answersOf(t, filterAsked, javaWithGuava(t, source)...)
	if ours := words(answersOf(t, filterAsked, e2e.Program, "filter", "check", file, "-")); theirs != ours {
		t.Errorf("Java says\n%swe\n%s", theirs, ours)
	}
}

func TestDocumentedGo(t *testing.T) {
	file := exportedAs(t, "bits", "bl.bits")
	source := testkit.File(t, "main.go", `package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/bits-and-blooms/bloom/v3"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		sender := in.Text()
		file, err := os.Open(os.Args[1])
`+documented(t, "go bits", "", "")+`
		fmt.Println(map[bool]string{true: "perhaps", false: "absent"}[perhaps], err)
	}
}
`)
	theirs := answersOf(t, filterAsked, "go", "run", source, file)
	ours := words(answersOf(t, filterAsked, e2e.Program, "filter", "check", file, "-"))
	if theirs != strings.ReplaceAll(ours, "\n", " <nil>\n") {
		t.Errorf("Go says\n%swe\n%s", theirs, ours)
	}
}

// The Python of docs/filters.md gives RedisBloom the chunks that BF.SCANDUMP gave, as they
// were: what it sends is written down in place of a server, whose module is not free.
func TestDocumentedPython(t *testing.T) {
	python := testkit.Peer(t, "python3")
	file := exportedAs(t, "redisbloom", "bl") + ".rbd"
	script := "import sys\n" + `
class Recorder:
    def execute_command(self, command, name, iterator, data):
        sys.stdout.write("%s %s %d %d\n" % (command, name, iterator, len(data)))
r = Recorder()
` + documented(t, "python redisbloom", "bl.rbd", file)
	have := answersOf(t, "", python, "-c", script)
	if want := "BF.LOADCHUNK bl 1 73\nBF.LOADCHUNK bl 25 24\n"; have != want {
		t.Errorf("it sends\n%swant\n%s", have, want)
	}
}
