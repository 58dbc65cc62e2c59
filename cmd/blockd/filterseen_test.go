package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestFilterSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.bds")
	run := func(input, wantOut string, wantCode int, wantErr string, flags ...string) {
		t.Helper()
		code, out, errs := blockd(t, input, append(append([]string{"filter", "seen"}, flags...), path, "add-if-absent")...)
		if code != wantCode || out != wantOut || !strings.Contains(errs, wantErr) || wantErr == "" && errs != "" {
			t.Errorf("seen <%q: %d, %q, %q; want %d, %q, %q", input, code, out, errs, wantCode, wantOut, wantErr)
		}
	}
	run("a\nb\na\r\n\nc", "a\nb\nc\n", 0, "", "--size", "64 KiB", "--rotate-at", "0.4")
	run("a\nd\nc\n", "d\n", 0, "", "--max-age", "30d")
	run("", "", 0, "")
	run("e\n"+strings.Repeat("x", maxSender)+"\nf\n", "e\nf\n", 1, "1 lines of 16384 octets or more were left out")
	run("e\nf\n", "", 0, "")
	testkit.Write(t, path, "address,why\n")
	run("a\n", "a\n", 0, "no set of seen keys; it is "+path+".unreadable now, and an empty set begins")
	testkit.Equal(t, "put aside", string(testkit.Read(t, path+".unreadable")), "address,why\n")
}

func TestFilterSeenWrongWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.bds")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{path}, "want FILE.bds and add-if-absent"},
		{[]string{path, "add-if-abent"}, "did you mean add-if-absent?"},
		{[]string{"--rotate-at", "1", path, "add-if-absent"}, "--rotate-at: want a share from 0.01 to 0.9, have 1"},
		{[]string{"--rotate-at", "NaN", path, "add-if-absent"}, "--rotate-at: want a share"},
		{[]string{"--max-age", "30", path, "add-if-absent"}, "--max-age: want a time"},
		{[]string{"--size", "1 KiB", path, "add-if-absent"}, "--size: want 64 KiB to 1 GiB, have 1 KiB"},
		{[]string{"--size", "much", path, "add-if-absent"}, "--size: want octets"},
	} {
		testkit.Got(blockd(t, "", append([]string{"filter", "seen"}, c.args...)...))(t, fmt.Sprintf("%q", c.args), 2, "…", "…"+c.want+"…")
	}
}
