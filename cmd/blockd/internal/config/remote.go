package config

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"blockd/sources/remote"
)

// remote is Config.Remote without what only the configuration says.
func (l List) remote() remote.Source {
	return remote.Source{
		Name: l.Name, URL: l.URL, Insecure: l.InsecureHTTP, Path: l.Path,
		Every: time.Duration(or(l.Every, 0)), Checksum: l.Checksum, Signature: l.Signature,
	}
}

// validateRemote checks what a list says of its url. copies has the paths of such
// lists above, with their names.
func (c Config) validateRemote(l List, f *Faults, key string, copies map[string]string) {
	if l.URL == "" {
		for _, k := range []struct {
			name  string
			given bool
		}{{"every", l.Every != nil}, {"checksum", l.Checksum != ""}, {"signature", l.Signature != ""}, {"insecure_http", l.InsecureHTTP}} {
			if k.given {
				f.add(key+"."+k.name, "goes with url, and there is none")
			}
		}
		return
	}
	if strings.ContainsAny(l.Path, `*?[`) {
		f.add(key+".path", "want the one file that is to hold the copy, have the glob %q", l.Path)
	}
	if path := filepath.Clean(l.Path); l.Path != "" {
		if other, ok := copies[path]; ok {
			f.add(key+".path", "holds the copy of list %q", other)
		}
		copies[path] = l.Name
	}
	for _, err := range flat(c.Remote(l).Validate()) {
		fault, ok := errors.AsType[*remote.SettingError](err)
		switch {
		case ok && (fault.Key == "path" || fault.Key == "every"): // said above
		case ok && errors.Is(err, remote.ErrInsecure):
			f.add(key+"."+fault.Key, "%v, or insecure_http = true", fault.Err)
		case ok:
			f.add(key+"."+fault.Key, "%v", fault.Err)
		default:
			f.add(key, "%v", err)
		}
	}
}

// flat takes the error of errors.Join apart.
func flat(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
