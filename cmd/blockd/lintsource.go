package main

import (
	"fmt"
	"io"
	"os"

	"blockd/index"
	"blockd/internal/config"
	"blockd/internal/term"
	"blockd/reload"
)

// lintSources says how each file is to be read: as the configuration has it if that
// names the file, else as the flags say. Flags that are given go first.
type lintSources struct {
	flags      index.Source
	given      func(flag string) bool
	configured []configuredFile
}

// configuredFile is a file of a configured list that is there.
type configuredFile struct {
	source index.Source
	info   os.FileInfo
}

// newLintSources reads the configuration at path. One that is not there, or has
// faults, is of no concern unless asked says that the user has named it.
func newLintSources(flags *listFlags, path string, asked bool, stderr io.Writer) (*lintSources, error) {
	settings, err := flags.settings()
	if err != nil {
		return nil, err
	}
	s := &lintSources{given: flags.cmd.Flags().Changed}
	s.flags = index.Source{List: "lint", Settings: settings}
	if s.flags.Exceptions, err = flags.reach(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil && !asked {
		return s, nil
	}
	c, err := config.Load(path)
	switch {
	case err != nil && asked:
		return nil, err
	case err != nil:
		fmt.Fprintf(stderr, "%s: note: %s has faults, so what it says of lists does not count; blockd config --check names them\n", flags.cmd.CommandPath(), term.Path(path))
		return s, nil
	}
	sources, _ := reload.Sources(c.Reload().Lists) // a list that is missing has no file to be linted
	for _, source := range sources {
		if info, err := os.Stat(source.Path); err == nil {
			s.configured = append(s.configured, configuredFile{source, info})
		}
	}
	return s, nil
}

// of is the source of a file, in whatever way its path is written.
func (s *lintSources) of(file string) index.Source {
	source := s.flags
	if info, err := os.Stat(file); err == nil {
		for _, c := range s.configured {
			if os.SameFile(c.info, info) {
				source = s.overridden(c.source)
				break
			}
		}
	}
	source.List, source.Path = "lint", file
	return source
}

// overridden is a configured source with what flags say otherwise.
func (s *lintSources) overridden(source index.Source) index.Source {
	set, flags := &source.Settings, &s.flags.Settings
	if s.given("format") {
		set.Format = flags.Format
	}
	if s.given("action") {
		set.Action = flags.Action
	}
	if s.given("subdomains") {
		set.Subdomains = flags.Subdomains
	}
	if s.given("patterns") {
		set.Patterns = flags.Patterns
	}
	if s.given("allow-public-suffix") || s.given("action") || s.given("exceptions") {
		set.Guard = flags.Guard // which depends on all three
	}
	if s.given("exceptions") {
		source.Exceptions = s.flags.Exceptions
	}
	return source
}
