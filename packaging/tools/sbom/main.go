// Command sbom prints what is linked into a program of Go's, as SPDX 2.3 in JSON. It reads what Go has noted in the file.
//
//	go run ./sbom PROGRAM
package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM")
		os.Exit(2)
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err == nil {
		err = json.Write(document(info), os.Stdout, json.Indent(" "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// document is of the commit and not of now, so that two builds have the same one.
func document(info *buildinfo.BuildInfo) *spdx.Document {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	created, err := time.Parse(time.RFC3339, set["vcs.time"])
	if err != nil {
		created = time.Unix(0, 0)
	}
	name := "blockd-" + info.Main.Version + "-" + set["GOOS"] + "-" + set["GOARCH"]
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: "urn:blockd:sbom:" + set["vcs.revision"] + ":" + set["GOOS"] + "-" + set["GOARCH"],
		CreationInfo: &spdx.CreationInfo{Created: created.UTC().Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Organization", Creator: "The blockd authors"},
			{CreatorType: "Tool", Creator: info.GoVersion}}},
	}
	add := func(id, path, version, licence string) {
		p := &spdx.Package{PackageName: path, PackageSPDXIdentifier: common.ElementID(id), PackageVersion: version, PackageDownloadLocation: "NOASSERTION",
			PackageLicenseConcluded: licence, PackageLicenseDeclared: licence, PackageCopyrightText: "NOASSERTION"}
		if path != "blockd" {
			p.PackageExternalReferences = []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/" + path + "@" + version}}
		}
		d.Packages = append(d.Packages, p)
		from, relation := common.ElementID("Package-blockd"), "DEPENDS_ON"
		if path == "blockd" {
			from, relation = "DOCUMENT", "DESCRIBES"
		}
		d.Relationships = append(d.Relationships, &spdx.Relationship{RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: common.ElementID(id)}, Relationship: relation})
	}
	add("Package-blockd", "blockd", info.Main.Version, "Apache-2.0")
	add("Package-std", "std", info.GoVersion, "BSD-3-Clause")
	for _, m := range info.Deps {
		add("Package-"+plain(m), m.Path, m.Version, "NOASSERTION") // blockd version --licences has the texts
	}
	return d
}

var odd = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// plain is a module as an identifier of SPDX.
func plain(m *debug.Module) string { return odd.ReplaceAllString(m.Path, "-") }
