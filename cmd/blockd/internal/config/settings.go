package config

import (
	"context"

	"blockd/index/kept"
	"slices"
	"time"

	"blockd/internal/machine"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/reload"
	"blockd/sources/catalogue"
	"blockd/sources/snapshot"
)

// What follows hands the configuration to the packages, each of which has its
// own small struct of settings. It is called on a Config without faults only.

// Reload returns the settings of package reload; serve adds Recent, those who wrote lately.
func (c Config) Reload() reload.Settings {
	s := reload.Settings{Path: c.Index.Path, Quiet: time.Duration(c.Index.Quiet), Poll: time.Duration(c.Index.Poll), Hashes: c.Index.Digests()}
	s.Memory, _ = c.Index.Memory.Within(machine.Memory())
	for _, l := range c.Lists {
		if l.Asked() {
			continue // it is not in the index
		}
		list := reload.List{
			Name: l.Name, Path: l.files(), Named: l.ownFiles(), Settings: c.ListSettings(l), Mode: l.mode(), Exceptions: l.Reach(), Optional: l.Optional, AllowEmpty: l.AllowEmpty,
			MaxShrink: or(l.MaxShrink, c.Index.MaxShrink), MaxGrow: or(l.MaxGrow, c.Index.MaxGrow),
			MaxAge:           time.Duration(or(l.MaxAge, c.Index.MaxAge)),
			MaxRecentBlocked: or(l.MaxRecentBlocked, c.Index.MaxRecentBlocked),
			MaxFreed:         or(l.MaxFreed, c.Index.MaxFreed),
			Review:           l.Adopt == "review",
		}
		if c.OfFleet(l) {
			list.Files = snapshot.Shards(c.FleetFolder(), l.Name)
			list.Signed = func() bool { return c.Fleet.Pin != "" || snapshot.Chosen(c.FleetFolder(), c.Fleet.Channel) }
		}
		if l.URL != "" {
			list.Confirmed = l.remote().Checked
		}
		s.Lists = append(s.Lists, list)
	}
	if c.Live.Folder != None {
		s.Lists = append(s.Lists, c.liveList())
	}
	return s
}

// Kept is what lists held before, and which of them do not follow their files.
func (c Config) Kept() *kept.Store {
	return &kept.Store{Folder: c.Index.Path + kept.Suffix, Keep: c.Index.Keep, Bytes: int64(c.Index.KeepBytes)}
}

// Undoable are the lists that can be taken back: their entries are in the index.
func (c Config) Undoable() (names []string) {
	for _, l := range c.Lists {
		if !l.Asked() {
			names = append(names, l.Name)
		}
	}
	return names
}

// Adoptable says why a list that was rolled back cannot follow its files again. What waits of one that is reviewed is kept, whatever
// its files are.
func Adoptable(ctx context.Context, c Config, list string) error {
	all := c.Reload().Lists
	i := slices.IndexFunc(all, func(l reload.List) bool { return l.Name == list })
	if i < 0 || c.Reviews(list) {
		return nil
	}
	return reload.Adoptable(ctx, all[i])
}

// Reviews reports whether the loads of a list wait to be adopted.
func (c Config) Reviews(list string) bool {
	return slices.ContainsFunc(c.Lists, func(l List) bool { return l.Name == list && l.Adopt == "review" })
}

// RecentPath is where those who wrote lately are kept.
func (c Config) RecentPath() string { return c.Index.Path + reload.RecentSuffix }

// RollupPath is where the counts of charts are kept.
func (c Config) RollupPath() string { return c.Index.Path + ".rollup" }

// HitsPath is where the counts of hits are kept.
func (c Config) HitsPath() string { return c.Index.Path + ".hits" }

// PausesPath is where pauses of lists are kept.
func (c Config) PausesPath() string { return c.Index.Path + ".pauses" }

// ShareKeyPath is where the key is that places senders for lists with percent.
func (c Config) ShareKeyPath() string { return c.Index.Path + ".percent.key" }

// Shares reports whether some list counts for a share of senders alone.
func (c Config) Shares() bool {
	return slices.ContainsFunc(c.Lists, func(l List) bool { return or(l.Percent, 100) < 100 })
}

// ListSettings is how the files of l are read.
func (c Config) ListSettings(l List) lists.Settings {
	s := lists.Settings{Format: l.Format, Subdomains: l.Subdomains, Patterns: l.Patterns, Reason: l.Reason, Guard: c.Guard(l)}
	if l.Source != nil { // its files are the copy
		s.Format = "entries"
	}
	if l.PerRecipient {
		s.PerRecipient, s.MaxPerOwner = true, c.Recipients.MaxEntriesPerOwner
	}
	if l.Action == "allow" {
		s.Action = lists.Allow
	}
	return s
}

// Policy is what package policy goes by.
func (c Config) Policy() policy.Settings {
	s := policy.Settings{
		RecipientsExempt: c.SMTP.RecipientsExempt, OnError: rule.OnError(c.SMTP.OnError),
		Lists: map[string]rule.List{}, Owners: c.owners(),
		Auth: c.Auth.policy(), Contact: c.Refusal.Contact, Text: c.Refusal.Text,
		Correspondents: policy.Correspondents{Learn: c.Correspondents.Learn, Excuse: c.Correspondents.Excuse},
	}
	known := catalogued()
	for _, l := range c.Lists {
		s.Lists[l.Name] = rule.List{
			OnMatch: rule.OnMatch(l.OnMatch), Percent: or(l.Percent, 0), Tarpit: time.Duration(l.Tarpit), Discard: l.Discard, Match: l.sources(), Require: l.Proofs(),
			Text: l.Text, Contact: l.Contact, NoOverride: c.noOverride(l) && !l.PerRecipient,
			About: l.about(), Catalogue: known[l.URL],
		}
	}
	for _, p := range c.Policies {
		s.Policies = append(s.Policies, rule.Recipients(p))
	}
	return s
}

// about is what the configuration says of where the list comes from.
func (l List) about() lists.About {
	return lists.About{Homepage: l.Homepage, Complaints: l.Complaints, Licence: l.Licence}
}

// catalogued is what the catalogue says of lists, by their addresses; nothing is at "".
func catalogued() map[string]lists.About {
	known := map[string]lists.About{}
	all, err := catalogue.Lists()
	if err != nil {
		return known // a test reads it
	}
	for _, l := range all {
		known[l.URL] = lists.About{Complaints: lists.AboutLink(l.Complaints), Licence: l.Licence}
	}
	return known
}

// Policy is what package policy goes by, but for the resolver.
func (a Auth) policy() rule.Auth {
	return rule.Auth{Ignore: a.UnverifiedAllow == "ignore", Clients: Networks(a.Clients), Tempfail: a.OnDNSError == "tempfail"}
}
