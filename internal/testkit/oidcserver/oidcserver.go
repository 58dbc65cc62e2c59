// Package oidcserver starts an identity provider for tests: the example of zitadel/oidc, a certified implementation of OpenID Connect.
package oidcserver

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// The client that the provider knows, which brings people back to the addresses of Start.
const (
	ClientID     = "web"
	ClientSecret = "secret"
)

// Password is everybody's.
const Password = "verysecure"

// User is somebody who can sign in, by Username and Password.
type User struct {
	ID, Username, Email string
	EmailVerified       bool
}

// Server is a provider that runs until the test ends.
type Server struct {
	Issuer string
	env    []string
	cmd    *exec.Cmd
	binary string
}

// Start starts a provider that brings people back to these addresses.
func Start(t testing.TB, users []User, redirects ...string) *Server {
	t.Helper()
	if !testkit.Peers() {
		testkit.Missing(t, "")
	}
	dir := t.TempDir()
	s := &Server{binary: filepath.Join(dir, "server")}
	build := exec.Command("go", "build", "-o", s.binary, "github.com/zitadel/oidc/v3/example/server")
	build.Dir = filepath.Join(testkit.Root(t), "internal/testkit/oidcserver/example")
	if out, err := build.CombinedOutput(); err != nil {
		testkit.Missing(t, "the identity provider of tests cannot be built: "+string(out))
	}
	type full struct {
		User
		Password, FirstName, LastName, PreferredLanguage string
	}
	all := map[string]full{}
	for _, u := range users {
		all[u.ID] = full{u, Password, "Anna", "Example", "en"}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", ":0") // it listens everywhere
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	s.Issuer = "http://localhost:" + port + "/"
	s.env = append(os.Environ(), "PORT="+port, "USERS_FILE="+testkit.Write(t, filepath.Join(dir, "users.json"), string(text)), "REDIRECT_URI="+strings.Join(redirects, ","))
	t.Cleanup(s.Kill)
	s.Restart(t)
	return s
}

// Restart starts the provider again after Kill. It has forgotten who has signed in.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.cmd = exec.Command(s.binary)
	s.cmd.Env = s.env
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the identity provider", func() bool {
		answer, err := http.Get(s.Issuer + ".well-known/openid-configuration")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// Kill ends the provider.
func (s *Server) Kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

var loginID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// SignIn does what somebody does in a browser who is sent to an address of the provider, and returns what the provider sends the browser back with.
func (s *Server) SignIn(t testing.TB, address, username string) url.Values {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	var back url.Values
	browser := http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), s.Issuer) {
			return nil
		}
		back = r.URL.Query()
		return http.ErrUseLastResponse
	}}
	page, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(page.Body)
	page.Body.Close()
	id := loginID.FindSubmatch(text)
	if err != nil || id == nil {
		t.Fatalf("no form of the provider, %v: %d %s", err, page.StatusCode, text)
	}
	answer, err := browser.PostForm(s.Issuer+"login/username", url.Values{"username": {username}, "password": {Password}, "id": {string(id[1])}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if back == nil {
		t.Fatalf("the provider brings nobody back: %d", answer.StatusCode)
	}
	return back
}
