package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// TestReadmeTrial does what a newcomer does: it types the commands of README.md's "Try it" beside `make run`. The program is
// this binary; that Go builds it is seen where README.md's two commands run in an empty Debian.
func TestReadmeTrial(t *testing.T) {
	race.Skip(t)
	for _, command := range []string{"make", "bash", "curl"} {
		if _, err := exec.LookPath(command); err == nil {
			continue
		} else if os.Getenv("CI") == "true" { // these are no peers: make test types them, too
			t.Fatal(err)
		}
		t.Skip(command + " is not installed, and README.md types it")
	}
	blocks := e2e.Consoles(t, "README.md")
	if len(blocks) < 3 {
		t.Fatalf("README.md has %d console blocks, want the two commands, the trial and Postfix", len(blocks))
	}
	trial := slices.Concat(blocks[1 : len(blocks)-1]...)
	if len(blocks[0]) != 2 || blocks[0][0].Text != "make run" || blocks[0][1].Text != "make test" {
		t.Fatalf("README.md opens with %v, want make run and make test", blocks[0])
	}
	if e2e.Listens("127.0.0.1:2525") || e2e.Listens("127.0.0.1:8025") {
		t.Fatal("somebody listens on 127.0.0.1:2525 or :8025, where the shipped configuration listens: stop it first")
	}

	dir := t.TempDir()
	for _, name := range []string{"Makefile", "config.toml", "packaging/build.sh"} {
		testkit.Must(t, e2e.CopyFile(filepath.Join(e2e.Root, name), filepath.Join(dir, name)))
	}
	testkit.Must(t, os.Chmod(filepath.Join(dir, "packaging/build.sh"), 0o755))
	testkit.Must(t, os.CopyFS(filepath.Join(dir, "testdata/lists"), os.DirFS(filepath.Join(e2e.Root, "testdata/lists"))))
	// A Go that compiles nothing: what it would have built is there.
	bin := t.TempDir()
	testkit.Write(t, filepath.Join(bin, "go"), "#!/bin/sh\ncase \"$1 $2\" in\n'build -v') cp '"+e2e.Program+"' blockd && echo blockd/cmd/blockd ;;\n"+
		"'run ./cmd/blockd') shift 2; exec ./blockd \"$@\" ;;\n*) echo \"go $*: not in README.md\" >&2; exit 1 ;;\nesac\n")
	testkit.Must(t, os.Chmod(filepath.Join(bin, "go"), 0o755))
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH")}

	log := &testkit.Log{}
	run := exec.Command("make", "run")
	run.Dir, run.Env = dir, append(os.Environ(), env...)
	keys := e2e.OnTerminal(t, run, log)
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	t.Cleanup(func() {
		io.WriteString(keys, "\x03") // Ctrl-C
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("make run ended by Ctrl-C: %v", err)
			}
		case <-time.After(60 * time.Second):
			run.Process.Kill()
			t.Error("make run did not end within 60 s of Ctrl-C")
		}
		if t.Failed() {
			t.Logf("make run printed:\n%s", e2e.Tail(log.String(), 8000))
		}
	})
	testkit.Eventually(t, "make run to serve", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("make run ended: %v\n%s", err, log)
		default:
		}
		return e2e.Listens("127.0.0.1:2525")
	})
	e2e.Perform(t, "README.md", dir, env, trial)
}
