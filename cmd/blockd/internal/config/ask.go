package config

import (
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"blockd/index"
	"blockd/policy/ask"
	"blockd/sources/snapshot"
)

// Breaker is [list.source.breaker]: when the source of a list with mode = "ask" is left alone.
type Breaker struct {
	// After so many questions in a row that got no answer.
	Failures int `toml:"failures" want:"1 to 1000"`
	// For how long; then it is tried again.
	Pause Duration `toml:"pause" want:"100ms to 10m"`
	// With how many questions at once.
	Probe int `toml:"probe" want:"1 to 100"`
}

// Asked reports whether the list stays in its source, which is asked.
func (l List) Asked() bool { return l.Source != nil && l.Source.Mode == "ask" }

// asked makes the path of a list that is asked that of its filter.
func (c Config) asked(l *List) {
	if l.Path == "" {
		l.Path = filepath.Join(c.Index.Path+".mirror", l.Name)
	}
	l.Path, l.Format = l.Path+".bdf", "entries"
	if kind, _ := l.Source.FilterFrom(); kind == filterSnapshot {
		l.Path = snapshot.FilterFile(c.FleetFolder(), l.Name)
	}
}

// fromSnapshot reports whether a list is asked by a filter that a publisher has made.
func (l List) fromSnapshot() bool {
	if !l.Asked() {
		return false
	}
	kind, _ := l.Source.FilterFrom()
	return kind == filterSnapshot
}

// Where the filter of a list that is asked comes from.
const (
	filterKeys       = "keys"
	filterRedisBloom = "redisbloom"
	filterRedisson   = "redisson"
	filterSnapshot   = "snapshot"
)

// FilterFrom says where the filter comes from: "keys", or the kind of another program's filter, with its key.
func (s Source) FilterFrom() (kind, key string) {
	kind, key, _ = strings.Cut(s.Filter, ":")
	if kind == "" {
		kind = filterKeys
	}
	return kind, key
}

// validateAsk checks the keys of mode = "ask".
func (s Source) validateAsk(f *Faults, key string) {
	f.wants(key+".breaker", reflect.ValueOf(s.Breaker))
	if s.Mode != "ask" {
		for name, set := range map[string]bool{"filter": s.Filter != "", "timeout": s.Timeout != nil, "cache": s.Cache != nil,
			"positive_ttl": s.PositiveTTL != nil, "negative_ttl": s.NegativeTTL != nil, "on_error": s.OnError != ""} {
			if set {
				f.add(key+"."+name, `goes with mode = "ask"`)
			}
		}
		return
	}
	if s.Kind != "redis" && s.Kind != "postgres" && s.Kind != "" {
		f.add(key+".mode", `"ask" goes with kind = "redis" or "postgres" in this version of blockd, have %q; want "copy"`, s.Kind)
	}
	if s.OnError != "" && s.OnError != "pass" && s.OnError != "tempfail" {
		f.oneOf(key+".on_error", s.OnError, "pass", "tempfail")
	}
	switch kind, name := s.FilterFrom(); {
	case kind == filterKeys && name == "" && s.Filter != "keys:":
	case kind == filterSnapshot && name == "" && s.Filter == filterSnapshot:
	case kind != filterRedisBloom && kind != filterRedisson || name == "":
		f.add(key+".filter", `want "keys", "snapshot", "redisbloom:KEY" or "redisson:KEY", have %q`, s.Filter)
	case s.Kind == "postgres":
		f.add(key+".filter", `want "keys" or "snapshot" with kind = "postgres", have %q`, s.Filter)
	}
}

// AskOptions are those of a list that is asked, but for its store.
func (c Config) AskOptions(l List) ask.Options {
	s := l.Source
	settings := c.ListSettings(l)
	settings.Format = ""
	return ask.Options{
		Source:  index.Source{List: l.Name, Path: "source", Settings: settings, Mode: l.mode(), Exceptions: l.Reach()},
		Timeout: time.Duration(or(s.Timeout, Duration(ask.DefaultTimeout))), Cache: or(s.Cache, ask.DefaultCache),
		Positive: time.Duration(or(s.PositiveTTL, Duration(ask.DefaultPositive))), Negative: time.Duration(or(s.NegativeTTL, Duration(ask.DefaultNegative))),
		Failures: s.Breaker.Failures, Pause: time.Duration(s.Breaker.Pause), Probes: s.Breaker.Probe,
		Defers: s.OnError == "tempfail", Match: l.sources(),
		Actions: true, // a hash may give each entry its own
	}
}

// Keeping says how the filter of a list that is asked is kept up to date, but for its source.
func (c Config) Keeping(l List) ask.Keeping {
	return ask.Keeping{Given: l.fromSnapshot(), Path: l.Path, Every: l.Source.Poll(), Reconcile: time.Duration(l.Source.Reconcile), MaxRows: int64(l.Source.MaxRows)}
}
