package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"blockd/doors/httpapi/client"
	"blockd/internal/testkit"
)

// answering is a server that answers every request so.
func answering(t *testing.T, status int, header http.Header, body string) *client.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return client.New(s.URL)
}

// TestNoAnswerIsAnError: nothing that a server or a proxy may say instead of an answer becomes a verdict.
func TestNoAnswerIsAnError(t *testing.T) {
	for _, tt := range []struct {
		status int
		header http.Header
		body   string
		want   client.Error
	}{
		{429, http.Header{"Retry-After": {"7"}}, `{"title":"Too Many Requests","status":429,"detail":"too many requests"}`, client.Error{Status: 429, Detail: "too many requests", Retry: 7 * time.Second}},
		{502, nil, "<html>Bad Gateway</html>", client.Error{Status: 502}},
		{200, nil, "<html>Welcome</html>", client.Error{}},
		{200, nil, `{"verdict":"clear"`, client.Error{}},
		{200, nil, "", client.Error{}},
		{200, nil, `{"input":"` + strings.Repeat("a", 65<<20) + `","verdict":"clear"}`, client.Error{}},
	} {
		c := answering(t, tt.status, tt.header, tt.body)
		_, err := c.Check(t.Context(), client.Question{Sender: "a@b.example"})
		if err == nil {
			t.Errorf("%.60s: no error", tt.body)
		}
		var e *client.Error
		if is := errors.As(err, &e); is != (tt.want.Status != 0) || is && *e != tt.want || client.StatusOf(err) != tt.want.Status {
			t.Errorf("%.60s: %v, want %v", tt.body, err, tt.want)
		}
	}
	if all, err := answering(t, 200, nil, `{"results":[{"verdict":"clear"}]}`).CheckMany(t.Context(), make([]client.Question, 2)); err == nil || len(all) > 0 {
		t.Errorf("a result is missing: %v, %v", all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range answering(t, 200, nil, `{}`).Entries(ctx, client.EntryQuery{}) {
		testkit.IsError(t, "Canceled", err, context.Canceled)
	}
}

// A sign-up form asks before it sends a confirmation.
func ExampleClient_Check() {
	blockd := client.New("http://127.0.0.1:8025")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	answer, err := blockd.Check(ctx, client.Question{Sender: "someone@shop.example"})
	if err != nil {
		fmt.Println("no answer, so nobody is turned away:", err)
		return
	}
	if answer.Verdict == client.Blocked {
		fmt.Println("listed in", answer.Matches[0].List)
	}
}
