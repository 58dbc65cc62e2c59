package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The two kinds of senders.
const (
	clearKind = iota
	listedKind
	kinds
)

const (
	nameBare    = "bare `net/http` handler"
	nameCheckV2 = "rspamd, `/checkv2`"
)

// httpServer is one that is asked, with its requests by kind.
type httpServer struct {
	path
	slow      bool
	exchanges [kinds][]exchange
}

const blockdHTTPConfig = `
[index]
path = %q
[http]
listen = %q
max_rate = 0
[[list]]
name = "bench"
path = %q
format = "plain"
`

func (h *httpDoor) start(ctx context.Context, dir string, l *addresses) error {
	h.httpTables, h.addresses = newHTTPTables(h.httpSettings), l
	address, err := freeAddress()
	if err != nil {
		return err
	}
	shut, err := otherDoors(ctx, l.program, "[http]")
	if err != nil {
		return err
	}
	config := filepath.Join(dir, "blockd.toml")
	if err := os.WriteFile(config, append(fmt.Appendf(nil, blockdHTTPConfig, l.index, address, l.text), shut...), 0o644); err != nil {
		return err
	}
	if h.pid, err = h.launch(ctx, address, config+".log", l.program, "serve", "-c", config); err != nil {
		return err
	}
	h.blockd = address
	senders := [kinds][]string{clearKind: clearSenders(l.sample), listedKind: l.sample}
	own := httpServer{path: path{name: nameBlockd, address: address, pid: h.pid, filters: true}}
	answers := make([]string, kinds)
	for kind, all := range senders {
		for _, sender := range all {
			h.lines[kind] = append(h.lines[kind], fmt.Appendf(nil, "{\"sender\":%q}\n", sender))
			own.exchanges[kind] = append(own.exchanges[kind], get(address, "/v1/check", sender, verdictOf(kind)))
		}
		if answers[kind], err = record(address, all[0], filepath.Join(dir, fmt.Sprintf("answer-%d", kind))); err != nil {
			return err
		}
	}
	p, err := h.startOwn(ctx, nameBare, "http-bare", answers...)
	if err != nil {
		return err
	}
	bare := httpServer{path: p}
	for kind, all := range senders {
		for _, sender := range all {
			bare.exchanges[kind] = append(bare.exchanges[kind], get(bare.address, barePaths[kind], sender, verdictOf(kind)))
		}
	}
	h.asked = []httpServer{own, bare}
	if why := lookPath("rspamd"); why != "" {
		h.single.missing(nameCheckV2, why)
		return nil
	}
	other, err := h.startCheckV2(ctx, dir, senders)
	if err != nil {
		return fmt.Errorf("rspamd: %w", err)
	}
	h.asked = append(h.asked, other)
	return nil
}

func verdictOf(kind int) string {
	if kind == listedKind {
		return `"verdict":"blocked"`
	}
	return `"verdict":"clear"`
}

// clearSenders are others of the same look: their domains are in no list.
func clearSenders(listed []string) []string {
	all := make([]string, len(listed))
	for i, sender := range listed {
		all[i] = strings.Replace(sender, "@", "@not-", 1)
	}
	return all
}

// get is what a program sends that keeps its connection.
func get(address, path, sender, want string) exchange {
	return exchange{fmt.Appendf(nil, "GET %s?sender=%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", path, url.QueryEscape(sender), address), []byte(want)}
}

// batchExchanges are batches of senders, half of them listed.
func batchExchanges(sample []string) (all []exchange) {
	clear := clearSenders(sample)
	for at := 0; at+batchSenders/2 <= len(sample); at += batchSenders / 2 {
		var body struct {
			Senders []string `json:"senders"`
		}
		for i := range batchSenders / 2 {
			body.Senders = append(body.Senders, sample[at+i], clear[at+i])
		}
		text, _ := json.Marshal(body) // strings
		all = append(all, exchange{fmt.Appendf(nil, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			len(text), text), []byte(`"verdict":"blocked"`)})
	}
	return all
}

// record keeps an answer as it came over the wire, for the bare handler.
func record(address, sender, path string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	request := get(address, "/v1/check", sender, "").request
	if _, err := conn.Write(bytes.Replace(request, []byte("Accept:"), []byte("Connection: close\r\nAccept:"), 1)); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, answer, 0o644)
}

