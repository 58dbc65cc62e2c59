package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
)

// postfixMain is what every Postfix here is told. What would slow a client down that
// is refused often is off.
const postfixMain = `
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
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
smtpd_soft_error_limit = 100000
smtpd_hard_error_limit = 100001
smtpd_junk_command_limit = 100000
smtpd_error_sleep_time = 0
`

// postfixMaster are the services of every Postfix here.
const postfixMaster = `cleanup   unix n - n - 0 cleanup
qmgr      unix n - n 300 1 qmgr
rewrite   unix - - n - - trivial-rewrite
proxymap  unix - - n - - proxymap
anvil     unix - - n - 1 anvil
postlog   unix-dgram n - n - 1 postlogd
`

// postfix is an instance of its own.
type postfix struct{ base string }

func (p postfix) config() string { return filepath.Join(p.base, "config") }
func (p postfix) queue() string  { return filepath.Join(p.base, "queue") }

// makePostfix makes the folders of one in dir. Main and master come behind what all
// have.
func makePostfix(dir, main, master string) (postfix, error) {
	p := postfix{filepath.Join(dir, "postfix")}
	owner, err := user.Lookup("postfix")
	if err != nil {
		return p, err
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return p, err
	}
	data := filepath.Join(p.base, "data")
	for _, folder := range []string{p.config(), p.queue(), data} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return p, err
		}
	}
	if err := os.Chown(data, uid, -1); err != nil {
		return p, err
	}
	for name, text := range map[string]string{"main.cf": fmt.Sprintf(postfixMain, p.base) + main, "master.cf": postfixMaster + master} {
		if err := os.WriteFile(filepath.Join(p.config(), name), []byte(text), 0o644); err != nil {
			return p, err
		}
	}
	return p, nil
}

// run starts p until stop, and waits until it listens.
func (s *servers) run(ctx context.Context, p postfix, addresses ...string) error {
	if out, err := exec.CommandContext(ctx, "postfix", "-c", p.config(), "start").CombinedOutput(); err != nil {
		return fmt.Errorf("postfix start: %w: %s", err, out)
	}
	s.ends = append(s.ends, func() { _ = exec.Command("postfix", "-c", p.config(), "stop").Run() })
	for _, address := range addresses {
		if err := listens(ctx, address, nil); err != nil {
			return fmt.Errorf("smtpd on %s: %w", address, err)
		}
	}
	return nil
}
