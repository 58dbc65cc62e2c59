package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
			Name: l.Name, Path: l.Path, Settings: l.settings(), Mode: l.mode(), Optional: l.Optional, AllowEmpty: l.AllowEmpty,
		})
	}
	return s
}

// sources are the files of all lists, as package reload finds them: in the order
// of the configuration, those of a glob by name, and without hidden files, which
// editors and copy programs leave behind.
func (c Config) sources() ([]index.Source, error) {
	var sources []index.Source
	for _, l := range c.Lists {
		paths := []string{l.Path}
		if _, err := os.Lstat(l.Path); err != nil && strings.ContainsAny(l.Path, "*?[") {
			if paths, err = filepath.Glob(l.Path); err != nil {
				return nil, err
			}
			paths = slices.DeleteFunc(paths, func(p string) bool { return strings.HasPrefix(filepath.Base(p), ".") })
			if len(paths) == 0 && !l.Optional {
				return nil, fmt.Errorf("%s: missing: no file matches", l.Path)
			}
		}
		for _, path := range paths {
			sources = append(sources, index.Source{List: l.Name, Path: path, Settings: l.settings(), Mode: l.mode(), Optional: l.Optional})
		}
	}
	return sources, nil
}

// allowsEmpty reports whether the list of that name may lose all its entries.
func (c Config) allowsEmpty(name string) bool {
	return slices.ContainsFunc(c.Lists, func(l List) bool { return l.Name == name && l.AllowEmpty })
}

// makeIndexFolder makes the folder of the index file, so that a fresh checkout
// runs. The file itself has mode 0600.
func (c Config) makeIndexFolder() error { return os.MkdirAll(filepath.Dir(c.Index.Path), 0o755) }

func (l List) settings() lists.Settings {
	s := lists.Settings{Format: l.Format, Subdomains: l.Subdomains, Reason: l.Reason}
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
