// Command licences writes what a program owes to those whose code is linked in: which modules, in which version, under
// which licence, with the texts. It reads the files of the module cache.
//
//	go run ./licences FOLDER PACKAGE   (in tools/; FOLDER has the program's go.mod)
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// platforms are those that `make dist` builds for. What is linked in differs a little.
var platforms = []string{"linux/amd64", "linux/arm64", "freebsd/amd64", "darwin/arm64"}

type module struct{ Path, Version, Dir string }

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: licences FOLDER PACKAGE")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, folder, pkg string) error {
	modules, err := linked(folder, pkg)
	if err != nil {
		return err
	}
	texts := map[string][]string{} // a text that several modules have stands once
	var order []string
	var table, notices strings.Builder
	for _, m := range modules {
		files, err := legal(m.Dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		ids := map[string]bool{}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			text = bytes.ReplaceAll(bytes.TrimSpace(text), []byte("\r\n"), []byte("\n"))
			if strings.HasPrefix(strings.ToUpper(filepath.Base(f)), "NOTICE") {
				fmt.Fprintf(&notices, "\n---- %s ----\n\n%s\n", m.Path, text)
				continue
			}
			for _, match := range licensecheck.Scan(text).Match {
				if match.ID != "GooglePatentsFile" { // a grant beside the licence, and no identifier of SPDX
					ids[match.ID] = true
				}
			}
			if texts[string(text)] == nil {
				order = append(order, string(text))
			}
			texts[string(text)] = append(texts[string(text)], m.Path)
		}
		if len(ids) == 0 {
			return fmt.Errorf("%s: no licence that is known; look at %s", m.Path, m.Dir)
		}
		all := slices.Sorted(func(yield func(string) bool) {
			for id := range ids {
				if !yield(id) {
					return
				}
			}
		})
		fmt.Fprintf(&table, "%s %s %s\n", m.Path, cmp.Or(m.Version, "-"), strings.Join(all, ","))
	}
	fmt.Fprintf(w, "%s", table.String())
	if notices.Len() > 0 {
		fmt.Fprintf(w, "\n==== Notices of these modules ====\n%s", notices.String())
	}
	for _, text := range order {
		fmt.Fprintf(w, "\n==== %s ====\n\n%s\n", strings.Join(texts[text], ", "), text)
	}
	return nil
}

// linked are the modules that pkg needs on any platform, and Go's own library.
func linked(folder, pkg string) ([]module, error) {
	byPath := map[string]module{}
	for _, p := range platforms {
		system, machine, _ := strings.Cut(p, "/")
		cmd := exec.Command("go", "list", "-deps", "-json=Module", pkg)
		cmd.Dir, cmd.Stderr = folder, os.Stderr
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+machine, "CGO_ENABLED=0", "GOWORK=off")
		out, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var one struct {
				Module *struct {
					module
					Main    bool
					Replace *module
				}
			}
			if err := d.Decode(&one); err == io.EOF {
				break
			} else if err != nil {
				return nil, err
			}
			if m := one.Module; m != nil && !m.Main {
				byPath[m.Path] = m.module
			}
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	all := []module{{"std", "", strings.TrimSpace(string(root))}}
	for _, m := range byPath {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

var legalName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)

// legal are the files of a module's own folder that say under which terms it may be used.
func legal(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && legalName.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, errors.New("no file with a licence")
	}
	return files, nil
}
