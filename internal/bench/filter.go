package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/FastFilter/xorfilter"
	peerbloom "github.com/bits-and-blooms/bloom/v3"
	"github.com/zeebo/xxh3"

	"blockd/bloom"
)

// filter is a contestant that is built of all keys first.
type filter struct {
	contestant
	build func() (bits float64, err error)
}

// askFilters measures the approximate half alone. All figures include hashing.
func askFilters(ctx context.Context, s settings, k *keys, r *report) error {
	t := &r.filters
	all, err := allLines(k.present, k.n)
	if err != nil {
		return err
	}
	batch, one := splitBlock(all, k)
	filters := []filter{batch, fuse(all, k), plainBloom(all, k), plainMap(all, k)}
	const guava = "Guava 31, 1 % (Java)"
	if p, why := startGuava(ctx, filepath.Dir(k.present), k); why != "" {
		t.missing(guava, why)
	} else {
		defer p.close()
		filters = append(filters, filter{p.contestant(guava), func() (float64, error) {
			n, err := p.do("build")
			return float64(n), err
		}})
	}
	t.row(batch.name)
	t.row(one.name) // the same filter: it stands beside it and is built with it
	for range s.buildRounds() {
		for _, f := range filters {
			runtime.GC() // nobody collects what another has left
			begun := time.Now()
			bits, err := f.build()
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			t.add(f.name, filtersBuild, nanoseconds(time.Since(begun).Seconds()/float64(k.n)))
			if bits > 0 {
				t.add(f.name, filtersBits, bits/float64(k.n))
			}
		}
	}
	runtime.GC()
	contestants := []contestant{batch.contestant, one}
	for _, f := range filters[1:] {
		contestants = append(contestants, f.contestant)
	}
	columns := map[question]int{absent: filtersAbsent, listed: filtersListed, absentTwo: filtersAbsentTwo}
	rates := map[string]bool{}
	check := func(c contestant, q question, found int) error {
		if q == listed && found != len(k.listed) {
			return fmt.Errorf("%s: %d of %d listed keys are not found", c.name, len(k.listed)-found, len(k.listed))
		}
		if q == absent && !rates[c.name] { // the same in every round
			rates[c.name] = true
			t.add(c.name, filtersRate, 100*float64(found)/float64(len(k.clear)))
		}
		return nil
	}
	return contest(contestants, s.rounds, k, t, columns, nanoseconds, check)
}

// splitBlock is blockd's filter, asked in batches as a sender's keys are, and
// asked a key at a time as the others are.
func splitBlock(all []string, k *keys) (batch filter, one contestant) {
	var f *bloom.Filter
	var seed bloom.Seed
	rand.Read(seed[:]) // never fails
	build := func() (float64, error) {
		b := bloom.NewBuilder(uint64(k.n), bloom.DefaultBitsPerKey)
		var hs [bloom.BatchSize]bloom.Hash
		for keys := all; len(keys) > 0; {
			n := min(len(keys), len(hs))
			for i, key := range keys[:n] {
				hs[i] = seed.SumString(key)
			}
			b.AddBatch(hs[:n])
			keys = keys[n:]
		}
		f = b.Filter()
		return float64(f.Blocks()) * bloom.BlockBits, nil
	}
	batches := func(keys []string) (found int, err error) {
		var hs [bloom.BatchSize]bloom.Hash
		for len(keys) > 0 {
			n := min(len(keys), len(hs))
			for i, key := range keys[:n] {
				hs[i] = seed.SumString(key)
			}
			found += bits.OnesCount32(f.HasBatch(hs[:n]))
			keys = keys[n:]
		}
		return found, nil
	}
	single := func(keys []string) (found int, err error) {
		for _, key := range keys {
			if f.Has(seed.SumString(key)) {
				found++
			}
		}
		return found, nil
	}
	return filter{local("**blockd, batches of 32**", k, batches), build}, local("blockd, a key at a time", k, single)
}

func fuse(all []string, k *keys) filter {
	var f *xorfilter.BinaryFuse8
	build := func() (float64, error) {
		hashes := make([]uint64, len(all))
		for i, key := range all {
			hashes[i] = xxh3.HashString(key)
		}
		var err error
		f, err = xorfilter.PopulateBinaryFuse8(hashes)
		if err != nil {
			return 0, err
		}
		return 8 * float64(len(f.Fingerprints)), nil
	}
	return filter{local("FastFilter BinaryFuse8, XXH3", k, func(keys []string) (found int, err error) {
		for _, key := range keys {
			if f.Contains(xxh3.HashString(key)) {
				found++
			}
		}
		return found, nil
	}), build}
}

func plainBloom(all []string, k *keys) filter {
	var f *peerbloom.BloomFilter
	build := func() (float64, error) {
		f = peerbloom.NewWithEstimates(uint(k.n), 0.01)
		for _, key := range all {
			f.AddString(key)
		}
		return float64(f.Cap()), nil
	}
	return filter{local("bits-and-blooms, 1 %", k, func(keys []string) (found int, err error) {
		for _, key := range keys {
			if f.TestString(key) {
				found++
			}
		}
		return found, nil
	}), build}
}

func plainMap(all []string, k *keys) filter {
	var m map[string]struct{}
	build := func() (float64, error) {
		m = make(map[string]struct{}, len(all))
		for _, key := range all {
			m[key] = struct{}{}
		}
		return 0, nil
	}
	return filter{local("`map[string]struct{}`", k, func(keys []string) (found int, err error) {
		for _, key := range keys {
			if _, ok := m[key]; ok {
				found++
			}
		}
		return found, nil
	}), build}
}

// guavaJar is where Debian's package has it.
const guavaJar = "/usr/share/java/guava.jar"

// startGuava starts a Java program from its source, which takes a JDK.
func startGuava(ctx context.Context, dir string, k *keys) (p *peer, why string) {
	const wants = "wants a JDK of version 11 or later and Debian's package libguava-java"
	if _, err := os.Stat(guavaJar); err != nil {
		return nil, wants
	}
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, wants
	}
	source := filepath.Join(dir, "Guava.java")
	text, err := sources.ReadFile("peers/Guava.java")
	if err == nil {
		err = os.WriteFile(source, text, 0o600)
	}
	if err == nil {
		p, err = startPeer(ctx, "java", "-cp", guavaJar, source, k.present, k.listedFile, k.clearFile)
	}
	if err == nil {
		// The first build is to come after its start, and after its warming up.
		_, err = p.do("absent")
	}
	if err != nil {
		return nil, wants + ": " + err.Error()
	}
	return p, ""
}
