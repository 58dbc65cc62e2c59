package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	blockd "blockd/doors/httpapi/client"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// TestHTTPDocument types what docs/http.md shows, at a daemon with the list that it names.
func TestHTTPDocument(t *testing.T) {
	testkit.Peer(t, "curl")
	list := testkit.Value(os.ReadFile(filepath.Join(e2e.Root, "testdata/lists/example.txt")))(t)
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"example\"\npath = \"example.txt\"\nformat = \"plain\"\n", Files: map[string]string{"example.txt": string(list)}})
	blocks := e2e.Consoles(t, "docs/http.md")
	if len(blocks) < 6 {
		t.Fatalf("docs/http.md has %d console blocks", len(blocks))
	}
	for _, block := range blocks {
		for i := range block {
			block[i].Text = strings.ReplaceAll(block[i].Text, "127.0.0.1:8025", d.HTTP)
		}
		e2e.Perform(t, "docs/http.md", d.Dir, nil, block)
	}
}

// TestHTTPClients runs the programs of docs/http.md.
func TestHTTPClients(t *testing.T) {
	python := testkit.Peer(t, "python3")
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"a\"\npath = \"a.txt\"\n", Files: map[string]string{"a.txt": "bad.example\n"}})
	base := "http://" + d.HTTP
	for _, tt := range []struct{ language, file, call, want string }{
		{"python", "ask.py", "\nprint(verdict('a+b@bad.example', '" + base + "'), verdict('x@good.example', '" + base + "'))\n", "blocked clear\n"},
		{"js", "ask.mjs", "\nconsole.log(await verdict('a+b@bad.example', '" + base + "'), await verdict('x@good.example', '" + base + "'))\n", "blocked clear\n"},
		{"go", "ask.go", "\nfunc main() { fmt.Println(check(\"" + base + "\", \"\", []string{\"a+b@bad.example\", \"x@good.example\"})) }\n",
			"[{a+b@bad.example blocked} {x@good.example clear}] <nil>\n"},
	} {
		blocks := e2e.Fenced(t, "docs/http.md", tt.language)
		if len(blocks) != 1 {
			t.Fatalf("docs/http.md has %d blocks of %s, want one", len(blocks), tt.language)
		}
		path := testkit.File(t, tt.file, blocks[0]+tt.call)
		command := exec.Command(python, path)
		switch tt.language {
		case "go":
			command = exec.Command("go", "run", path)
		case "js":
			command = exec.Command(testkit.Peer(t, "node"), path)
		}
		if out, err := command.CombinedOutput(); err != nil || string(out) != tt.want {
			t.Errorf("%s printed %q, %v; want %q", tt.file, out, err, tt.want)
		}
	}
}

// judge is a validator of documents and answers that is none of ours: it reads a
// document, and answers each with its place in it.
const judge = `
import json, sys
from openapi_spec_validator import validate
from jsonschema import Draft202012Validator
work = json.load(open(sys.argv[1]))
validate(work["document"])
for a in work["answers"]:
    schema = {"components": work["document"]["components"], "allOf": [a["schema"]]}
    for e in Draft202012Validator(schema).iter_errors(a["value"]):
        print(a["what"], e.message)
print("judged", len(work["answers"]))
`

