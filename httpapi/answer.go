package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
)

// problem is an error as RFC 9457 has it. Its type is "about:blank": the status
// says all that a program can act on, and the detail is for people.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func fail(w http.ResponseWriter, status int, detail string) {
	send(w, status, "application/problem+json", problem{http.StatusText(status), status, detail})
}

func send(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	encoder(w).Encode(v) // an error is the client's, who has gone
}

// encoder writes senders as they are: nothing here is HTML.
func encoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, body)
}