// barePaths are those of the bare handler, as long as blockd's.
var barePaths = [kinds]string{clearKind: "/v1/clear", listedKind: "/v1/found"}

// serveBare writes the same header fields and the same body to everybody: what is left
// of a service when it does nothing.
func serveBare(address string, answers ...string) error {
	mux := http.NewServeMux()
	for kind, path := range answers {
		handler, err := bareHandler(path)
		if err != nil {
			return err
		}
		mux.HandleFunc(barePaths[kind], handler)
	}
	return http.ListenAndServe(address, mux)
}

func bareHandler(path string) (http.HandlerFunc, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New("blockd says " + answer.Status)
	}
	var fields [][2]string
	for name := range answer.Header {
		if name != "Date" && name != "Connection" && name != "Content-Length" { // the server's own
			fields = append(fields, [2]string{name, answer.Header.Get(name)})
		}
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range fields {
			w.Header().Set(f[0], f[1])
		}
		w.Write(body)
	}, nil
}

// The least that rspamd can be asked to do: one map of senders, which decides before
// anything else is looked at, and no statistics, no network. Its controller reads maps.
const checkV2Config = `
lua = "%[1]s/functions.lua";
options {
  pidfile = "%[1]s/rspamd.pid"; hs_cache_dir = "%[1]s"; temp_dir = "%[1]s"; filters = "";
  control_socket = "%[1]s/control.sock mode=0600";
  dns { nameserver = ["127.0.0.1:9"]; timeout = 1s; retransmits = 1; }
}
logging { type = "file"; filename = "%[1]s/rspamd.log"; level = "warning"; }
worker "normal" { bind_socket = "%[2]s"; count = %[4]d; }
worker "controller" { bind_socket = "%[3]s"; count = 1; }
modules { path = "/usr/share/rspamd/plugins/multimap.lua"; }
actions { reject = 15; }
multimap { LISTED { type = "from"; extract_from = "smtp"; map = "%[1]s/senders.map"; prefilter = true; action = "reject"; } }
`

const checkV2Message = "From: someone@bench.test\r\nSubject: bench\r\n\r\nText\r\n"

// startCheckV2 starts it with as many workers as there are cores. Its map has the
// senders that are asked alone; with ten million it would be no faster.
func (h *httpDoor) startCheckV2(ctx context.Context, dir string, senders [kinds][]string) (s httpServer, err error) {
	s = httpServer{path: path{name: nameCheckV2, filters: true}, slow: true}
	if s.address, err = freeAddress(); err != nil {
		return s, err
	}
	controller, err := freeAddress()
	if err != nil {
		return s, err
	}
	folder := filepath.Join(dir, "rspamd")
	if err := os.Mkdir(folder, 0o777); err != nil {
		return s, err
	}
	config := filepath.Join(dir, "rspamd.conf")
	for path, text := range map[string]string{
		config:                                 fmt.Sprintf(checkV2Config, folder, s.address, controller, describeMachine().cores),
		filepath.Join(folder, "functions.lua"): "require \"global_functions\" ()\n",
		filepath.Join(folder, "senders.map"):   strings.Join(senders[listedKind], "\n") + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return s, err
		}
	}
	args := []string{"rspamd", "-f", "-c", config}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "_rspamd", "-g", "_rspamd")
		if err := os.Chmod(folder, 0o777); err != nil { // past the umask
			return s, err
		}
	}
	if s.pid, err = h.launch(ctx, s.address, config+".log", args...); err != nil {
		return s, err
	}
	for kind, word := range [kinds]string{clearKind: `"action":"no action"`, listedKind: `"action":"reject"`} {
		for _, sender := range senders[kind] {
			s.exchanges[kind] = append(s.exchanges[kind], exchange{fmt.Appendf(nil, "POST /checkv2 HTTP/1.1\r\nHost: %s\r\nFrom: %s\r\nContent-Length: %d\r\n\r\n%s",
				s.address, sender, len(checkV2Message), checkV2Message), []byte(word)})
		}
	}
	// It listens before it has read its map.
	return s, until(ctx, 30*time.Second, "rspamd to know its senders", func() (bool, error) {
		_, _, err := load(ctx, s.address, 8, 64, s.exchanges[listedKind])
		return err == nil, nil
	})
}
