package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

// Write makes the file at path hold text, with the folders above it, and returns path.
func Write[Text string | []byte](t testing.TB, path string, text Text) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// File is a file called name that holds text, in a folder of its own.
func File[Text string | []byte](t testing.TB, name string, text Text) (path string) {
	t.Helper()
	return Write(t, filepath.Join(t.TempDir(), name), text)
}

// Read returns what the file at path holds.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// OpenFiles counts the files that this process has open.
func OpenFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("open files cannot be counted on this system: ", err)
	}
	return len(all)
}
