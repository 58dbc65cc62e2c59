package program

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestTwoAddressesCannotShutTheHTTPDoor has two addresses open as many connections as they
// may, with half a request line on each, and open them again as they are closed. /readyz and
// /metrics answer others at once.
func TestTwoAddressesCannotShutTheHTTPDoor(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Raced: true, Files: map[string]string{"own.txt": "bad.example\n"}, Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			conn.Close()
		}
	}()
	attack := func(text string) {
		for _, ip := range []string{"127.0.0.2", "127.0.0.3"} {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: time.Minute}
			for range 128 {
				conn := testkit.Value(dialer.Dial("tcp", d.HTTP))(t)
				io.WriteString(conn, text) // it may have been closed already
				held = append(held, conn)
			}
		}
	}
	const limit = 3 * time.Second // header and idle connections last longer by themselves
	answers := func(path string) error {
		client := http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + d.HTTP + path)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
			return fmt.Errorf("%d, %w: %.100s", resp.StatusCode, err, body)
		}
		return nil
	}
	for _, text := range []string{"GET /rea", "", "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n"} {
		for _, path := range []string{"/readyz", "/metrics"} {
			// A door that is shut answers late every time, a loaded machine now and then.
			attack(text)
			err := answers(path)
			for again := 0; err != nil && again < 5; again++ {
				attack(text)
				err = answers(path)
			}
			if err != nil {
				t.Fatalf("%s behind %q: %v", path, text, err)
			}
		}
	}
	d.CountedSome(t, `blockd_http_refused_total{reason="connections"}`)
}
