package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// asProgram is in the environment of this binary when a test has started it as the program.
const asProgram = "BLOCKD_TEST_PROGRAM"

// TestMain has the tests of this package start this very binary where they want a process of its own. So Go knows that
// they depend on the whole program, and remembers their result until it changes.
func TestMain(m *testing.M) {
	builder := len(os.Args) == 2 && os.Args[1] == builderName // a daemon in a test has started its builder
	if os.Getenv(asProgram) != "" || builder {
		main()
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 2
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	// Daemons of tests hear the signals of this process. Where one has ended before its time, its own test is to fail,
	// and not all of them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	dir, err := os.MkdirTemp("", "blockd-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	root, err := testkit.FindRoot()
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	program := filepath.Join(dir, "blockd")
	if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nexport %s=1\nexec '%s' \"$@\"\n", asProgram, self), 0o755); err != nil {
		return 0, err
	}
	e2e.Use(program, root)
	if err := trustTestServers(dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// trustTestServers makes the certificate of httptest's servers the system's only one, as an operator makes that of a
// company: crypto/x509 reads it once a process.
func trustTestServers(dir string) error {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		return err
	}
	if err := os.Setenv("SSL_CERT_FILE", ca); err != nil {
		return err
	}
	return os.Setenv("SSL_CERT_DIR", filepath.Join(dir, "no such folder"))
}
