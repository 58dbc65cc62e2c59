package httpapi

import (
	"net/http"
	"strings"
)

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK, "ok\n")
}

// readyz says whether mail may be sent here. A refused reload leaves an older
// generation serving: that is degraded, and still ready.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	status := s.status()
	code, word := http.StatusOK, "degraded"
	switch {
	case !status.Ready:
		code, word = http.StatusServiceUnavailable, "not ready"
	case len(status.Problems) == 0:
		text(w, code, "ok\n")
		return
	}
	var b strings.Builder
	for _, problem := range status.Problems {
		b.WriteString(word + ": " + oneLine(problem) + "\n")
	}
	if len(status.Problems) == 0 {
		b.WriteString(word + "\n")
	}
	text(w, code, b.String())
}

// oneLine keeps a file's odd name from making lines of its own.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}
