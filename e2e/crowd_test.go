package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestTwoAddressesCannotShutTheHTTPDoor has two addresses open as many connections as they
// may, with half a request line on each, and open them again as they are closed. /readyz and
// /metrics answer others at once.
func TestTwoAddressesCannotShutTheHTTPDoor(t *testing.T) {
	d := serve(t, setup{files: map[string]string{"own.txt": "bad.example\n"}, lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			conn.Close()
		}
	}()
	attack := func(text string) {
		for _, ip := range []string{"127.0.0.2", "127.0.0.3"} {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: 10 * time.Second}
			for range 128 {
				conn, err := dialer.Dial("tcp", d.http)
				if err != nil {
					t.Fatal(err)
				}
				io.WriteString(conn, text) // it may have been closed already
				held = append(held, conn)
			}
		}
	}
	const limit = 3 * time.Second // header and idle connections last longer by themselves
	for _, text := range []string{"GET /rea", "", "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n"} {
		for range 3 {
			attack(text)
			for _, path := range []string{"/readyz", "/metrics"} {
				client := http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}
				resp, err := client.Get("http://" + d.http + path)
				if err != nil {
					t.Fatalf("%s behind %q: %v", path, text, err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("%s behind %q: %d, %v: %.100s", path, text, resp.StatusCode, err, body)
				}
			}
		}
	}
	if n := d.metric(`blockd_http_refused_total{reason="connections"}`); n == "0" || n == "" {
		t.Errorf("nothing was refused: %s", fmt.Sprint(n))
	}
}
