package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"blockd/sources/remote"
)

// maxListsFile bounds http.lists_file: a list there takes some 300 octets.
const maxListsFile = 1 << 20

// SubscribedFolder is where the copies of lists are that blockd subscribe and the console add.
func (c Config) SubscribedFolder() string {
	return filepath.Join(filepath.Dir(c.Index.Path), "subscribed")
}

// InListsFile reports whether a list stands in http.lists_file.
func (l List) InListsFile() bool { return l.added }

// listsOrigin says which of the lists of a configuration stand in http.lists_file, and where.
type listsOrigin struct {
	file         string // "": none
	first, count int    // of Config.Lists
	lines        positions
}

// of is the key in that file which is key in the configuration; ok is false for one that stands elsewhere.
func (o listsOrigin) of(key string) (inFile string, ok bool) {
	number, rest, found := strings.Cut(strings.TrimPrefix(key, "list["), "]")
	n, err := strconv.Atoi(number)
	if !found || err != nil || !strings.HasPrefix(key, "list[") || n < o.first || n >= o.first+o.count {
		return "", false
	}
	return fmt.Sprintf("list[%d]%s", n-o.first, rest), true
}

// addLists adds the lists of http.lists_file to c, whose paths are still relative to dir, its folder. text is what the file holds, or
// nil: it is read. The faults have the file, and a line if they need one that no key leads to.
func (c *Config) addLists(dir string, text []byte) (from listsOrigin, faults Faults) {
	if c.HTTP.ListsFile == "" {
		return from, nil
	}
	from = listsOrigin{file: resolved(dir, c.HTTP.ListsFile), first: len(c.Lists)}
	if text == nil {
		var err error
		if text, err = readLists(from.file); err != nil {
			return from, Faults{{File: from.file, Text: err.Error()}}
		}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		f := notTOML(err)
		f.File = from.file
		return from, Faults{f}
	}
	from.lines = findPositions(text)
	for key := range tree {
		if key != "list" {
			faults = append(faults, Fault{File: from.file, Line: from.lines.of(key), Key: key,
				Text: "this file may hold [[list]] alone; all else stands in config.toml"})
		}
	}
	d, read := decoder{}, Config{}
	if all, there := tree["list"]; there {
		d.value("list", all, reflect.ValueOf(&read.Lists).Elem())
	}
	for _, f := range d.faults {
		number, rest, _ := strings.Cut(strings.TrimPrefix(f.Key, "list["), "]")
		if n, err := strconv.Atoi(number); err == nil {
			f.Key = fmt.Sprintf("list[%d]%s", from.first+n, rest)
		} else {
			f.File, f.Line = from.file, from.lines.of(f.Key)
		}
		faults = append(faults, f)
	}
	from.count = len(read.Lists)
	for i, l := range read.Lists {
		l.added = true
		l.Path = c.addedPath(dir, l)
		c.validateAdded(&faults, dir, fmt.Sprintf("list[%d]", from.first+i), l)
		c.Lists = append(c.Lists, l)
	}
	return from, faults
}

// addedPath is where the copy of a list of http.lists_file is: where path says, or in the folder of all such copies.
func (c *Config) addedPath(dir string, l List) string {
	if l.Path == "" && listName.MatchString(l.Name) {
		return filepath.Join(c.subscribedIn(dir), l.Name)
	}
	return l.Path
}

func (c *Config) subscribedIn(dir string) string {
	return filepath.Join(filepath.Dir(resolved(dir, c.Index.Path)), "subscribed")
}

// validateAdded checks what a list may not have that people who are not the owner of this machine may add. Commands of root read this
// file too: it must not make them read or write files elsewhere, or log in to a database.
func (c *Config) validateAdded(f *Faults, dir, key string, l List) {
	const owner = ": a list of http.lists_file is fetched, and one of this machine stands in config.toml"
	if l.Source != nil {
		f.add(key+".source", "is not for this file%s", owner)
	} else if l.URL == "" {
		f.add(key+".url", "is missing%s", owner)
	}
	if l.InsecureHTTP {
		f.add(key+".insecure_http", "is not for this file: want an https address")
	}
	for _, address := range []struct{ key, text string }{{"url", l.URL}, {"checksum", strings.TrimPrefix(l.Checksum, "sha256:")}} {
		if u, err := url.Parse(address.text); err == nil && u.Scheme == "http" {
			f.add(key+"."+address.key, "want an https address, have one of http")
		}
	}
	if l.URL != "" && listName.MatchString(l.Name) {
		if want := filepath.Join(c.subscribedIn(dir), l.Name); resolved(dir, l.Path) != want {
			f.add(key+".path", "want %q, or leave it out: such copies are in that folder alone", want)
		}
	}
}

// readLists reads http.lists_file; there are no lists where there is no file.
func readLists(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return []byte{}, nil
	case err != nil:
		return nil, errors.Unwrap(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("http.lists_file is no file")
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("others than its owner may write this file, and so add lists: let its mode be 0640, have %#o", info.Mode().Perm())
	case info.Size() == 0:
		return nil, errors.New("empty, as while it is written or where the disk was full; if no list is meant, put a comment into it, or remove it")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxListsFile+1))
	if err == nil && len(text) > maxListsFile {
		err = fmt.Errorf("over %d MiB: this is no file of [[list]] tables", maxListsFile>>20)
	}
	return text, err
}

// resolved is a path that is relative to dir.
func resolved(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// Remote is a list with a url as package remote takes it, without Check. What people who are not the owner of this machine have added
// comes from the public internet, and from http.lists_from.
func (c Config) Remote(l List) remote.Source {
	s := l.remote()
	if s.Public = l.added; s.Public {
		s.Networks = Networks(c.HTTP.ListsFrom)
	}
	return s
}

// MayAdd says why a list of http.lists_file cannot be fetched from an address.
func (c Config) MayAdd(address string) error {
	err := c.Remote(List{Name: "list", URL: address, Path: "list", added: true}).Validate()
	if fault, ok := errors.AsType[*remote.SettingError](err); ok {
		return fault.Err
	}
	return err
}

// LoadLists is LoadToServe as if http.lists_file held text.
func LoadLists(path string, text []byte) (Config, error) {
	return loadToServe(path, append([]byte{}, text...)) // nil would mean to read it
}
