package reload

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"blockd/index"
)

// A small change of a large index acts before the index is built: it is put in front of the
// serving generation in memory (index.Update), and the build follows when the files have been
// quiet once more. A file that changes meanwhile ends that build, so that the next change does
// not wait for it either, and the next build waits for a longer quiet. A list that changes every few seconds is built
// once in maxOwed. The index on disk is that of the last build until then. After a
// crash it is seen to be of other lists, like any older one.

const (
	// defaultUpdateFrom is the size that a build takes about 0.1 s for. What is built so
	// fast needs no second way.
	defaultUpdateFrom = 200_000

	// watchEvery is how often a build that may give way looks at the files, a stat each.
	watchEvery = 200 * time.Millisecond

	// maxOwed is how long a build gives way to changes. Lists that never rest are built too: a build of ten million
	// entries takes some 20 s in which a change waits, and that is half a percent of an hour.
	maxOwed = time.Hour

	// maxTorn is how often in a row what was read is thrown away because files were replaced meanwhile.
	maxTorn = 3

	// mostCalm is the longest time that the lists must have been quiet for before a build that may have to give way.
	mostCalm = 5 * time.Minute
)

// errDisturbed ends a build that gives way to a change.
var errDisturbed = errors.New("a list has changed")

// update makes the lists as they are now serve from memory, if they differ little from the
// serving generation and pass the gate. Else (refused) a build follows, which says why if that is the
// fault of a list. Unfinished: files were replaced meanwhile, and what was read may be of two moments.
func (r *Reloader) update(ctx context.Context, v view) outcome {
	serving := r.live.Load()
	if serving == nil || len(v.faults) > 0 || len(r.lacks) > 0 {
		return refused
	}
	if keys, _ := serving.Counts(); keys < r.settings.updateFrom {
		return refused
	}
	ix, report, err := serving.Update(ctx, v.sources, index.Options{
		Cache: r.settings.Path + index.CacheSuffix, Hashes: r.settings.Hashes, Parse: r.settings.Parse, Workers: max(1, runtime.GOMAXPROCS(0)/2)}) // the others are for mail
	if err != nil {
		r.log.Debug("lists are built anew", slog.Any("reason", err))
		return refused
	}
	if now, _ := expand(r.settings.Lists); !sameStamps(stamps(now), v.stamps) && r.torn < maxTorn {
		r.torn++
		return unfinished
	}
	g, odd := r.gate(ix, ix.Lists(), nil)
	if len(odd) > 0 {
		return refused // the build holds back the odd list
	}
	if err := r.keepHeld(r.alsoHeld(g)); err != nil {
		r.log.Error("lists not updated in memory", slog.Any("error", err))
		return refused // the build says so as well
	}
	g.ix, g.bytes, g.seconds = ix, r.bytes, time.Since(v.began).Seconds()
	r.metrics.updates.Inc()
	if r.updated = time.Now(); !serving.Updated() {
		r.owed = r.updated
	}
	tellAccepted(r.log, g.accepted, ix, serving)
	r.serve(g, updated)
	r.decidedOn = contents(ix.Lists(), nil, v.contents)
	r.log.Info("lists updated in memory", slog.Int("files", report.Sources), slog.Int("keys", report.Keys), slog.Int64("bytes", report.Bytes))
	r.torn = 0
	return updated
}

// owes reports whether the serving generation is in memory alone and must be built.
func (r *Reloader) owes() bool {
	serving := r.live.Load()
	return serving != nil && serving.Updated()
}

// fold builds what serves from memory, which is no change of the lists. It gives way to a
// change of a file.
func (r *Reloader) fold(ctx context.Context, v view) (outcome, []problem) {
	calm, end := ctx, func() {}
	if time.Since(r.owed) < maxOwed {
		if time.Since(r.updated) < r.calmFor() {
			return yielded, nil
		}
		calm, end = r.calm(ctx, v)
	}
	v.faults = nil
	out, problems := r.build(calm, v)
	end()
	switch {
	case out == built:
		r.yielded, out = 0, folded
	case errors.Is(context.Cause(calm), errDisturbed):
		r.yielded++
		return yielded, nil
	}
	return out, problems
}

// calmFor is how long the lists must have been quiet for before what serves from memory is built: twice as long after each
// build in a row that had to give way.
func (r *Reloader) calmFor() time.Duration {
	if r.yielded == 0 {
		return 0
	}
	return min(r.settings.Quiet<<min(r.yielded, 16), mostCalm)
}

// calm returns a context that ends when a file is another one than in v, or at end.
func (r *Reloader) calm(ctx context.Context, v view) (calm context.Context, end func()) {
	calm, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-calm.Done():
				return
			case <-tick.C:
			}
			if now, _ := expand(r.settings.Lists); !sameStamps(stamps(now), v.stamps) {
				cancel(errDisturbed)
			}
		}
	}()
	return calm, func() {
		cancel(nil)
		<-done
	}
}
