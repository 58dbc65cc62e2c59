// Package toxiproxy starts a Toxiproxy for tests: a proxy that spoils connections while they are open. testkit.Proxy ends those that there are.
package toxiproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
)

// Server is a Toxiproxy that runs until the test ends.
type Server struct{ api string }

// Link is a way to a server through it.
type Link struct {
	Address string // HOST:PORT
	path    string // of the API
	server  *Server
}

// Toxic is what spoils a link. Stream is "upstream", from the client to the server, or "downstream". Attributes are those of its kind, times in milliseconds.
type Toxic struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Attributes map[string]int `json:"attributes"`
}

// Start builds the server, whose module is beside this package, and starts it.
func Start(t testing.TB) *Server {
	t.Helper()
	if !testkit.Peers() {
		testkit.Missing(t, "")
	}
	binary := filepath.Join(t.TempDir(), "toxiproxy")
	build := exec.Command("go", "build", "-o", binary, "github.com/Shopify/toxiproxy/v2/cmd/server")
	build.Dir = filepath.Join(testkit.Root(t), "internal/testkit/toxiproxy/server")
	if out, err := build.CombinedOutput(); err != nil {
		testkit.Missing(t, "Toxiproxy cannot be built: "+string(out))
	}
	address := testkit.Unused(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-host", host, "-port", port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := &Server{api: "http://" + address}
	testkit.Eventually(t, "Toxiproxy", func() bool {
		answer, err := http.Get(s.api + "/version")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return s
}

// Link makes a way to a server, under a name that no other has.
func (s *Server) Link(t testing.TB, name, to string) *Link {
	t.Helper()
	var made struct{ Listen string }
	s.ask(t, http.MethodPost, "/proxies", map[string]any{"name": name, "listen": "127.0.0.1:0", "upstream": to, "enabled": true}, &made)
	return &Link{Address: made.Listen, path: "/proxies/" + name, server: s}
}

// Spoil adds toxics to the connections that are open and that will be; what it returns takes them away.
func (l *Link) Spoil(t testing.TB, toxics ...Toxic) (mend func()) {
	t.Helper()
	var names []string
	for i, x := range toxics {
		names = append(names, fmt.Sprintf("%s%d", x.Type, i))
		l.server.ask(t, http.MethodPost, l.path+"/toxics", struct {
			Name string `json:"name"`
			Toxic
		}{names[i], x}, nil)
	}
	return func() {
		t.Helper()
		for _, name := range names {
			l.server.ask(t, http.MethodDelete, l.path+"/toxics/"+name, nil, nil)
		}
	}
}

func (s *Server) ask(t testing.TB, method, path string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, s.api+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		t.Fatalf("Toxiproxy: %s %s: %s %s %v", method, path, answer.Status, said, err)
	}
	if into != nil {
		if err := json.Unmarshal(said, into); err != nil {
			t.Fatal(err)
		}
	}
}
