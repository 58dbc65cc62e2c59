// Package keptfilter keeps filters for other programs up to date: after each new generation of
// the lists it writes them to files, or pushes them into a Redis. Mail never waits for it.
//
// One goroutine does all of it, one filter at a time, on a thread of low priority. The newest generation
// wins: one that comes while another is written is next, and those between are left out. The
// keeper rests as long as it has worked, so it takes half of one processor at most.
package keptfilter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/bloom/filter"
	"blockd/bloom/redisfilter"
	"blockd/doors/export"
	"blockd/index"
	"blockd/internal/durable"
	"blockd/internal/redisclient"
	"blockd/policy/rule"
)

// StateSuffix is what the state file is called after, beside the index.
const StateSuffix = ".filters"

// Filter is one filter to keep.
type Filter struct {
	Name string
	As   string // a kind of filter.Kinds, or of redisfilter.Kinds

	// To is the path of a file, as filter export's OUT, or the URL of a Redis. Key is the name in the
	// Redis, "" for a file. Neither log nor state shows a URL's password.
	To, Key string

	PasswordFile string // of the Redis; "": the URL's password, or none
	CAFile       string // of a Redis with TLS; "": those of the machine
	Shards       int    // in a Redis: redisfilter.OneKey, or a power of two

	Rate  float64         // of false positives
	Keys  export.KeyKinds // that are in it
	Lists []string        // that are in it; none: all that refuse
}

// Settings of a Keeper.
type Settings struct {
	Filters       []Filter
	State         string               // path of the file that remembers what was written
	Rules         map[string]rule.List // by list, as in export.Job
	IgnoreSenders bool                 // as in export.Job
	Live          func() *index.Index  // the generation in force; nil: what has become of filters is not looked at between two of them
}

// Status is how one filter is.
type Status struct {
	Name       string
	Where      string // path, or URL without user and password, and key
	Written    time.Time
	Generation string // that it has; "": it was never written
	Keys       int
	Patterns   int // that it lacks, for a filter has keys only
	Bytes      int64
	Error      string // why the last try failed; "": it did not
}

// The pauses after failures double from the first to the last.
const (
	firstPause = 5 * time.Second
	lastPause  = 10 * time.Minute
)

// lookEvery is how often it is looked whether filters are still there.
const lookEvery = time.Minute

// Keeper keeps filters. Served and Status may be called by any goroutine, Run by one.
type Keeper struct {
	settings Settings
	log      *slog.Logger
	metrics  metrics
	woken    chan struct{}
	wait     func(ctx context.Context, woken <-chan struct{}, d time.Duration) // until d is over, or one of both ends

	mu    sync.Mutex
	next  *index.Index // nil: all is written
	state map[string]record
	wrong map[string]string    // by name: the last error
	told  map[string]time.Time // by name: when it was logged
	look  <-chan time.Time
}

// record is what was written of a filter, as the state file has it.
type record struct {
	Settings   string           `json:"settings"` // that it was written by
	Generation string           `json:"generation"`
	Written    time.Time        `json:"written"`
	Keys       int              `json:"keys"`
	Patterns   int              `json:"patterns"`
	Bytes      int64            `json:"bytes"`
	Files      []export.Written `json:"files,omitempty"`
	Mark       string           `json:"mark,omitempty"` // of the one in a Redis (redisfilter.Server.Mark)
}

// New makes a Keeper. A state file that cannot be read means that nothing was written yet.
func New(s Settings, log *slog.Logger, reg prometheus.Registerer) *Keeper {
	k := &Keeper{settings: s, log: log, metrics: newMetrics(reg), woken: make(chan struct{}, 1), wait: wait, state: map[string]record{}, wrong: map[string]string{}, told: map[string]time.Time{}}
	if text, err := os.ReadFile(s.State); err == nil {
		if err := json.Unmarshal(text, &k.state); err != nil || k.state == nil {
			k.state = map[string]record{}
		}
	}
	for _, f := range s.Filters {
		k.metrics.failures.WithLabelValues(f.Name)
		k.metrics.show(f.Name, k.state[f.Name])
	}
	return k
}

// Served is told of each generation that has begun to serve. It never waits.
func (k *Keeper) Served(ix *index.Index) {
	if len(k.settings.Filters) == 0 {
		return
	}
	k.mu.Lock()
	k.next = ix
	k.mu.Unlock()
	select {
	case k.woken <- struct{}{}:
	default:
	}
}

