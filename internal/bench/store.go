package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"blockd/index"
	"blockd/mail/addr"
)

// opens is how often a question opens a file: one time is too short to measure
// across a pipe.
const opens = 20

// store is an exact store of all keys.
type store struct {
	contestant
	open func() error // and ask for one key
}

// askStores measures exact look-ups of addresses that are parsed already.
func askStores(ctx context.Context, s settings, b *built, k *keys, r *report) error {
	t := &r.stores
	stores, err := indexStores(ctx, b.index, k)
	if err != nil {
		return err
	}
	const tinycdb = "tinycdb `cdb_find` (C)"
	if cdb, why := startTinycdb(ctx, b, k); why != "" {
		t.missing(tinycdb, why)
	} else {
		defer cdb.close()
		stores = append(stores, store{cdb.contestant(tinycdb), func() error {
			found, err := cdb.do("open")
			if err == nil && found != 1 {
				err = errLost
			}
			return err
		}})
	}
	bolt, db, err := boltStore(s, filepath.Join(filepath.Dir(b.index), "keys.bbolt"), k, &r.compile)
	if err != nil {
		return fmt.Errorf("bbolt: %w", err)
	}
	defer db.Close()
	stores = append(stores, bolt)

	var all []contestant
	for _, st := range stores {
		all = append(all, st.contestant)
	}
	columns := map[question]int{listed: storesListed, absent: storesAbsent}
	if err := contest(all, s.rounds, k, t, columns, nanoseconds, exactly(k, r)); err != nil {
		return err
	}
	for range s.rounds {
		for _, st := range stores {
			begun := time.Now()
			for range opens {
				if err := st.open(); err != nil {
					return fmt.Errorf("%s: %w", st.name, err)
				}
			}
			t.add(st.name, storesOpen, 1e3*time.Since(begun).Seconds()/opens)
		}
	}
	return nil
}

func nanoseconds(secondsEach float64) float64 { return 1e9 * secondsEach }

// errLost is what no store may do: one that was just opened lacks a key.
var errLost = errors.New("a listed key is not found after open")

// indexStores is blockd's index of addresses, asked for many at once and one by
// one. Its filter answers for most that is absent; what is listed costs filter and
// store.
func indexStores(ctx context.Context, path string, k *keys) ([]store, error) {
	ix, err := index.Open(path)
	if err == nil {
		err = ix.Promote(ctx)
	}
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var senders [2][]addr.Addr
	for i, texts := range [][]string{k.clear, k.listed} {
		for _, text := range texts {
			a, err := addr.Parse(text)
			if err != nil {
				return nil, err
			}
			senders[i] = append(senders[i], a)
		}
	}
	many := func(q question) (found int, err error) {
		var b index.Batch
		for part := range slices.Chunk(senders[q], together) {
			n, err := countBatch(ix, &b, part, now)
			if err != nil {
				return found, err
			}
			found += n
		}
		return found, nil
	}
	one := func(q question) (found int, err error) {
		dst := make([]index.Match, 0, 4)
		for _, a := range senders[q] {
			matches, err := ix.Lookup(dst, a, now)
			if err != nil {
				return found, err
			}
			found += len(matches)
		}
		return found, nil
	}
	open := func() error {
		ix, err := index.Open(path)
		if err != nil {
			return err
		}
		if matches, err := ix.Lookup(nil, senders[listed][0], now); err != nil || len(matches) != 1 {
			return errors.Join(err, errLost)
		}
		return nil
	}
	return []store{
		{contestant{fmt.Sprintf("**blockd `index.LookupBatch`** of %d", together), many}, open},
		{contestant{"blockd `index.Lookup`", one}, open},
	}, nil
}

// startTinycdb compiles and starts a program that asks tinycdb's library.
func startTinycdb(ctx context.Context, b *built, k *keys) (p *peer, why string) {
	if b.tinycdb == "" {
		return nil, "wants Debian's package tinycdb"
	}
	dir := filepath.Dir(b.tinycdb)
	source, program := filepath.Join(dir, "tinycdb.c"), filepath.Join(dir, "tinycdb")
	text, err := sources.ReadFile("peers/tinycdb.c")
	if err == nil {
		err = os.WriteFile(source, text, 0o600)
	}
	if err == nil {
		err = exec.CommandContext(ctx, "cc", "-O2", "-o", program, source, "-lcdb").Run()
	}
	if err == nil {
		p, err = startPeer(ctx, program, b.tinycdb, k.listedFile, k.clearFile)
	}
	if err != nil {
		return nil, "wants a C compiler and Debian's package libcdb-dev"
	}
	return p, ""
}

// boltStore builds a bbolt file as bbolt likes it best, keys in order and
// synced once at the end, and opens it.
func boltStore(s settings, path string, k *keys, compile *table) (store, *bbolt.DB, error) {
	rounds := s.buildRounds()
	if s.slow() {
		rounds = 1
	}
	name := "bbolt (Go), sorted"
	for range rounds {
		begun := time.Now()
		if err := buildBolt(path, k); err != nil {
			return store{}, nil, err
		}
		compile.add(name, compileSeconds, time.Since(begun).Seconds())
		info, err := os.Stat(path)
		if err != nil {
			return store{}, nil, err
		}
		compile.add(name, compileSize, float64(info.Size())/1e6)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return store{}, nil, err
	}
	get := func(db *bbolt.DB, keys []string) (found int, err error) {
		key := make([]byte, 0, 320)
		err = db.View(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket(boltBucket)
			for _, text := range keys {
				key = append(key[:0], text...)
				if bucket.Get(key) != nil {
					found++
				}
			}
			return nil
		})
		return found, err
	}
	ask := local("bbolt `Get` (Go)", k, func(keys []string) (int, error) { return get(db, keys) })
	return store{ask, func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		defer db.Close()
		if found, err := get(db, k.listed[:1]); err != nil || found != 1 {
			return errors.Join(err, errLost)
		}
		return nil
	}}, db, nil
}

var boltBucket = []byte("keys")

func buildBolt(path string, k *keys) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	keys, err := allLines(k.present, k.n)
	if err != nil {
		return err
	}
	slices.Sort(keys)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	defer db.Close()
	for piece := range slices.Chunk(keys, 100_000) {
		err := db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists(boltBucket)
			if err != nil {
				return err
			}
			bucket.FillPercent = 1
			for _, key := range piece {
				if err := bucket.Put([]byte(key), []byte{'1'}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return db.Sync()
}
