package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// openapiTools are the programs of npm that read the document: peers.sh installs them.
func openapiTool(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(e2e.Root, "cmd/blockd/e2e/openapi/node_modules/.bin", name)
	if _, err := os.Stat(path); err != nil {
		testkit.Missing(t, "the tools of cmd/blockd/e2e/openapi are not installed (make peers)")
	}
	return path
}

// made runs a program in a folder; what it says is the test's if it fails.
func made(t *testing.T, dir, program string, args ...string) (out string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, text)
	}
	return string(text)
}

// TestDocumentIsLinted: two judges of OpenAPI documents have nothing to say.
func TestDocumentIsLinted(t *testing.T) {
	spectral, redocly := openapiTool(t, "spectral"), openapiTool(t, "redocly")
	document := filepath.Join(e2e.Root, "docs/openapi.json")
	made(t, filepath.Join(e2e.Root, "cmd/blockd/e2e/openapi"), spectral, "lint", "--fail-severity=hint", document)
	// Two resources lead a browser on, and have no other answer.
	if said := made(t, t.TempDir(), redocly, "lint", "--skip-rule=operation-2xx-response", document); !strings.Contains(said, "Your API description is valid") || strings.Contains(said, "Warning was generated") {
		t.Errorf("redocly:\n%s", said)
	}
}

// TestGeneratedClients has clients that others' generators make of the document compile, without a cast, and ask a real daemon.
func TestGeneratedClients(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"a\"\npath = \"a.txt\"\n", Files: map[string]string{"a.txt": "# spam\nbad.example\n"}})
	base, token := "http://"+d.HTTP, strings.TrimSpace(string(testkit.Read(t, d.Path("blockd.bdx.token"))))
	c := e2e.DialSMTP(t, d.SMTP)
	c.Command("MAIL FROM:<x@bad.example>")
	e2e.MustBegin(t, "a listed sender", c.Command("RCPT TO:<you@here.example>"), "550")
	document := filepath.Join(e2e.Root, "docs/openapi.json")

	generator, tsc, node := openapiTool(t, "openapi-typescript"), openapiTool(t, "tsc"), testkit.Peer(t, "node")
	dir := t.TempDir()
	for _, name := range []string{"client.ts", "node.d.ts", "tsconfig.json"} {
		testkit.Write(t, filepath.Join(dir, "typescript", name), string(testkit.Read(t, filepath.Join(e2e.Root, "cmd/blockd/e2e/openapi/typescript", name))))
	}
	testkit.Write(t, filepath.Join(dir, "package.json"), `{"type": "module"}`)
	testkit.Must(t, os.Symlink(filepath.Join(e2e.Root, "cmd/blockd/e2e/openapi/node_modules"), filepath.Join(dir, "node_modules")))
	made(t, dir, generator, document, "-o", "typescript/schema.ts")
	made(t, dir, tsc, "-p", "typescript")
	const answers = `a+b@bad.example blocked 2
x@ok.example clear -
bad.example blocked 2
y@bad.example blocked 2
added added added
three.example allow for good
two.example block for good
one.example block for good
refuse x@bad.example a
400 400
`
	testkit.Equal(t, "the client in TypeScript", made(t, dir, node, "built/client.js", base, token), answers)

	offline := exec.Command("go", "tool", "-n", "oapi-codegen")
	offline.Dir, offline.Env = filepath.Join(e2e.Root, "cmd/blockd/e2e/openapi/go"), append(os.Environ(), "GOPROXY=off")
	if out, err := offline.CombinedOutput(); err != nil {
		testkit.Missing(t, "the modules of cmd/blockd/e2e/openapi/go are not here (make peers): "+lastLine(out))
	}
	dir = filepath.Join(t.TempDir(), "go")
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		testkit.Write(t, filepath.Join(dir, name), string(testkit.Read(t, filepath.Join(e2e.Root, "cmd/blockd/e2e/openapi/go", name))))
	}
	testkit.Write(t, filepath.Join(dir, "api/doc.go"), "// Package api is made of docs/openapi.json.\npackage api\n")
	made(t, dir, "go", "tool", "oapi-codegen", "-package", "api", "-generate", "types,client", "-o", "api/api.go", document)
	made(t, dir, "go", "build", "-o", "client", ".")
	const said = `x@bad.example true 2
x@ok.example clear
bad.example blocked
three.example allow
two.example block
one.example block
400 400
`
	testkit.Equal(t, "the client in Go", made(t, dir, "./client", base, token), said)
}
