package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"blockd/index/live"
	"blockd/internal/testkit"
)

// A change that another process makes in this one's place is not cut off when this one's doors close meanwhile.
func TestChangeElsewhereOutlastsTheDoor(t *testing.T) {
	set := testkit.Value(live.Open(live.Settings{Folder: t.TempDir()}))(t)
	testkit.Must(t, set.Yield())
	ctx, closeDoor := context.WithCancel(t.Context())
	f := newFixture(t, Settings{Entries: set, First: first, Successor: func(context.Context) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			closeDoor()
			if r.Context().Err() != nil { // what a reverse proxy heeds
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			io.Copy(w, r.Body)
		})
	}}, "bad.example\n")
	l := testkit.Listen(t)
	ended := make(chan error)
	go func() { ended <- f.Serve(ctx, l) }()
	const body = `{"entries":[{"entry":"x@y.example"}]}`
	ask := testkit.Value(http.NewRequest("POST", "http://"+l.Addr().String()+"/v1/entries", strings.NewReader(body)))(t)
	ask.Header.Set("Authorization", "Bearer "+first)
	ask.Header.Set("Content-Type", "application/json")
	answer := testkit.Value(http.DefaultClient.Do(ask))(t)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	testkit.Got(err, answer.StatusCode, string(text))(t, answer.Status, nil, http.StatusOK, body)
	testkit.Should(t, <-ended)
}
