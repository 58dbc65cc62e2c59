// Package version says what this program is: by what packaging/version.sh has stamped, or else by what Go notes in every
// program that it builds.
package version

import (
	"cmp"
	"runtime/debug"
	"slices"
	"strings"
)

// stamped is set by the linker (-X blockd/cmd/blockd/internal/version.stamped=1.2.3), and by nobody else.
var stamped string

// Info is what is known of a program. What is not known is empty.
type Info struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`   // the whole hash
	Modified bool     `json:"modified"` // files had changed since that commit
	Date     string   `json:"date"`     // of the commit, by RFC 3339
	Go       string   `json:"go"`
	Platform string   `json:"platform"` // "linux/amd64"
	Flags    []string `json:"flags"`    // those of the build that make a difference; never null
	Modules  []Module `json:"modules"`  // what is linked in, by path; never null
}

// Module is a module that is linked in.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// String is the version alone: of a release "1.2.3"; else what Go makes of the commit; "(devel)" where nothing is known.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(stamped, "(devel)")
	}
	return cmp.Or(stamped, info.Main.Version, "(devel)")
}

// flags are the settings of a build that Info shows.
var flags = []string{"-tags", "-trimpath", "-race", "-compiler", "-buildmode", "CGO_ENABLED", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140"}

// Read is all that is known of this program.
func Read() Info {
	v := Info{Version: String(), Flags: []string{}, Modules: []Module{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
		if slices.Contains(flags, s.Key) && s.Value != "" {
			v.Flags = append(v.Flags, s.Key+"="+s.Value)
		}
	}
	v.Commit, v.Modified, v.Date = set["vcs.revision"], set["vcs.modified"] == "true", set["vcs.time"]
	v.Platform = strings.Trim(set["GOOS"]+"/"+set["GOARCH"], "/")
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		v.Modules = append(v.Modules, Module{m.Path, m.Version})
	}
	return v
}
