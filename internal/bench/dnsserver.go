package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// dnsServer is one that is asked.
type dnsServer struct{ path }

const blockdDNSConfig = `
[index]
path = %q
quiet = "50ms"
[dns]
listen = %q
[[dns.zone]]
name = %q
kind = "domain"
answer = "127.0.1.2"
[[list]]
name = "bench"
path = %q
format = "plain"
[[list]]
name = "more"
path = %q
format = "plain"
`

func (d *dnsDoor) startBlockd(ctx context.Context, dir string, l *addresses) (s dnsServer, err error) {
	s.path = path{name: nameBlockd, filters: true}
	if s.address, err = freePort(); err != nil {
		return s, err
	}
	shut, err := otherDoors(ctx, l.program, "[dns]")
	if err != nil {
		return s, err
	}
	config := filepath.Join(dir, "blockd.toml")
	text := fmt.Appendf(nil, blockdDNSConfig, filepath.Join(dir, "lists.bdx"), s.address, dnsZone, l.text, d.more)
	if err := os.WriteFile(config, append(text, shut...), 0o644); err != nil {
		return s, err
	}
	if s.pid, err = d.launch(ctx, s.address, config+".log", l.program, "serve", "-c", config); err != nil {
		return s, err
	}
	return s, nil
}

// rbldnsdHead makes rbldnsd answer as blockd's zone does: a listed name and all below it, and with a negative
// answer the SOA record.
const rbldnsdHead = "$SOA 60 ns.bench.test. hostmaster.bench.test. 0 600 300 86400 60\n:127.0.1.2:listed\n"

func (d *dnsDoor) startRBLDNSD(ctx context.Context, dir string, l *addresses) (s dnsServer, err error) {
	s.path = path{name: nameRBLDNSD, filters: true}
	if s.address, err = freePort(); err != nil {
		return s, err
	}
	zone := filepath.Join(dir, "zone.dnset")
	err = writeFile(zone, func(f *os.File) error {
		if _, err := f.WriteString(rbldnsdHead); err != nil {
			return err
		}
		return eachLineTo(f, l.text, func(line string) string { return "." + line + "\n" })
	})
	if err != nil {
		return s, err
	}
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return s, err
	}
	args := []string{"rbldnsd", "-n", "-c", "1", "-t", "60", "-b", host + "/" + port, "-w", dir,
		dnsZone + ":dnset:" + filepath.Base(zone) + "," + filepath.Base(d.more)}
	first := d.changed() + "." + dnsZone
	s.pid, err = d.launchUntil(ctx, func() bool { return asks(s.address, first) == 1 }, zone+".log", args...)
	return s, err
}

// asks asks for a name by UDP, and returns the number of answers; -1 if there is none, or an error.
func asks(address, name string) int {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return -1
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return -1
	}
	query := []byte{0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		query = append(append(query, byte(len(label))), label...)
	}
	if _, err := conn.Write(append(query, 0, 0, 1, 0, 1)); err != nil {
		return -1
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if err != nil || n < 12 || answer[3]&15 != 0 && answer[3]&15 != 3 {
		return -1
	}
	return int(binary.BigEndian.Uint16(answer[6:]))
}
