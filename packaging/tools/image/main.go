// Command image makes the image of a container, for amd64 and arm64 in one index, as a tar of an OCI layout.
//
//	VERSION=1.2.3 REVISION=COMMIT SOURCE_DATE_EPOCH=SECONDS go run ./image OUT MACHINE=PROGRAM...
//
// It has the static program and the certificates that a pinned module holds, and no shell.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const user = 65532

// of is what the image is of: all of it comes from the commit.
type of struct {
	version, revision string
	when              time.Time
}

func main() {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if len(os.Args) < 3 || err != nil || os.Getenv("VERSION") == "" || os.Getenv("REVISION") == "" {
		fmt.Fprintln(os.Stderr, "usage: VERSION=1.2.3 REVISION=COMMIT SOURCE_DATE_EPOCH=SECONDS image OUT MACHINE=PROGRAM...")
		os.Exit(2)
	}
	o := of{os.Getenv("VERSION"), os.Getenv("REVISION"), time.Unix(seconds, 0).UTC()}
	if err := o.write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write makes the file out. Each of programs is "MACHINE=PATH".
func (o of) write(out string, programs []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		machine, path, found := strings.Cut(p, "=")
		if !found {
			return fmt.Errorf("%q is not MACHINE=PROGRAM", p)
		}
		image, err := o.image(machine, path)
		if err != nil {
			return fmt.Errorf("%s: %w", machine, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: machine}}})
	}
	folder, err := os.MkdirTemp("", "blockd-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	// The one entry of the layout is the index of all machines, with the name that a load gives it.
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": strings.ReplaceAll(o.version, "~", "-"),
		"io.containerd.image.name":          "localhost/blockd:" + strings.ReplaceAll(o.version, "~", "-")})); err != nil {
		return err
	}
	return o.pack(folder, out)
}

func (o of) image(machine, program string) (v1.Image, error) {
	files, err := o.files(program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: o.when}, CreatedBy: "blockd"}, MediaType: types.OCILayer})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = machine, "linux", v1.Time{Time: o.when}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/usr/bin/blockd"},
		Cmd:        []string{"serve", "-c", "/etc/blockd/config.toml"},
		Env:        []string{"PATH=/usr/bin"},
		WorkingDir: "/var/lib/blockd",
		StopSignal: "SIGTERM",
		// OCI has no such field; Docker reads it all the same.
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/blockd", "health"}, Interval: 30 * time.Second, Timeout: 5 * time.Second, StartPeriod: 10 * time.Minute, Retries: 3},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "blockd",
			"org.opencontainers.image.description": "spam and blacklist filter for mail servers",
			"org.opencontainers.image.version":     o.version,
			"org.opencontainers.image.revision":    o.revision,
			"org.opencontainers.image.created":     o.when.Format(time.RFC3339),
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.vendor":      "The blockd authors",
		},
	}
	return mutate.ConfigFile(image, config)
}

// files is the one layer.
func (o of) files(program string) ([]byte, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file of certificates cannot say for which ones it counts
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name  string
		mode  int64
		owner int
		text  []byte
	}{
		{"etc/", 0o755, 0, nil},
		{"etc/blockd/", 0o755, 0, nil},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\nblockd:x:%d:\n", user)},
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nblockd:x:%d:%d:blockd:/var/lib/blockd:/sbin/nologin\n", user, user)},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, roots.Bytes()},
		{"tmp/", 0o1777, 0, nil},
		{"usr/", 0o755, 0, nil},
		{"usr/bin/", 0o755, 0, nil},
		{"usr/bin/blockd", 0o755, 0, text},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		{"var/lib/blockd/", 0o750, user, nil},
	} {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)), ModTime: o.when, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return b.Bytes(), err
}

// pack writes the files of the folder into a tar, in the order of their names.
func (o of) pack(folder, out string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: o.when, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
