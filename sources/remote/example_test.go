package remote_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/sources/remote"
)

// A server has an error page in place of a list at first, and then the list.
func Example() {
	answer := "<!doctype html><title>Down for maintenance</title>"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, answer)
	}))
	defer server.Close()
	folder, err := os.MkdirTemp("", "remote")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)

	path := filepath.Join(folder, "bulk.txt")
	fetcher, err := remote.New(remote.Settings{
		Sources: []remote.Source{{Name: "bulk", URL: server.URL + "/bulk.txt", Path: path}},
	}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	look := func() {
		err := fetcher.FetchDue(context.Background())
		text, _ := os.ReadFile(path)
		fmt.Printf("%q, %v\n", text, err)
	}

	look()
	answer = "bulk.example\n"
	look()
	// Output:
	// "", list bulk: html: the answer is a web page or XML, not a list
	// "bulk.example\n", <nil>
}
