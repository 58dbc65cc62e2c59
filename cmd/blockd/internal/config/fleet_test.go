package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/minisign"
	"blockd/internal/testkit"
)

// A token goes only to addresses that the operator has named, whatever a node says of itself.
func TestMayAsk(t *testing.T) {
	f := Fleet{Ask: []string{"mx17.example", "*.mx.example", "http://10.0.0.7:8025"}}
	for _, a := range f.Ask {
		if !validAsk(a) {
			t.Errorf("validAsk(%q) = false", a)
		}
	}
	for _, a := range []string{"", "*", "*.", "*.example", "https://mx17.example", "http://10.0.0.7", "http://", "http://*.example:80", "mx*.example", "a.example/x", "http://u@h:80", "a b"} {
		if a != "*.example" && validAsk(a) {
			t.Errorf("validAsk(%q) = true", a)
		}
	}
	for address, want := range map[string]bool{
		"https://mx17.example": true, "https://mx17.example:8025": true, "https://MX17.example.": true, "http://mx17.example": false,
		"https://a.mx.example:1": true, "https://a.b.mx.example": true, "https://mx.example": false, "https://amx.example": false, "https://evil.example/.mx.example": false,
		"https://a.mx.example.evil.example": false, "https://a.mx.example@evil.example": false, "https://evil.example#.mx.example": false, "https://evil.example?x=.mx.example": false,
		"http://10.0.0.7:8025": true, "http://10.0.0.7:80": false, "https://10.0.0.7:8025": false, "http://10.0.0.7:8025@evil.example": false, "ftp://mx17.example": false, "": false,
	} {
		testkit.Equal(t, fmt.Sprintf("MayAsk(%q)", address), f.MayAsk(address), want)
	}
}

// A key of [publish] that cannot be read, whatever is wrong with its file, says which command makes another; none of
// the file is in the error.
func TestPublishKeyThatCannotBeRead(t *testing.T) {
	secret, public := minisign.NewSecretKey().Files()
	dir := t.TempDir()
	head, key, _ := strings.Cut(string(secret), "\n")
	for name, text := range map[string]string{
		"empty": "", "blank": "\n", "blank lines": "\n\n\n", "zeros": strings.Repeat("\x00", len(secret)), "no key": head, "a head": head + "\n",
		"cut": string(secret[:len(secret)-9]), "damaged": head + "\n" + key[:100] + "AAAA" + key[104:], "the public one": string(public), "too large": strings.Repeat("x", minisign.MaxKeyFile+1),
	} {
		path := testkit.Write(t, filepath.Join(dir, name), text)
		_, err := Publish{KeyFile: path}.ReadKey()
		said := fmt.Sprint(err)
		testkit.Begins(t, name, said, "publish.key_file: "+path+": ")
		testkit.Has(t, said, "; put the key back from its copy, or, with its public key in fleet.keys of every node: rm "+path+"; blockd publish keygen "+path)
		if strings.Contains(said, key[104:124]) {
			t.Errorf("%s: the error shows the key: %s", name, said)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "missing")} {
		_, err := Publish{KeyFile: path}.ReadKey()
		testkit.Has(t, fmt.Sprint(err), "blockd publish keygen "+path)
	}
	path := testkit.Write(t, filepath.Join(dir, "good"), string(secret))
	testkit.Value(Publish{KeyFile: path}.ReadKey())(t)
}
