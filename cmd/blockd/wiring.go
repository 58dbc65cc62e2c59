package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"blockd/index"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/machine"
	"blockd/reload"
)

// What follows hands the configuration to the packages, each of which has its
// own small struct of settings. It is called on a Config without faults only.

// reload returns the settings of package reload; serve adds Recent, those who wrote lately.
func (c Config) reload() reload.Settings {
	s := reload.Settings{Path: c.Index.Path, Quiet: time.Duration(c.Index.Quiet), Poll: time.Duration(c.Index.Poll)}
	s.Memory, _ = c.Index.Memory.within(machine.Memory())
	for _, l := range c.Lists {
		list := reload.List{
			Name: l.Name, Path: l.Path, Settings: c.settings(l), Mode: l.mode(), Exceptions: l.exceptions(), Optional: l.Optional, AllowEmpty: l.AllowEmpty,
			MaxShrink: or(l.MaxShrink, c.Index.MaxShrink), MaxGrow: or(l.MaxGrow, c.Index.MaxGrow),
			MaxAge:           time.Duration(or(l.MaxAge, c.Index.MaxAge)),
			MaxRecentBlocked: or(l.MaxRecentBlocked, c.Index.MaxRecentBlocked),
			MaxFreed:         or(l.MaxFreed, c.Index.MaxFreed),
		}
		if l.URL != "" {
			list.Confirmed = l.remote().Checked
		}
		s.Lists = append(s.Lists, list)
	}
	if c.Live.Folder != noPath {
		s.Lists = append(s.Lists, c.liveList())
	}
	return s
}

// recentPath is where those who wrote lately are kept.
func (c Config) recentPath() string { return c.Index.Path + reload.RecentSuffix }

// makeIndexFolder makes the folder of the index file, so that a fresh checkout
// runs. The file itself has mode 0600.
func (c Config) makeIndexFolder() error {
	if err := os.MkdirAll(filepath.Dir(c.Index.Path), 0o755); err != nil {
		return fmt.Errorf("index.path: %w", err)
	}
	return nil
}

// openIndex opens an index file for a command that asks it. config is where the
// configuration is that names the file, "" if the command line does.
func openIndex(file, config string) (*index.Index, error) {
	ix, err := reload.OpenIndex(file)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return ix, err
	case config == "":
		return nil, fmt.Errorf("%s: no index yet; blockd compile -o makes one", term.Path(file))
	}
	return nil, fmt.Errorf("%s: no index yet: start the daemon, or run: blockd compile -c %s", term.Path(file), config)
}

func (c Config) settings(l List) lists.Settings {
	s := lists.Settings{Format: l.Format, Subdomains: l.Subdomains, Patterns: l.Patterns, Reason: l.Reason, Guard: c.guard(l)}
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
