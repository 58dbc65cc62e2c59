package reload

import (
	"blockd/internal/stamp"
	"context"
	"os"
	"slices"
)

// Follow makes another process the one that builds: from here on Run takes up the generations that it writes to
// Settings.Path, without a judgement of its own, since all new clients are judged by them. Small changes of lists still
// serve from memory at once, so that nobody waits for the build. Run writes nothing more. Follow(false) ends that.
//
// A generation of other lists than Settings.Lists is not taken up: what follows from a match in them would not be known.
//
// Any goroutine may call it. What Run is building just then it finishes.
func (r *Reloader) Follow(on bool) {
	r.following.Store(on)
	r.Replaced()
}

// follow is decide for one that follows.
func (r *Reloader) follow(ctx context.Context, v view) (outcome, []problem) {
	r.refusals = nil
	serving := r.live.Load()
	if info, err := os.Stat(r.settings.Path); err == nil && (r.followed == nil || !stamp.Same(info, r.followed)) {
		r.followed = info
		r.held = r.openHeld()
		r.heldKept = r.held
		if g := r.onDisk(); g != nil && g.ix.Generation() != serving.Generation() && g.holds(r.settings.Lists, r.pins) && g.ix.Hashes() == r.settings.Hashes {
			r.serve(g, adopted)
			r.decidedOn = nil
			return adopted, nil
		}
	}
	if len(v.faults) > 0 {
		return refused, v.faults
	}
	if slices.Equal(v.contents, contents(serving.Lists(), nil, nil)) {
		r.decidedOn = v.contents
		return unchanged, nil
	}
	if r.update(ctx, v) == updated {
		return updated, nil
	}
	return unfinished, nil // until the other process has built it
}
