package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// postmapKinds are the tables of Postfix that take part.
var postmapKinds = []string{"lmdb", "cdb"}

// built are the programs and files that compiling leaves behind for the
// questions; "" where a peer is missing.
type built struct {
	blockd, index string
	cdb, tinycdb  string            // the program and its file
	postmap       string            // the program
	config        string            // folder with a main.cf for it
	lacks         map[string]string // by kind of postmap table: why there is none
}

// compiler is a program that makes a file of all keys.
type compiler struct {
	name, file string
	program
	once bool // too slow for more than one round
}

// compileAll measures everybody who makes a file of all keys.
func compileAll(ctx context.Context, s settings, dir string, k *keys, r *report) (*built, error) {
	b := &built{blockd: filepath.Join(dir, "blockd"), index: filepath.Join(dir, "keys.bdx"), lacks: map[string]string{}}
	build := exec.CommandContext(ctx, "go", "build", "-o", b.blockd, "./cmd/blockd")
	build.Dir = s.root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	t := &r.compile
	compilers := []compiler{{"`blockd compile`", b.index,
		program{args: []string{b.blockd, "compile", "-o", b.index, "--format", "plain", k.present}}, false}}
	const tinycdb = "tinycdb, `cdb -c -m`"
	if path, err := exec.LookPath("cdb"); err != nil {
		t.missing(tinycdb, "wants Debian's package tinycdb")
	} else {
		b.cdb, b.tinycdb = path, filepath.Join(dir, "keys.cdb")
		compilers = append(compilers, compiler{tinycdb, b.tinycdb, program{args: []string{path, "-c", "-m", b.tinycdb, k.pairs}}, false})
	}
	if err := b.findPostmap(ctx, s, dir); err != nil {
		return nil, err
	}
	for _, kind := range postmapKinds {
		name := "Postfix, `postmap " + kind + ":`"
		if why := b.lacks[kind]; why != "" {
			t.missing(name, why)
			continue
		}
		compilers = append(compilers, compiler{name, k.pairs + "." + kind,
			program{args: []string{b.postmap, "-c", b.config, kind + ":" + k.pairs}}, s.slow()})
	}
	for round := range s.buildRounds() {
		for _, c := range compilers {
			if c.once && round > 0 {
				continue
			}
			if err := os.Remove(c.file); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
			cost, err := c.run(ctx)
			if err != nil {
				return nil, err
			}
			info, err := os.Stat(c.file)
			if err != nil {
				return nil, err
			}
			t.add(c.name, compileSeconds, cost.seconds)
			t.add(c.name, compileMemory, cost.megabytes)
			t.add(c.name, compileSize, float64(info.Size())/1e6)
		}
	}
	return b, nil
}

// findPostmap looks for postmap, and for which kinds of tables it has. A folder
// of its own keeps it away from the machine's Postfix.
func (b *built) findPostmap(ctx context.Context, s settings, dir string) (err error) {
	if b.postmap, err = exec.LookPath("postmap"); err != nil {
		for _, kind := range postmapKinds {
			b.lacks[kind] = "wants Debian's packages postfix and postfix-" + kind
		}
		return nil
	}
	b.config = filepath.Join(dir, "postfix")
	if err := os.Mkdir(b.config, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.config, "main.cf"), []byte("compatibility_level = 3.6\n"), 0o644); err != nil {
		return err
	}
	kinds, err := exec.CommandContext(ctx, "postconf", "-c", b.config, "-m").Output()
	if err != nil {
		return fmt.Errorf("postconf: %w", err)
	}
	for _, kind := range postmapKinds {
		if !slices.Contains(strings.Fields(string(kinds)), kind) {
			b.lacks[kind] = "wants Debian's package postfix-" + kind
		}
	}
	if s.slow() && b.lacks["cdb"] == "" {
		// Its look for duplicates walks one of 256 lists for each key: 1.4 s at
		// a million keys, a quarter of an hour at ten.
		b.lacks["cdb"] = "its time grows with the square of the keys"
	}
	return nil
}
