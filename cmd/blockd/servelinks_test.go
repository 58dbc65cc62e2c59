//go:build !nosql

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/internal/testkit"
	"blockd/sources/mirror"
)

// TestBrokenLinks: over a link that is slow, cut or reset at any octet, a read of a store is complete, or the copy stays and the error
// has the class of a link. Nothing of the driver is left after Close.
func TestBrokenLinks(t *testing.T) {
	const patience = 500 * time.Millisecond // of a read over a link that says too little
	links := map[string]testkit.Link{
		"down": {Down: true}, "mute": {Mute: true}, "an octet a second": {Latency: time.Second, Single: true}, "latency": {Latency: 20 * time.Millisecond},
	}
	for _, after := range []int64{1, 60, 700, 4000} {
		links[fmt.Sprintf("cut after %d", after)] = testkit.Link{Cut: after}
		links[fmt.Sprintf("reset after %d", after)] = testkit.Link{Cut: after, Reset: true}
	}
	for kind, start := range stores {
		t.Run(kind, func(t *testing.T) {
			store := start(t)
			if store.address == "" {
				t.Skip("a file has no link")
			}
			proxy := testkit.NewProxy(t, store.address)
			dir := t.TempDir()
			writeFile(t, dir, "store.dsn", strings.Replace(store.dsn, "ADDRESS", proxy.Address, 1)+"\n")
			writeFile(t, dir, "config.toml", store.config(kind))
			if store.prepare != nil {
				store.prepare(t, storeText(t, dir))
			}
			c := testkit.Value(config.Load(filepath.Join(dir, "config.toml")))(t)
			var many []string
			for i := range 200 {
				many = append(many, fmt.Sprintf("n%d.bulk.example", i))
			}
			store.put(t, many...)
			copied, err := mirror.Open(mirror.Options{Folder: filepath.Join(dir, "copy")})
			testkit.Must(t, err)
			defer copied.Close()
			// read reads over a link, with a driver of its own.
			read := func(link testkit.Link) (err error) {
				proxy.Set(link)
				source := testkit.Value(daemon.OpenSource(c.Lists[len(c.Lists)-1]))(t)
				limit := time.Minute
				if link.Mute || link.Single {
					limit = patience
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				ended := make(chan error, 1)
				go func() { _, err := copied.Read(ctx, source); ended <- errors.Join(err, source.Close()) }()
				testkit.Eventually(t, "the read to end", func() bool {
					select {
					case err = <-ended:
						return true
					default:
						return false
					}
				})
				proxy.Set(testkit.Link{Down: true})
				return err
			}
			testkit.Must(t, read(testkit.Link{}))
			idle, n := runtime.NumGoroutine(), int64(200)
			for name, link := range links {
				store.put(t, fmt.Sprintf("more%d.bulk.example", n))
				before, _ := copied.State()
				err := read(link)
				n++
				after, _ := copied.State()
				e, _ := errors.AsType[*mirror.Error](err)
				switch {
				case err == nil && after.Entries() != n:
					t.Errorf("%s: %d entries of %d, and no error", name, after.Entries(), n)
				case err == nil:
				case after.Entries() != before.Entries():
					t.Errorf("%s: %v, and the copy has changed from %d entries to %d", name, err, before.Entries(), after.Entries())
				case e == nil || !slices.Contains([]mirror.Class{mirror.ClassUnreachable, mirror.ClassTimeout, mirror.ClassTruncated}, e.Class):
					t.Errorf("%s: %v, want the class of a link", name, err)
				case (link.Mute || link.Single) && e.Class != mirror.ClassTimeout:
					t.Errorf("%s: %v, want %s", name, err, mirror.ClassTimeout)
				case link.Latency > 0 && !link.Single:
					t.Errorf("%s: %v", name, err)
				case strings.Contains(err.Error(), storeSecret) || strings.Contains(err.Error(), "\n"):
					t.Errorf("%s: an error that shows too much: %q", name, err)
				}
			}
			testkit.Eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= idle })
		})
	}
}
