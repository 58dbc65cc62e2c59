package config

import (
	"fmt"
	"path/filepath"
	"slices"

	"blockd/bloom/filter"
	"blockd/bloom/redisfilter"
	"blockd/doors/export"
	"blockd/doors/keptfilter"
	"blockd/index/live"
	"blockd/internal/spelling"
)

// KeptFilter is [[filter]], one table a filter: the lists as a Bloom filter of another program, written anew after each
// new generation (docs/filters.md). The names of filters, as those of lists, stand in logs and metrics.
type KeptFilter struct {
	// The name in the log, in metrics and in blockd lists: letters, digits and . _ -, at most 64.
	Name string `toml:"name"`
	// The kind of filter: guava, redisbloom, redisson or bits in a file; bitmap, redisbloom or redisson in a
	// Redis.
	As string `toml:"as"`
	// A file, as OUT of blockd filter export, or a Redis as its URL with the key: "redis://HOST#KEY".
	To string `toml:"to"`
	// The rate of false positives.
	P float64 `toml:"p" want:"1e-15 to 0.99"`
	// The keys that are in it, some of "address", "local" and "domain".
	Keys []string `toml:"keys"`
	// The names of the lists that are in it; [] is all that refuse.
	Lists []string `toml:"lists"`
	// A file with the password of the Redis in its first line.
	PasswordFile string `toml:"password_file,omitempty"`
	// A file with the CA of a Redis with TLS; without it those of the machine count.
	CAFile string `toml:"ca_file,omitempty"`
	// The number of parts in a Redis, a power of two; 0 is one key.
	Shards int `toml:"shards"`
}

func defaultFilter() KeptFilter {
	return KeptFilter{P: 0.01, Keys: []string{"address", "local", "domain"}, Lists: []string{}}
}

// validateFilters checks every [[filter]]. No fault shows a URL, which may hold a password.
func (c Config) validateFilters(f *Faults) {
	var lists []string
	for _, l := range c.Lists {
		lists = append(lists, l.Name)
	}
	if c.Live.Folder != None {
		lists = append(lists, live.ListName)
	}
	names, targets := map[string]bool{}, map[string]bool{}
	for i, k := range c.Filters {
		at := fmt.Sprintf("filter[%d]", i)
		switch {
		case !listName.MatchString(k.Name):
			f.add(at+".name", "want letters, digits and \"._-\", 64 at most, have %q", k.Name)
		case names[k.Name]:
			f.add(at+".name", "another [[filter]] is named %q", k.Name)
		}
		if targets[k.To] && k.To != "" {
			f.add(at+".to", "another [[filter]] is written there")
		}
		for _, l := range c.Lists {
			if filepath.Clean(k.To) == filepath.Clean(l.Path) {
				f.add(at+".to", "the list %q is read there", l.Name)
			}
		}
		if filepath.Clean(k.To) == filepath.Clean(c.Index.Path) {
			f.add(at+".to", "the index is there")
		}
		names[k.Name], targets[k.To] = true, true
		k.validate(f, at)
		for n, name := range k.Lists {
			if !slices.Contains(lists, name) && !c.Fleet.On() { // which lists a fleet has is known later
				f.add(fmt.Sprintf("%s.lists[%d]", at, n), "no [[list]] is named %q%s", name, spelling.Hint(name, "", lists))
			}
		}
	}
}

func (k KeptFilter) validate(f *Faults, at string) {
	_, key, err := keptfilter.SplitTarget(k.To)
	kinds := redisfilter.Kinds()
	if key == "" {
		kinds = slices.DeleteFunc(filter.Kinds(), func(kind string) bool { return kind == "bitmap" })
	}
	switch {
	case k.To == "":
		f.add(at+".to", "is missing; want a file, or \"redis://HOST#KEY\"")
	case err != nil:
		f.add(at+".to", "%v", err)
	}
	if err == nil {
		f.oneOf(at+".as", k.As, kinds...)
	}
	if _, bad := k.kinds(); bad != nil {
		f.add(at+".keys", "%v", bad)
	}
	if n := k.Shards; n != 0 && (n < 2 || n > filter.MaxShards || n&(n-1) != 0) {
		f.add(at+".shards", "want 0, or a power of two from 2 to %d, have %d", filter.MaxShards, n)
	}
	if key != "" || err != nil {
		return
	}
	for name, set := range map[string]bool{"password_file": k.PasswordFile != "", "ca_file": k.CAFile != "", "shards": k.Shards != 0} {
		if set {
			f.add(at+"."+name, "goes with a Redis, and \"to\" is a file")
		}
	}
}

// kinds are its kinds of keys.
func (k KeptFilter) kinds() (all export.KeyKinds, err error) {
	if len(k.Keys) == 0 {
		return all, fmt.Errorf("want some of \"address\", \"local\" and \"domain\", have none")
	}
	for _, word := range k.Keys {
		one, err := export.ParseKeyKinds(word)
		if err != nil {
			return all, fmt.Errorf("want some of \"address\", \"local\" and \"domain\", have %q", word)
		}
		all.Addresses, all.Locals, all.Domains = all.Addresses || one.Addresses, all.Locals || one.Locals, all.Domains || one.Domains
	}
	return all, nil
}

// relativeTo makes its paths those of a process anywhere.
func (k *KeptFilter) relativeTo(resolve func(*string)) {
	if _, key, err := keptfilter.SplitTarget(k.To); err == nil && key == "" {
		resolve(&k.To)
	}
	resolve(&k.PasswordFile)
	resolve(&k.CAFile)
}

// KeptFilters are the settings of package keptfilter.
func (c Config) KeptFilters() keptfilter.Settings {
	s := keptfilter.Settings{State: filepath.Clean(c.Index.Path + keptfilter.StateSuffix), Rules: c.Policy().Lists, IgnoreSenders: c.Auth.UnverifiedAllow == "ignore"}
	for _, k := range c.Filters {
		to, key, _ := keptfilter.SplitTarget(k.To) // Validate has seen it
		kinds, _ := k.kinds()
		s.Filters = append(s.Filters, keptfilter.Filter{Name: k.Name, As: k.As, To: to, Key: key, PasswordFile: k.PasswordFile, CAFile: k.CAFile,
			Shards: k.Shards, Rate: k.P, Keys: kinds, Lists: k.Lists})
	}
	return s
}
