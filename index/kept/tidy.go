package kept

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Tidy counts what came and went in generations that are recorded, puts what does not serve any more into less room, and
// removes what is beyond the bounds. It is for the process that records, and may be ended at any time. notes are what went wrong
// and costs no more than room, or numbers.
func (s *Store) Tidy(ctx context.Context) (notes []string, err error) {
	s.work.Lock()
	defer s.work.Unlock()
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.ends.Store(&end)
	defer s.ends.Store(nil)
	all, err := s.Generations()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	pins, err := s.Pins()
	if err != nil {
		return nil, err
	}
	j := s.counting(all)
	r, err := s.run(ctx, j)
	if err != nil {
		return nil, err
	}
	counts := map[[2]string]Count{}
	for i, c := range r.Counts[:min(len(r.Counts), len(j.Count))] {
		counts[[2]string{j.Count[i].From.ID(), j.Count[i].To.ID()}] = c
		if c.Failed != "" {
			notes = append(notes, c.Failed)
		}
	}
	if r, err = s.run(ctx, s.packing(all, pins)); err != nil {
		return notes, err
	}
	notes = append(notes, r.Notes...)
	return notes, s.locked(func(pins []Pin) error {
		all, err := s.Generations() // one may have come meanwhile
		if err != nil {
			return err
		}
		uncounted(all, func(pair Pair, now *State) {
			if c, ok := counts[[2]string{pair.From.ID(), pair.To.ID()}]; ok && c.Failed == "" {
				now.Added, now.Removed = &c.Added, &c.Removed
			}
		})
		used := s.within(all, pins)
		if err := s.writeGenerations(used.some); err != nil {
			return err
		}
		s.sweep(used.segments)
		return nil
	})
}

// uncounted gives the lists of which is not known what came and went, with their contents before and then.
func uncounted(all []Generation, use func(Pair, *State)) {
	for i := 1; i < len(all); i++ {
		for k := range all[i].Lists {
			now := &all[i].Lists[k]
			if was, ok := all[i-1].Of(now.Name); ok && now.Added == nil && !now.unkept() {
				use(Pair{was, now.Files}, now)
			}
		}
	}
}

// counting is what is to be counted and can be: contents that are whole.
func (s *Store) counting(all []Generation) (j Job) {
	uncounted(all, func(pair Pair, _ *State) {
		for _, f := range slices.Concat(pair.From, pair.To) {
			if !exists(s.Whole(f)) {
				return
			}
		}
		j.Count = append(j.Count, pair)
	})
	return j
}

// packing is what need not be whole any more, each with what its list has in its place now.
func (s *Store) packing(all []Generation, pins []Pin) (j Job) {
	stays := map[string]bool{}
	for _, f := range pinned(pins) {
		stays[f.Segment] = true
	}
	last := &all[len(all)-1]
	for _, l := range last.Lists {
		for _, f := range l.Files {
			stays[f.Segment] = true
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		for _, l := range all[i].Lists {
			now, _ := last.Of(l.Name)
			for _, f := range l.Files {
				if stays[f.Segment] || !exists(s.Whole(f)) {
					continue
				}
				stays[f.Segment] = true
				p := Pack{Segment: f.Segment}
				if at := slices.IndexFunc(now, func(n File) bool { return string(n.Path) == string(f.Path) }); at >= 0 && exists(s.Whole(now[at])) {
					p.Base = now[at].Segment
				}
				j.Pack = append(j.Pack, p)
			}
		}
	}
	return j
}

func pinned(pins []Pin) (files Content) {
	for _, p := range pins {
		files = append(files, p.Content...)
		if p.Proposal != nil {
			files = append(files, p.Proposal.Content...)
		}
	}
	return files
}

// usage is what is to stay.
type usage struct {
	some     []Generation
	segments map[string]bool
}

// listed is a content of a list.
type listed struct{ list, content string }

// within finds what is within the bounds. The last generation is, and so is what lists are pinned to.
func (s *Store) within(all []Generation, pins []Pin) usage {
	var order []listed // the newest first
	number := map[string]int{}
	for i := len(all) - 1; i >= 0; i-- {
		for _, l := range all[i].Lists {
			c := listed{l.Name, l.Files.ID()}
			if !slices.Contains(order, c) && number[l.Name] < max(s.Keep, 1) {
				number[l.Name]++
				order = append(order, c)
			}
		}
	}
	least := 0
	if len(all) > 0 {
		least = len(all[len(all)-1].Lists)
	}
	u := s.use(all, pins, order)
	for len(order) > least && s.octets(u.segments) > s.Bytes {
		order = order[:len(order)-1]
		u = s.use(all, pins, order)
	}
	return u
}

// use are the generations that brought one of these contents, and what is needed for them.
func (s *Store) use(all []Generation, pins []Pin, order []listed) usage {
	u := usage{segments: map[string]bool{}}
	keeps := make(map[listed]bool, len(order))
	for _, c := range order {
		keeps[c] = true
	}
	for _, f := range pinned(pins) {
		u.segments[f.Segment] = true
	}
	for i := range all {
		brought := i == len(all)-1
		for _, l := range all[i].Lists {
			c := listed{l.Name, l.Files.ID()}
			if !keeps[c] {
				continue
			}
			for _, f := range l.Files {
				u.segments[f.Segment] = true
			}
			if i == 0 {
				brought = true
			} else if was, ok := all[i-1].Of(l.Name); !ok || !was.Equal(l.Files) {
				brought = true
			}
		}
		if brought {
			u.some = append(u.some, all[i])
		}
	}
	for more := true; more; { // and what differences are from
		more = false
		for name := range u.segments {
			if _, base, ok := s.fileOf(name); ok && base != "" && !exists(s.name(name, whole)) && !u.segments[base] {
				u.segments[base], more = true, true
			}
		}
	}
	return u
}

// octets is the room that contents take which no other file shares.
func (s *Store) octets(segments map[string]bool) (n int64) {
	files, _ := os.ReadDir(s.Folder)
	for _, f := range files {
		if !segments[contentOf(f.Name())] {
			continue
		}
		info, err := f.Info()
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Nlink < 2 {
			n += info.Size()
		}
	}
	return n
}

// contentOf is the content that a file of the folder is of; "" for another file.
func contentOf(file string) string {
	if name, _, ok := cutDelta(file); ok {
		return name
	}
	for _, form := range []string{whole, packed} {
		if name, ok := strings.CutSuffix(file, form); ok && isSegment(name) {
			return name
		}
	}
	return ""
}

// sweep removes the contents that are not used.
func (s *Store) sweep(used map[string]bool) {
	files, _ := os.ReadDir(s.Folder)
	for _, f := range files {
		if name := contentOf(f.Name()); name != "" && !used[name] {
			os.Remove(filepath.Join(s.Folder, f.Name()))
		}
	}
}
