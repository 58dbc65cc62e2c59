package main

import (
	"os"
	"path/filepath"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/policy"
	"blockd/reload"
)

// What follows hands the configuration to the packages, each of which has its
// own small struct of settings. It is called on a Config without faults only.

func (c Config) reload() reload.Settings {
	s := reload.Settings{Path: c.Index.Path, Quiet: time.Duration(c.Index.Quiet), Poll: time.Duration(c.Index.Poll)}
	for _, l := range c.Lists {
		s.Lists = append(s.Lists, reload.List{
			Name: l.Name, Path: l.Path, Settings: c.settings(l), Mode: l.mode(), Optional: l.Optional, AllowEmpty: l.AllowEmpty,
			MaxShrink: or(l.MaxShrink, c.Index.MaxShrink), MaxGrow: or(l.MaxGrow, c.Index.MaxGrow),
		})
	}
	return s
}

// makeIndexFolder makes the folder of the index file, so that a fresh checkout
// runs. The file itself has mode 0600.
func (c Config) makeIndexFolder() error { return os.MkdirAll(filepath.Dir(c.Index.Path), 0o755) }

func (c Config) settings(l List) lists.Settings {
	s := lists.Settings{Format: l.Format, Subdomains: l.Subdomains, Reason: l.Reason, Guard: c.guard(l)}
	if l.Action == "allow" {
		s.Action = lists.Allow
	}
	return s
}

func (l List) mode() index.Mode {
	if l.Mode == "shadow" {
		return index.Shadow
	}
	return index.Enforce
}

func (c Config) policy() policy.Settings {
	return policy.Settings{RecipientsExempt: c.SMTP.RecipientsExempt, OnError: policy.OnError(c.SMTP.OnError)}
}
