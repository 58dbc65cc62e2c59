// Command packages makes the .deb, .rpm and .apk of one machine, as packaging/nfpm.yaml describes them.
//
//	VERSION=1.2.3 go run ./packages CONFIG MACHINE STAGE OUT
//
// STAGE is the folder with the files of the packages; OUT is where the packages go. Their times are SOURCE_DATE_EPOCH.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

func main() {
	if len(os.Args) != 5 || os.Getenv("VERSION") == "" || os.Getenv("SOURCE_DATE_EPOCH") == "" {
		fmt.Fprintln(os.Stderr, "usage: VERSION=1.2.3 SOURCE_DATE_EPOCH=SECONDS packages CONFIG MACHINE STAGE OUT")
		os.Exit(2)
	}
	for _, format := range []string{"deb", "rpm", "apk"} {
		if err := build(format, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintf(os.Stderr, "packages: .%s for %s: %v\n", format, os.Args[2], err)
			os.Exit(1)
		}
	}
}

func build(format, path, machine, stage, out string) error {
	set := map[string]string{"STAGE": stage, "MACHINE": machine, "VERSION": version(os.Getenv("VERSION"), format)}
	config, err := nfpm.ParseFileWithEnvMapping(path, func(name string) string { return set[name] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	name := filepath.Join(out, packager.ConventionalFileName(info))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := packager.Package(info, f); err != nil {
		f.Close()
		os.Remove(name)
		return err
	}
	return f.Close()
}

// version is v as the format writes it. An .apk knows no tilde: what comes before a release is "_pre" and the day.
func version(v, format string) string {
	before, after, found := strings.Cut(v, "~")
	if format != "apk" || !found {
		return v
	}
	day, _, _ := strings.Cut(after, ".")
	return before + "_pre" + day
}
