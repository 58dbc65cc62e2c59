package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// Postfix as a filter in front of another server: smtpd looks the sender up in a cdb
// of all listed addresses and passes the mail on to the sink, command by command.
// Nothing is queued. What would slow a client down that is refused often is off.
const (
	postfixMain = `
compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file_prefixes = %[1]s
maillog_file = %[1]s/maillog
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mail.bench.test
mydestination =
mynetworks =
relay_domains = here.bench.test
smtpd_relay_restrictions = reject_unauth_destination
smtpd_sender_restrictions = check_sender_access cdb:%[2]s
smtpd_proxy_filter = %[3]s
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
smtpd_soft_error_limit = 100000
smtpd_hard_error_limit = 100001
smtpd_junk_command_limit = 100000
smtpd_error_sleep_time = 0
message_size_limit = 0
`
	postfixMaster = `%s inet n - n - - smtpd
cleanup   unix n - n - 0 cleanup
qmgr      unix n - n 300 1 qmgr
rewrite   unix - - n - - trivial-rewrite
proxymap  unix - - n - - proxymap
anvil     unix - - n - 1 anvil
postlog   unix-dgram n - n - 1 postlogd
`
)

// lacksPostfix says why Postfix cannot take part.
func (l *smtpLists) lacksPostfix() string {
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

func (p *paths) startPostfix(ctx context.Context, dir string, l *smtpLists) (path, error) {
	address, err := freeAddress()
	if err != nil {
		return path{}, err
	}
	owner, err := user.Lookup("postfix")
	if err != nil {
		return path{}, err
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return path{}, err
	}
	base := filepath.Join(dir, "postfix")
	config := filepath.Join(base, "config")
	for _, folder := range []string{config, filepath.Join(base, "queue"), filepath.Join(base, "data")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return path{}, err
		}
	}
	if err := os.Chown(filepath.Join(base, "data"), uid, -1); err != nil {
		return path{}, err
	}
	for name, text := range map[string]string{
		"main.cf": fmt.Sprintf(postfixMain, base, strings.TrimSuffix(l.cdb, ".cdb"), p.sink), "master.cf": fmt.Sprintf(postfixMaster, address),
	} {
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o644); err != nil {
			return path{}, err
		}
	}
	for _, sender := range []string{l.sample[0], l.sample[len(l.sample)-1]} {
		out, err := exec.CommandContext(ctx, "postmap", "-c", config, "-q", sender, "cdb:"+strings.TrimSuffix(l.cdb, ".cdb")).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "REJECT") {
			return path{}, fmt.Errorf("postmap does not find %s: %w: %s", sender, err, out)
		}
	}
	if out, err := exec.CommandContext(ctx, "postfix", "-c", config, "start").CombinedOutput(); err != nil {
		return path{}, fmt.Errorf("postfix start: %w: %s", err, out)
	}
	p.ends = append(p.ends, func() { _ = exec.Command("postfix", "-c", config, "stop").Run() })
	if err := listens(ctx, address, nil); err != nil {
		return path{}, err
	}
	text, err := os.ReadFile(filepath.Join(base, "queue", "pid", "master.pid"))
	if err != nil {
		return path{}, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return path{}, errors.New("no number in master.pid")
	}
	return path{name: namePostfix, address: address, pid: pid, filters: true}, nil
}
