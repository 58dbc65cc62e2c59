package httpapi

import (
	"net/http"
	"strings"
)

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK, "ok\n")
}

// readyz says whether this server can decide about mail. It is "ok" alone if all is well.
// Otherwise a first line begins with "ok", "degraded" or (503) "not ready", and a line
// follows for each problem and then for each remark. After a refused reload an older
// generation serves, and without a list that has never loaded the others serve: that is
// degraded ("degraded: 13 of 14 lists filter"), and still ready.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	status := s.status()
	code, word := http.StatusOK, "ok"
	switch {
	case !status.Ready:
		code, word = http.StatusServiceUnavailable, "not ready"
	case len(status.Problems) > 0:
		word = "degraded"
	}
	var b strings.Builder
	b.WriteString(word)
	if lacks := status.Lacks(); lacks != "" {
		b.WriteString(": " + lacks)
	}
	b.WriteString("\n")
	for _, lines := range [][]string{status.Problems, status.Remarks} {
		for _, line := range lines {
			b.WriteString(oneLine(line) + "\n")
		}
	}
	text(w, code, b.String())
}

// oneLine keeps an odd file name from making lines of its own.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}