// Run writes filters until ctx ends, and then leaves the old ones whole. It returns nil.
func (k *Keeper) Run(ctx context.Context) error {
	if len(k.settings.Filters) == 0 {
		return nil
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
	if err := gentle(); err != nil {
		k.log.Debug("filters are written with the priority of mail", slog.Any("error", err))
	}
	if k.look == nil {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		k.look = tick.C
	}
	pause := time.Duration(0)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-k.woken:
		case <-k.look:
			k.again()
		}
		began := time.Now()
		failed := k.round(ctx)
		k.rest(ctx, time.Since(began))
		if !failed {
			pause = 0
			continue
		}
		pause = min(max(2*pause, firstPause), lastPause)
		k.wait(ctx, k.woken, pause)
		select {
		case k.woken <- struct{}{}: // the same again, or what has come meanwhile
		default:
		}
	}
	return nil
}

// again has the filters of the generation in force looked at, if no other is to be written.
func (k *Keeper) again() {
	if k.settings.Live == nil {
		return
	}
	ix := k.settings.Live()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == nil {
		k.next = ix
	}
}

// rest waits as long as the last round took, at most a minute.
func (k *Keeper) rest(ctx context.Context, took time.Duration) {
	k.wait(ctx, nil, min(took, time.Minute))
}

func wait(ctx context.Context, woken <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-woken:
	case <-timer.C:
	}
}

// round writes the filters of the newest generation. It gives up when a newer one has come; its
// own round follows. After a failure the generation stays the next one.
func (k *Keeper) round(ctx context.Context) (failed bool) {
	ix := k.newest()
	if ix == nil {
		return false
	}
	for _, f := range k.settings.Filters {
		if ctx.Err() != nil || k.newest() != ix {
			return false
		}
		there, err := k.current(ctx, f, ix.Generation())
		if there && err == nil {
			k.well(f)
			continue
		}
		var r record
		if err == nil {
			r, err = k.write(ctx, f, ix)
		}
		if ctx.Err() != nil {
			return false
		}
		failed = failed || err != nil
		k.conclude(f, r, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !failed && k.next == ix {
		k.next = nil // it may end now, with its memory
	}
	return failed
}

func (k *Keeper) newest() *index.Index {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.next
}

// current reports whether a filter has a generation already, by these settings, and is there as it was written. The
// error says why that is not known.
func (k *Keeper) current(ctx context.Context, f Filter, generation string) (bool, error) {
	k.mu.Lock()
	r, ok := k.state[f.Name]
	k.mu.Unlock()
	if !ok || r.Generation != generation || r.Settings != f.fingerprint() {
		return false, nil
	}
	for _, file := range r.Files {
		if info, err := os.Stat(file.Path); err != nil || info.Size() != file.Bytes {
			return false, nil
		}
	}
	if f.Key == "" {
		return true, nil
	}
	server, err := dial(ctx, f)
	if err != nil {
		return false, err
	}
	defer server.Close()
	mark, err := server.Mark(ctx, f.Key)
	if there := mark == r.Mark && mark != ""; err != nil || there {
		return there, err
	}
	if r.Mark == "" {
		return false, nil // a version wrote it that left no mark: nothing is known to be wrong
	}
	k.log.Warn("filter is not there as it was written, and is written again", slog.String("filter", f.Name), slog.String("to", f.where()))
	return false, nil
}

// well notes that a filter is there as it was written.
func (k *Keeper) well(f Filter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.wrong, f.Name)
	delete(k.told, f.Name)
}

// dial connects to the Redis of a filter.
func dial(ctx context.Context, f Filter) (*redisfilter.Server, error) {
	o := redisclient.Options{URL: f.To, CAFile: f.CAFile}
	var err error
	if o.Password, err = password(f.PasswordFile); err != nil {
		return nil, err
	}
	return redisfilter.Dial(ctx, o)
}

// fingerprint is a text that differs for filters which are not written alike.
func (f *Filter) fingerprint() string {
	return fmt.Sprintf("%s %s %g %v %d %q", f.As, f.where(), f.Rate, f.Keys, f.Shards, f.Lists)
}

// where is the target as people may see it.
func (f *Filter) where() string {
	if f.Key == "" {
		return f.To
	}
	scheme, rest, _ := strings.Cut(f.To, "://")
	authority, path, slash := strings.Cut(rest, "/")
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	if slash {
		path, _, _ = strings.Cut("/"+path, "?")
	}
	return scheme + "://" + authority + path + "#" + f.Key
}

// write writes one filter.
func (k *Keeper) write(ctx context.Context, f Filter, ix *index.Index) (r record, err error) {
	job := export.Job{Index: ix, Lists: f.Lists, Rules: k.settings.Rules, IgnoreSenders: k.settings.IgnoreSenders}
	r = record{Settings: f.fingerprint(), Generation: ix.Generation()}
	if err := wantRows(ix, f.Lists); err != nil {
		return r, err
	}
	funnel, err := filter.ParseFunnel("utf8")
	if err != nil {
		return r, err
	}
	fill := func(sized func(n uint64) (filter.Filter, error)) (filter.Filter, error) {
		filled, err := job.Fill(ctx, f.Keys, funnel, sized)
		r.Keys, r.Patterns = filled.Keys, filled.Patterns
		return filled.Filter, err
	}
	if f.Key == "" {
		made, err := fill(func(n uint64) (filter.Filter, error) { return filter.New(f.As, n, f.Rate) })
		if err != nil {
			return r, err
		}
		if err := wantFiles(made.Files(f.To)); err != nil {
			return r, err
		}
		r.Files, err = export.WriteFiles(ctx, made, f.To)
		for _, file := range r.Files {
			r.Bytes += file.Bytes
		}
		return r, err
	}
	server, err := dial(ctx, f)
	if err != nil {
		return r, err
	}
	defer server.Close()
	target, err := server.Target(ctx, f.Key, f.As, f.Shards)
	if err != nil {
		return r, err
	}
	made, err := fill(func(n uint64) (filter.Filter, error) { return target.New(n, f.Rate) })
	if err != nil {
		return r, err
	}
	if err = target.Push(ctx, made, func(_, total int64) { r.Bytes = total }); err == nil {
		r.Mark, err = server.Mark(ctx, f.Key)
	}
	return r, err
}

// wantRows refuses names that no list of the generation has: the filter would lack all of it.
func wantRows(ix *index.Index, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(ix.Lists(), func(row index.ListInfo) bool { return row.Source.List == name }) {
			return fmt.Errorf("the generation has no list %q yet", name)
		}
	}
	return nil
}

