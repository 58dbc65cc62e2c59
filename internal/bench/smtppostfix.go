package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Postfix as a filter in front of another server: smtpd looks the sender up in a cdb
// of all listed addresses and passes the mail on to the sink, command by command.
// Nothing is queued.
const smtpMain = `smtpd_sender_restrictions = check_sender_access %s
smtpd_proxy_filter = %s
message_size_limit = 0
`

// lacksPostfix says why Postfix cannot take part.
func (l *addresses) lacksPostfix() string {
	if l.cdb == "" {
		return l.why
	}
	if os.Geteuid() != 0 {
		return "Postfix's master runs as root only"
	}
	for _, command := range []string{"postfix", "postmap"} {
		if why := lookPath(command); why != "" {
			return "wants Debian's packages postfix and postfix-cdb"
		}
	}
	if kinds, err := exec.Command("postconf", "-m").Output(); err != nil || !strings.Contains(string(kinds), "cdb") {
		return "wants Debian's package postfix-cdb"
	}
	return ""
}

func (p *smtpDoor) startPostfix(ctx context.Context, dir string, l *addresses) (path, error) {
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	table := "cdb:" + strings.TrimSuffix(l.cdb, ".cdb")
	f, err := makePostfix(dir, fmt.Sprintf(smtpMain, table, p.sink), address+" inet n - n - - smtpd\n")
	if err != nil {
		return path{}, err
	}
	for _, sender := range []string{l.sample[0], l.sample[len(l.sample)-1]} {
		out, err := exec.CommandContext(ctx, "postmap", "-c", f.config(), "-q", sender, table).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "REJECT") {
			return path{}, fmt.Errorf("postmap does not find %s: %w: %s", sender, err, out)
		}
	}
	if err := p.run(ctx, f, address); err != nil {
		return path{}, err
	}
	text, err := os.ReadFile(filepath.Join(f.queue(), "pid", "master.pid"))
	if err != nil {
		return path{}, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return path{}, errors.New("no number in master.pid")
	}
	return path{name: namePostfix, address: address, pid: pid, filters: true}, nil
}
