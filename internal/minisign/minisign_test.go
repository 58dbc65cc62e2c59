package minisign

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func Example() {
	key := NewSecretKey()
	signature := key.Sign([]byte("bulk.example\n"), "timestamp:1795330000")
	comment, err := Verify([]PublicKey{key.Public()}, []byte("bulk.example\n"), signature)
	fmt.Println(comment, err)
	_, err = Verify([]PublicKey{key.Public()}, []byte("good.example\n"), signature)
	fmt.Println(err)
	// Output:
	// timestamp:1795330000 <nil>
	// the file is not the one that was signed
}

func TestKeysAreReadAsTheyWereWritten(t *testing.T) {
	key := NewSecretKey()
	secret, public := key.Files()
	again := testkit.Value(ParseSecretKey(secret))(t)
	testkit.MustEqual(t, "ParseSecretKey", again.Public(), key.Public())
	read := testkit.Value(ParsePublicKey("minisign:" + strings.Split(string(public), "\n")[1]))(t)
	testkit.MustEqual(t, "ParsePublicKey", read, key.Public())
	for at := range secret {
		damaged := append([]byte{}, secret...)
		damaged[at] ^= 1
		if k, err := ParseSecretKey(damaged); err == nil && k.Public() != key.Public() {
			t.Fatalf("octet %d altered: another key is read", at)
		}
	}
}

func TestEachOctetOfASignatureCounts(t *testing.T) {
	key, other := NewSecretKey(), NewSecretKey()
	text := []byte("bulk.example\n")
	signature := key.Sign(text, "blockd prod 1")
	keys := []PublicKey{other.Public(), key.Public()}
	testkit.MustEqual(t, "Verify", testkit.Value(Verify(keys, text, signature))(t), "blockd prod 1")
	first := strings.IndexByte(string(signature), '\n') + 1 // what is before it is the untrusted comment
	for at := first; at < len(signature)-1; at++ {
		for bit := range 8 {
			damaged := append([]byte{}, signature...)
			damaged[at] ^= 1 << bit
			if _, err := Verify(keys, text, damaged); err == nil {
				t.Fatalf("octet %d, bit %d altered: it is taken", at, bit)
			}
		}
	}
	testkit.Fails(Verify(keys[:1], text, signature))(t, "with another key", ErrAnotherKey)
}

// The program minisign takes what we sign and we what it signs, with the keys of either.
func TestTheProgramAgrees(t *testing.T) {
	program := testkit.Peer(t, "minisign")
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("minisign %q: %v\n%s", args, err, out)
		}
	}
	text := []byte(strings.Repeat("bulk.example\n", 1000))
	testkit.Write(t, at("list"), string(text))

	ours := NewSecretKey()
	secret, public := ours.Files()
	testkit.Write(t, at("ours"), string(secret))
	testkit.Write(t, at("ours.pub"), string(public))
	testkit.Write(t, at("list.minisig"), string(ours.Sign(text, "blockd prod 7")))
	run("-V", "-p", at("ours.pub"), "-m", at("list"), "-x", at("list.minisig"))
	run("-S", "-s", at("ours"), "-m", at("list"), "-x", at("again"), "-t", "blockd prod 8")
	signature := testkit.Read(t, at("again"))
	testkit.Equal(t, "signed by the program", testkit.Value(Verify([]PublicKey{ours.Public()}, text, signature))(t), "blockd prod 8")

	run("-G", "-W", "-s", at("theirs"), "-p", at("theirs.pub"))
	file := testkit.Read(t, at("theirs"))
	theirs, err := ParseSecretKey(file)
	if err != nil {
		t.Fatalf("a key of the program: %v", err)
	}
	testkit.Write(t, at("list.minisig"), string(theirs.Sign(text, "blockd prod 9")))
	run("-V", "-p", at("theirs.pub"), "-m", at("list"), "-x", at("list.minisig"))
}

func FuzzSignature(f *testing.F) {
	key := NewSecretKey()
	text := []byte("x")
	f.Add(key.Sign(text, "blockd prod 1"))
	f.Add([]byte("untrusted comment: a\nRUQ\ntrusted comment: b\nRUQ\n"))
	f.Fuzz(func(t *testing.T, signature []byte) {
		if comment, err := Verify([]PublicKey{key.Public()}, text, signature); err == nil && comment != "blockd prod 1" {
			t.Errorf("the comment %q is taken", comment)
		}
	})
}