// wantFiles refuses folders and devices, which a rename would replace.
func wantFiles(files []filter.File) error {
	for _, file := range files {
		if info, err := os.Stat(file.Path); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file, and stays as it is", file.Path)
		}
	}
	return nil
}

// password is the first line of a file, "" without one.
func password(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("%s: no password in its first line", file)
	}
	return line, nil
}

// toldEvery is how often the log says that a filter still cannot be written.
const toldEvery = time.Hour

// conclude makes known what became of a filter.
func (k *Keeper) conclude(f Filter, r record, err error) {
	k.mu.Lock()
	tell := false
	if err == nil {
		r.Written = time.Now().UTC()
		k.state[f.Name] = r
		delete(k.wrong, f.Name)
		delete(k.told, f.Name)
	} else {
		k.wrong[f.Name] = err.Error()
		if tell = time.Since(k.told[f.Name]) >= toldEvery; tell {
			k.told[f.Name] = time.Now()
		}
	}
	text, bad := json.Marshal(k.state)
	k.mu.Unlock()
	attrs := []any{slog.String("filter", f.Name), slog.String("to", f.where())}
	if err != nil {
		k.metrics.failures.WithLabelValues(f.Name).Inc()
		if tell {
			k.log.Error("filter not written", append(attrs, slog.Any("error", err))...)
		}
		return
	}
	k.metrics.show(f.Name, r)
	k.log.Info("filter written", append(attrs, slog.String("generation", r.Generation), slog.Int("keys", r.Keys), slog.Int64("bytes", r.Bytes))...)
	if err := cmp.Or(bad, durable.WriteFile(k.settings.State, text, 0o600)); err != nil {
		k.log.Warn("written filters are not remembered, and are written again after a restart", slog.Any("error", err))
	}
}

// Status is how the filters are, in the order of the configuration.
func (k *Keeper) Status() (all []Status) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.settings.Filters {
		r := k.state[f.Name]
		s := Status{Name: f.Name, Where: f.where(), Error: k.wrong[f.Name]}
		if r.Settings == f.fingerprint() {
			s.Written, s.Generation, s.Keys, s.Patterns, s.Bytes = r.Written, r.Generation, r.Keys, r.Patterns, r.Bytes
		}
		all = append(all, s)
	}
	return all
}

// Problems are filters that could not be written, or not be looked at, one line each.
func (k *Keeper) Problems() (lines []string) {
	for _, s := range k.Status() {
		if s.Error != "" {
			lines = append(lines, fmt.Sprintf("filter %s in %s: %s", s.Name, s.Where, s.Error))
		}
	}
	return lines
}

// SplitTarget splits what a configuration says of a target: a path, or URL#KEY.
func SplitTarget(to string) (place, key string, err error) {
	scheme, _, remote := strings.Cut(to, "://")
	if !remote {
		return to, "", nil
	}
	at := strings.LastIndexByte(to, '#')
	switch {
	case !redisclient.IsURL(to):
		return "", "", fmt.Errorf("want a path, or redis://HOST#KEY, have %s://", scheme)
	case at < 0 || at == len(to)-1:
		return "", "", errors.New("want the key of the filter after the URL: redis://HOST#KEY")
	}
	return to[:at], to[at+1:], nil
}
