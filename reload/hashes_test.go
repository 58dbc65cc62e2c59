package reload

import (
	"testing"

	"blockd/index"
	"blockd/mail/digest"
)

// Another setting of hashes is served as soon as it is built, and meanwhile the index that
// is there serves on. Small changes act on digests too.
func TestHashesAreBuiltWhenTheyAreConfigured(t *testing.T) {
	d := small(t, map[string]string{"a.txt": "x@bad.example\n"}).open()
	if d.Live().Hashes() != 0 {
		t.Fatalf("hashes %v", d.Live().Hashes())
	}
	for _, hashes := range []digest.Set{digest.SetOf(digest.SHA1), digest.SetOf(digest.MD5, digest.SHA1), 0} {
		d.settings.Hashes = hashes
		d.open()
		onDisk, err := index.Open(d.settings.Path)
		d.must(err)
		if d.Live().Hashes() != hashes || onDisk.Hashes() != hashes {
			t.Errorf("hashes %v serve, %v are on disk, want %v", d.Live().Hashes(), onDisk.Hashes(), hashes)
		}
		before := d.Live().Generation()
		if d.open(); d.Live().Generation() != before {
			t.Error("built again for nothing")
		}
	}
	d.settings.Hashes = digest.SetOf(digest.SHA1)
	d.open().start()
	lock := d.locked()
	d.served("a.txt", "x@bad.example\nnew@bad.example\n", "new@bad.example")
	if a, found, err := d.Live().AddressOf(digest.Of(digest.SHA1, "new@bad.example")); err != nil || !found || a.String() != "new@bad.example" {
		t.Errorf("AddressOf = %v, %v, %v", a, found, err)
	}
	lock.Discard()
	d.wait("the build", func() bool { return !d.Live().Updated() })
	if _, found, err := d.Live().AddressOf(digest.Of(digest.SHA1, "new@bad.example")); err != nil || !found {
		t.Errorf("AddressOf = %v, %v", found, err)
	}
}
