package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/httpapi"
	"blockd/lists"
	"blockd/policy"
	"blockd/reload"
)

// A program asks whether a sender is listed.
func Example() {
	dir, err := os.MkdirTemp("", "httpapi")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "spam.txt")
	if err := os.WriteFile(file, []byte("bulk.example\n"), 0o600); err != nil {
		panic(err)
	}
	log, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	live, err := reload.Open(context.Background(), reload.Settings{
		Path:  filepath.Join(dir, "lists.bdx"),
		Lists: []reload.List{{Name: "spam", Path: file, Settings: lists.Settings{Format: "plain"}}},
	}, log, reg)
	if err != nil {
		panic(err)
	}
	checker := policy.New(live.Live, policy.Settings{}, log, reg)
	server := httpapi.New(httpapi.Settings{}, checker, live.Status, reg, log)

	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- server.Serve(ctx, door) }()

	for _, sender := range []string{"promo@Bulk.Example", "someone@shop.example"} {
		res, err := http.Get("http://" + door.Addr().String() + "/v1/check?sender=" + sender)
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		answer, _, _ := strings.Cut(string(body), `"matches"`)
		fmt.Println(res.StatusCode, answer)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// 200 {"input":"promo@Bulk.Example","sender":"promo@bulk.example","verdict":"blocked",
	// 200 {"input":"someone@shop.example","sender":"someone@shop.example","verdict":"clear",
	// <nil>
}
