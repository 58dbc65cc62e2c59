package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Seeds of the two halves. Of the shared generator two seeds never have a line
// in common and use the same domains, so an absent address looks like a listed one.
const (
	presentSeed = 1
	absentSeed  = 2
)

// maxSample bounds the keys that one round asks for: enough to leave every
// cache that holds less than the whole, few enough for a round within a second.
const maxSample = 1_000_000

// keys are the addresses of a run: n that are listed, n that are not.
type keys struct {
	n       int
	octets  float64 // mean length
	origin  string  // who made them
	present string  // file, a key a line
	absent  string
	pairs   string // the listed ones, each with the value 1 behind a blank, for cdb and postmap

	listed, clear         []string // shuffled samples of both
	listedFile, clearFile string   // the same, a key a line
	halfFile              string   // half of each, in turns
}

func makeKeys(ctx context.Context, s settings, dir string) (*keys, error) {
	k := &keys{n: s.n, present: filepath.Join(dir, "present.txt"), absent: filepath.Join(dir, "absent.txt"), pairs: filepath.Join(dir, "pairs")}
	origin, write := generator(ctx, s.root, s.n, kindAddress)
	k.origin = origin
	for path, seed := range map[string]int{k.present: presentSeed, k.absent: absentSeed} {
		if err := writeFile(path, func(f *os.File) error { return write(f, seed) }); err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
	}
	info, err := os.Stat(k.present)
	if err != nil {
		return nil, err
	}
	k.octets = float64(info.Size())/float64(s.n) - 1
	return k, writeFile(k.pairs, func(f *os.File) error {
		w := bufio.NewWriter(f)
		err := eachLine(k.present, func(line string) { w.WriteString(line + " 1\n") })
		if err != nil {
			return err
		}
		return w.Flush()
	})
}

// generator returns who makes n addresses, and how.
func generator(ctx context.Context, root string, n int, kind string) (origin string, write func(w io.Writer, seed int) error) {
	if kind == kindNumbered {
		return "numbered", func(w io.Writer, _ int) error {
			b := bufio.NewWriter(w)
			if err := writeNumbered(b, n); err != nil {
				return err
			}
			return b.Flush()
		}
	}
	shared := filepath.Join(root, "..", "shared", "data", "gen-addresses")
	if _, err := os.Stat(shared); err != nil {
		return "made by `bench` itself", func(w io.Writer, seed int) error { return writeAddresses(w, n, seed, kind) }
	}
	return "made by `gen-addresses`", func(w io.Writer, seed int) error {
		cmd := exec.CommandContext(ctx, shared, "-n", fmt.Sprint(n), "-seed", fmt.Sprint(seed), "-kind", kind)
		cmd.Stdout, cmd.Stderr = w, os.Stderr
		return cmd.Run()
	}
}

// The kinds of lines that generators make.
const (
	kindAddress  = "address"
	kindDomain   = "domain"
	kindNumbered = "numbered" // by writeNumbered
)

// writeAddresses writes n addresses or domains, all different, and none that another seed gives.
// It is used where the shared generator is missing.
func writeAddresses(out io.Writer, n, seed int, kind string) error {
	syllables := strings.Fields("an bel cor dan el fin gor hal in jo kar lin mar nor os pel qui ran sol ten ul ver wen xan yor zel")
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	word := func(n int) (s string) {
		for range n {
			s += syllables[rng.IntN(len(syllables))]
		}
		return s
	}
	w := bufio.NewWriter(out)
	for i := range n {
		if kind == kindDomain {
			fmt.Fprintf(w, "%s%d-%d.%s\n", word(3), seed, i, word(1))
			continue
		}
		fmt.Fprintf(w, "%s.%s%d-%d@%s-%s.%s\n", word(2), word(2), seed, i, word(2), word(3), word(1))
	}
	return w.Flush()
}

// sample draws the keys that the rounds ask for. They are shuffled, for in the
// order they were added some stores would find them side by side, and then
// copied, so that the questions themselves are read in order.
func (k *keys) sample(dir string) (err error) {
	k.listedFile, k.clearFile = filepath.Join(dir, "listed.txt"), filepath.Join(dir, "clear.txt")
	if k.listed, err = sampleOf(k.present, k.n, k.listedFile); err != nil {
		return err
	}
	if k.clear, err = sampleOf(k.absent, k.n, k.clearFile); err != nil {
		return err
	}
	k.halfFile = filepath.Join(dir, "half.txt")
	return writeFile(k.halfFile, func(f *os.File) error {
		w := bufio.NewWriter(f)
		for i := range k.half() / 2 {
			w.WriteString(k.listed[i] + "\n" + k.clear[i] + "\n")
		}
		return w.Flush()
	})
}

// half is how many keys halfFile has.
func (k *keys) half() int { return len(k.listed) / 2 * 2 }

func sampleOf(path string, n int, to string) ([]string, error) {
	size := min(n, maxSample)
	lines := make([]string, 0, size)
	i := 0
	err := eachLine(path, func(line string) {
		if i*size/n == len(lines) && len(lines) < size { // every n/size-th
			lines = append(lines, line)
		}
		i++
	})
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(3, 0))
	rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	text := strings.Join(lines, "\n") + "\n"
	lines = lines[:0]
	for line := range strings.Lines(text) {
		lines = append(lines, line[:len(line)-1])
	}
	return lines, os.WriteFile(to, []byte(text), 0o600)
}

// allLines reads all keys of a file.
func allLines(path string, n int) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	lines := make([]string, 0, n)
	for line := range strings.Lines(string(text)) {
		lines = append(lines, line[:len(line)-1])
	}
	return lines, nil
}

func eachLine(path string, f func(line string)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	for s.Scan() {
		f(s.Text())
	}
	return s.Err()
}

// eachLineTo writes what f makes of each line of a file.
func eachLineTo(out io.Writer, path string, f func(line string) string) error {
	w := bufio.NewWriter(out)
	if err := eachLine(path, func(line string) { w.WriteString(f(line)) }); err != nil {
		return err
	}
	return w.Flush()
}

// writeFile makes a file by write.
func writeFile(path string, write func(*os.File) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