// TestHTTPDocumentIsValid has the document and real answers judged by validators of
// OpenAPI 3.1 and JSON Schema 2020-12.
func TestHTTPDocumentIsValid(t *testing.T) {
	python := testkit.Peer(t, "python3")
	if out, err := exec.Command(python, "-c", "import openapi_spec_validator, jsonschema").CombinedOutput(); err != nil {
		testkit.Missing(t, "Python's openapi-spec-validator is not installed: "+lastLine(out))
	}
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"a\"\npath = \"a.txt\"\n", Files: map[string]string{"a.txt": "bad.example\n192.0.2.0/24\n"}})
	var document struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema json.RawMessage `json:"schema"`
				} `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
	}
	whole := d.Fetch(t, "/openapi.json")
	testkit.Must(t, json.Unmarshal(whole, &document))
	type judged struct {
		What   string          `json:"what"`
		Schema json.RawMessage `json:"schema"`
		Value  json.RawMessage `json:"value"`
	}
	var answers []judged
	add := func(what, path, method, contentType string, value []byte) {
		answers = append(answers, judged{what, document.Paths[path][method].Responses["200"].Content[contentType].Schema, value})
	}
	for _, target := range []string{"/v1/check?sender=a@bad.example", "/v1/check?sender=a@ok.example&client=192.0.2.1&explain=1", "/v1/check?domain=bad.example&explain=1",
		"/v1/check?ip=100::2", "/v1/check?sender=a%20b&explain=1", "/v1/lists", "/v1/entries"} {
		path, _, _ := strings.Cut(target, "?")
		add(target, path, "get", "application/json", d.Fetch(t, target))
	}
	d.Must(t, "add", "one.example", "--why", "a test", "--for", "1h")
	add("entries", "/v1/entries", "get", "application/json", d.Fetch(t, "/v1/entries"))
	res := testkit.Value(http.Post("http://"+d.HTTP+"/v1/check/stream", "application/x-ndjson", strings.NewReader("\"a@bad.example\"\nnonsense\n")))(t)
	defer res.Body.Close()
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		add("stream", "/v1/check/stream", "post", "application/x-ndjson", bytes.Clone(in.Bytes()))
	}
	work := filepath.Join(d.Dir, "judged.json")
	text := testkit.Value(json.Marshal(map[string]any{"document": json.RawMessage(whole), "answers": answers}))(t)
	testkit.Write(t, work, string(text))
	out, err := exec.Command(python, "-c", judge, work).CombinedOutput()
	if want := fmt.Sprintf("judged %d\n", len(answers)); err != nil || string(out) != want {
		t.Errorf("%v:\n%s", err, out)
	}
}

func lastLine(out []byte) string {
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	return all[len(all)-1]
}

// TestNoSecretInALog has tokens go every way they can go wrong, with the log at its most
// talkative, and looks for them there.
func TestNoSecretInALog(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"a\"\npath = \"a.txt\"\n", Files: map[string]string{"a.txt": "bad.example\n"}})
	d.Edit(t, "[http]\n", "[http]\ntokens = \"tokens\"\ntoken_file = \"token\"\nmax_rate = 5\n")
	d.Edit(t, `format = "text"`, "format = \"text\"\nlevel = \"debug\"")
	testkit.Write(t, d.Path("token"), "the-token-of-token_file\n")
	reads := strings.TrimSpace(d.Must(t, "token", "new", "--name", "reader"))
	writes := strings.TrimSpace(d.Must(t, "token", "new", "--name", "writer", "--write"))
	d.Unready = true // /readyz wants a token
	d.Start(t)
	testkit.Eventually(t, "the HTTP door", func() bool { return e2e.Listens(d.HTTP) })
	secrets := []string{reads, writes, "the-token-of-token_file", "a-wrong-token-of-somebody"}
	seen := map[int]bool{}
	for _, secret := range secrets {
		for _, how := range []struct{ method, target, field, body string }{
			{"GET", "/v1/check?sender=a@bad.example", "Bearer " + secret, ""},
			{"GET", "/v1/check?sender=a@bad.example", "Basic " + secret, ""},
			{"GET", "/v1/check?token=" + secret + "&%zz", "Bearer " + secret, ""},
			{"POST", "/v1/check", "Bearer " + secret, secret},
			{"POST", "/v1/entries", "Bearer " + secret, `{"entry":"x.example","why":"w"}`},
			{"DELETE", "/v1/entries?entry=x.example", "Bearer " + secret, ""},
			{"PATCH", "/v1/lists", "Bearer " + secret, ""},
			{"GET", "/metrics", "Bearer " + secret, ""},
		} {
			req := testkit.Value(http.NewRequest(how.method, "http://"+d.HTTP+how.target, strings.NewReader(how.body)))(t)
			req.Header.Set("Authorization", how.field)
			req.Header.Set("Content-Type", "application/json")
			res := testkit.Value(http.DefaultClient.Do(req))(t)
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			seen[res.StatusCode] = true
			if bytes.Contains(body, []byte(secret)) {
				t.Errorf("%s %.30s echoes a token: %s", how.method, how.target, body)
			}
		}
		conn, err := net.Dial("tcp", d.HTTP) // what is no HTTP
		testkit.Must(t, err)
		fmt.Fprintf(conn, "%s\r\nAuthorization: Bearer %s\r\n\r\n", secret, secret)
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	d.Must(t, "token", "revoke", "reader")
	for _, status := range []int{200, 400, 401, 403, 429} {
		if !seen[status] {
			t.Errorf("no request was answered %d: the test shows less than it says", status)
		}
	}
	log := d.WholeLog(t)
	for _, secret := range secrets {
		if strings.Contains(log, secret) {
			t.Errorf("%q stands in the log", secret)
		}
	}
	if !strings.Contains(log, "live entry") {
		t.Error("the log has no live entry: the test shows less than it says")
	}
}

// TestHTTPOverTLS asks with curl, and by the program's own commands without its socket;
// then a renewed certificate is taken up.
func TestHTTPOverTLS(t *testing.T) {
	curl := testkit.Peer(t, "curl")
	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"a\"\npath = \"a.txt\"\n", Files: map[string]string{"a.txt": "bad.example\n"}})
	d.Edit(t, "[http]\n", "[http]\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\nsocket = \"none\"\nhosts = [\"blockd.example\"]\n")
	selfsigned.New(t, "blockd.example").Write(t, d.Dir)
	d.Unready = true // asked without TLS
	d.Start(t)
	testkit.Eventually(t, "the HTTP door", func() bool { return e2e.Listens(d.HTTP) })
	_, port, _ := net.SplitHostPort(d.HTTP)
	ask := func(more ...string) string {
		args := append([]string{"-sS", "--cacert", d.Path("cert.pem"), "--resolve", "blockd.example:" + port + ":127.0.0.1"}, more...)
		out, _ := exec.Command(curl, append(args, "https://blockd.example:"+port+"/v1/check?sender=a@bad.example")...).CombinedOutput()
		return string(out)
	}
	testkit.Eventually(t, "an answer by TLS", func() bool { return strings.Contains(ask(), `"verdict":"blocked"`) })
	if got := ask("--tls-max", "1.1"); strings.Contains(got, "verdict") {
		t.Errorf("TLS 1.1 is answered: %s", got)
	}
	if out, err := exec.Command(curl, "-s", "http://"+d.HTTP+"/healthz").Output(); err != nil || !strings.Contains(string(out), "HTTPS") {
		t.Errorf("without TLS: %q, %v", out, err)
	}
	testkit.Has(t, d.Must(t, "lists"), "a ")
	selfsigned.New(t, "blockd.example").Write(t, d.Dir)
	d.Reload(t)
	testkit.Eventually(t, "the renewed certificate", func() bool { return strings.Contains(ask(), `"verdict":"blocked"`) })
}

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
	base, token := "http://"+d.HTTP, d.FirstToken(t)
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

// TestGoClient has the package client ask a real daemon, by TCP and by the Unix socket.
func TestGoClient(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"a\"\npath = \"a.txt\"\n", Files: map[string]string{"a.txt": "bad.example\n!good@bad.example\n192.0.2.0/24\n"}})
	byName := blockd.New("http://"+d.HTTP, blockd.Token(d.FirstToken(t)))
	bySocket := blockd.New("unix:" + filepath.Join(d.Dir, "blockd.bdx.sock"))
	for name, c := range map[string]*blockd.Client{"TCP": byName, "socket": bySocket} {
		for _, q := range []struct {
			blockd.Question
			want blockd.Verdict
		}{
			{blockd.Question{Sender: "x@bad.example"}, blockd.Blocked}, {blockd.Question{Sender: "good@bad.example"}, blockd.Allowed},
			{blockd.Question{Sender: "a+b@ok.example"}, blockd.Clear}, {blockd.Question{}, blockd.Clear}, {blockd.Question{Sender: "a b"}, blockd.Unknown},
			{blockd.Question{IP: "192.0.2.9"}, blockd.Blocked}, {blockd.Question{Domain: "bad.example"}, blockd.Blocked},
			{blockd.Question{Sender: "x@bad.example", Recipient: "postmaster@here.example", Client: "198.51.100.1"}, blockd.Blocked},
		} {
			one, err := c.Check(t.Context(), q.Question)
			if err != nil || one.Verdict != q.want || q.Recipient != "" && one.Outcome != "accept" {
				t.Errorf("%s: %+v: %+v, %v, want %s", name, q.Question, one, err, q.want)
			}
			many, err := c.CheckMany(t.Context(), []blockd.Question{q.Question})
			if err != nil || len(many) != 1 || many[0].Verdict != one.Verdict || many[0].Input != one.Input || !slices.Equal(many[0].Matches, one.Matches) {
				t.Errorf("%s: %+v: a batch says %+v, %v", name, q.Question, many, err)
			}
		}
	}
	questions := make([]blockd.Question, 2500)
	for i := range questions {
		questions[i].Sender = fmt.Sprintf("user%d@%s.example", i, []string{"ok", "bad"}[i%2])
	}
	answers, err := byName.CheckMany(t.Context(), questions)
	if err != nil || len(answers) != 2500 || answers[2499].Verdict != blockd.Blocked || answers[2498].Verdict != blockd.Clear || answers[2499].Input != questions[2499].Sender {
		t.Errorf("2,500 questions: %d answers, %v", len(answers), err)
	}

	// Entries: 1,200 in pages, each change acts at once.
	var entries []blockd.Entry
	for i := range 1200 {
		entries = append(entries, blockd.Entry{Entry: fmt.Sprintf("live%d.example", i), Why: "a test"})
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	entries[1199] = blockd.Entry{Entry: "x@bad.example", Action: "allow", Why: "asked us to", Expires: &until}
	done, err := byName.Add(t.Context(), entries...)
	if err != nil || len(done) != 1200 || done[0].Result != "added" {
		t.Fatalf("%d changes, %v", len(done), err)
	}
	if a, err := byName.Check(t.Context(), blockd.Question{Sender: "x@bad.example"}); err != nil || a.Verdict != blockd.Allowed {
		t.Errorf("after an exception was added: %+v, %v", a, err)
	}
	for range 2 { // an iteration may be repeated
		n, newest := 0, blockd.Entry{}
		for e, err := range byName.Entries(t.Context(), blockd.EntryQuery{}) {
			testkit.Must(t, err)
			if n++; n == 1 {
				newest = e
			}
		}
		if n != 1200 || newest.Entry != "x@bad.example" || newest.Action != "allow" || newest.Expires == nil || !newest.Expires.Equal(until) {
			t.Errorf("%d entries, the newest %+v", n, newest)
		}
	}
	if removed, err := byName.Remove(t.Context(), "x@bad.example", ""); err != nil || len(removed) != 1 || removed[0].Was == nil || removed[0].Was.Why != "asked us to" {
		t.Errorf("removed %+v, %v", removed, err)
	}

	// What mail was refused.
	c := e2e.DialSMTP(t, d.SMTP)
	c.Command("MAIL FROM:<x@bad.example>")
	e2e.MustBegin(t, "a listed sender", c.Command("RCPT TO:<you@here.example>"), "550")
	found := 0
	for r, err := range byName.Decisions(t.Context(), blockd.DecisionQuery{Sender: "x@bad.example", Since: time.Now().Add(-time.Hour)}) {
		if err != nil || r.Outcome != "refuse" || r.List != "a" || r.Recipient != "you@here.example" || r.Line != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		found++
	}
	if found != 1 {
		t.Errorf("%d decisions about one refusal", found)
	}
	if lists, generation, err := byName.Lists(t.Context()); err != nil || generation == "" || len(lists) == 0 || lists[0].List != "a" || lists[0].Entries != 3 {
		t.Errorf("%+v, %q, %v", lists, generation, err)
	}
	for _, err := range blockd.New("http://"+d.HTTP, blockd.Token("wrong")).Entries(t.Context(), blockd.EntryQuery{}) {
		if blockd.StatusOf(err) != http.StatusUnauthorized {
			t.Errorf("a wrong token: %v", err)
		}
	}
}
