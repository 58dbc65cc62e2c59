package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// addresses are the listed addresses, or domains, in the forms of those that ask for them.
type addresses struct {
	program string   // blockd
	text    string   // file, an address a line
	cdb     string   // file for check_sender_access; "" = none
	why     string   // there is none
	index   string   // blockd's
	sample  []string // listed addresses
}

// withCDB makes the file that Postfix calls cdb:, unless it is in the cache.
func (l *addresses) withCDB(ctx context.Context) error {
	if l.why = lookPath("tinycdb"); l.why != "" {
		if _, err := exec.LookPath("cdb"); err == nil {
			l.why = ""
		}
	}
	if l.why != "" {
		l.cdb = ""
		return nil
	}
	return unlessThere(l.cdb, func(path string) error { return makeCDB(ctx, path, l.text) })
}

// makeAddresses builds the program, and makes the addresses that are not in the cache
// yet. Files there bear the number of their addresses, and are renamed into place when
// they are whole.
func makeAddresses(ctx context.Context, s *doorSettings, dir string) (*addresses, error) {
	if err := os.MkdirAll(s.cache, 0o755); err != nil {
		return nil, err
	}
	name := func(suffix string) string {
		return filepath.Join(s.cache, fmt.Sprintf("%s-%d%s", s.files(), s.n, suffix))
	}
	l := &addresses{program: filepath.Join(dir, "blockd"), text: name(".txt"), cdb: name(".cdb"), index: name(".bdx")}
	build := exec.CommandContext(ctx, "go", "build", "-o", l.program, "./cmd/blockd")
	build.Dir = s.root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	_, write := generator(ctx, s.root, s.n, s.kind)
	err := unlessThere(l.text, func(path string) error {
		return writeFile(path, func(f *os.File) error { return write(f, presentSeed) })
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.listed(), err)
	}
	l.sample, err = someLines(l.text, s.n, 4096)
	return l, err
}

// makeCDB makes the file that Postfix calls cdb:. Its own postmap takes a quarter
// of an hour for ten million addresses; the program cdb makes the same file in
// seconds. Keys without the NUL that postmap may put behind them are found too.
func makeCDB(ctx context.Context, path, text string) error {
	pairs := path + ".pairs"
	defer os.Remove(pairs)
	err := writeFile(pairs, func(f *os.File) error {
		w := bufio.NewWriter(f)
		if err := eachLine(text, func(line string) { w.WriteString(line + " REJECT listed\n") }); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return err
	}
	_, err = program{args: []string{"cdb", "-c", "-m", path, pairs}}.run(ctx)
	return err
}

// unlessThere makes a file under another name and renames it.
func unlessThere(path string, make func(path string) error) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := make(path + ".new"); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// someLines returns most lines of a file of n, at even distances.
func someLines(path string, n, most int) (lines []string, err error) {
	i := 0
	err = eachLine(path, func(line string) {
		if len(lines) < most && i*most/n >= len(lines) {
			lines = append(lines, line)
		}
		i++
	})
	return lines, err
}
