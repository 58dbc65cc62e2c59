package secret

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"blockd/internal/testkit"
)

func TestKeyIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, err := Read(path, 16); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Read of none: %v", err)
	}
	keys := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			key, err := Open(path, 16)
			testkit.Should(t, err)
			keys[i] = key
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != 16 || !bytes.Equal(k, keys[0]) {
			t.Errorf("key %x beside %x", k, keys[0])
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%d files are left", len(left))
	}
}

func TestKeysThatAreNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	for _, text := range []string{"", "00", strings.Repeat("0", 33), strings.Repeat("x", 32), strings.Repeat("0", 1<<20)} {
		testkit.Write(t, path, text)
		if _, err := Open(path, 16); err == nil || !strings.Contains(err.Error(), path+": want a key of 32 hexadecimal digits") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	testkit.Write(t, path, " "+strings.Repeat("0a", 16)+"\r\n")
	if key, err := Open(path, 16); err != nil || key[0] != 10 {
		t.Errorf("%x, %v", key, err)
	}
}
