package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The image is read back from the tar as another program would.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	var programs []string
	for _, machine := range []string{"amd64", "arm64"} {
		path := filepath.Join(dir, machine)
		if err := os.WriteFile(path, []byte("the program for "+machine), 0o700); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, machine+"="+path)
	}
	o := of{"1.2.3~20270131.g1a2b3c4", "1a2b3c4", time.Unix(1800000000, 0).UTC()}
	var tars [2][]byte
	for i := range tars {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := o.write(path, programs); err != nil {
			t.Fatal(err)
		}
		tars[i], _ = os.ReadFile(path)
	}
	if !bytes.Equal(tars[0], tars[1]) {
		t.Error("two images of the same programs differ")
	}

	folder := filepath.Join(dir, "layout")
	for name, f := range contents(t, bytes.NewReader(tars[0])) {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %+v, %v, want one index", manifest, err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	machines, err := index.IndexManifest()
	if err != nil || len(machines.Manifests) != 2 {
		t.Fatalf("the index has %+v, %v, want two images", machines, err)
	}
	for i, want := range []string{"amd64", "arm64"} {
		m := machines.Manifests[i]
		if m.Platform == nil || m.Platform.Architecture != want || m.Platform.OS != "linux" {
			t.Errorf("image %d is for %v, want linux/%s", i, m.Platform, want)
		}
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := config.Config
		if config.Architecture != want || c.User != "65532:65532" || !reflect.DeepEqual(c.Entrypoint, []string{"/usr/bin/blockd"}) ||
			!reflect.DeepEqual(c.Cmd, []string{"serve", "-c", "/etc/blockd/config.toml"}) || c.Healthcheck == nil || c.Labels["org.opencontainers.image.revision"] != "1a2b3c4" {
			t.Errorf("%s: configuration %+v", want, config)
		}
		flat := mutate.Extract(image)
		files := contents(t, flat)
		flat.Close()
		for name, header := range map[string]tar.Header{
			"etc/blockd/":                       {Mode: 0o755},
			"etc/ssl/certs/ca-certificates.crt": {Mode: 0o644},
			"tmp/":                              {Mode: 0o1777},
			"usr/bin/blockd":                    {Mode: 0o755},
			"var/lib/blockd/":                   {Mode: 0o750, Uid: user, Gid: user},
		} {
			if got, found := files[name]; !found || got.Mode != header.Mode || got.Uid != header.Uid || got.Gid != header.Gid {
				t.Errorf("%s: %s is %+v (there: %v), want mode %o of %d", want, name, got.Header, found, header.Mode, header.Uid)
			}
		}
		if len(files) != 14 {
			t.Errorf("%s: %d files, want 14: nothing but the program and what it needs", want, len(files))
		}
		if got := string(files["usr/bin/blockd"].text); got != "the program for "+want {
			t.Errorf("%s: the program is %q", want, got)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"].text) {
			t.Errorf("%s: no certificates", want)
		}
	}
}

type file struct {
	tar.Header
	text []byte
}

func contents(t *testing.T, r io.Reader) map[string]file {
	t.Helper()
	all := map[string]file{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		name := h.Name
		if h.Typeflag == tar.TypeDir && name[len(name)-1] != '/' {
			name += "/"
		}
		all[name] = file{*h, text}
	}
}
