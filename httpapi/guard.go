package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// The lengths of a token: shorter ones can be guessed, longer ones are a wrong
// file.
const (
	minToken = 16
	maxToken = 1024
)

// ReadToken reads the file that holds nothing but a token, with or without a
// line end behind it.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return "", err
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if len(token) < minToken || len(token) > maxToken {
		return "", fmt.Errorf("%s: token of %d octets, want %d to %d", path, len(token), minToken, maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: %w", path, errTokenText)
	}
	return token, nil
}

var errTokenText = errors.New("token must be one word of printable ASCII")

// guard lets only those in who may ask, and sets what every answer has.
func (s *Server) guard(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(s.settings.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store") // an answer holds until the next reload
		switch {
		case r.URL.Path == "/healthz":
		case s.settings.Token != "":
			// Sums of equal length, so that the time tells nothing of the token.
			token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			have := sha256.Sum256([]byte(token))
			if !bearer || subtle.ConstantTimeCompare(have[:], want[:]) != 1 {
				w.Header().Set("WWW-Authenticate", `Bearer realm="blockd"`)
				fail(w, http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN")
				return
			}
		case !s.knownHost(r.Host):
			fail(w, http.StatusMisdirectedRequest, "ask by IP address or as localhost, or set a token")
			return
		}
		next.ServeHTTP(w, r)
	})
}
