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
	"time"
)

// milterPostfix is a Postfix with an smtpd for each way. It takes mail, queues it
// and throws it away.
type milterPostfix struct{ queue string }

const (
	milterMain = `
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
relay_transport = discard:
smtpd_relay_restrictions = reject_unauth_destination
milter_default_action = tempfail
in_flow_delay = 0
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
smtpd_soft_error_limit = 100000
smtpd_hard_error_limit = 100001
smtpd_junk_command_limit = 100000
smtpd_error_sleep_time = 0
`
	milterMaster = `cleanup   unix n - n - 0 cleanup
qmgr      unix n - n 300 1 qmgr
rewrite   unix - - n - - trivial-rewrite
bounce    unix - - n - 0 bounce
defer     unix - - n - 0 bounce
trace     unix - - n - 0 bounce
discard   unix - - n - - discard
retry     unix - - n - - error
error     unix - - n - - error
proxymap  unix - - n - - proxymap
anvil     unix - - n - 1 anvil
postlog   unix-dgram n - n - 1 postlogd
`
)

func (m *milters) startMilterPostfix(ctx context.Context, dir string, ways []way, options []string) (*milterPostfix, error) {
	owner, err := user.Lookup("postfix")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(dir, "postfix")
	config := filepath.Join(base, "config")
	for _, folder := range []string{config, filepath.Join(base, "queue"), filepath.Join(base, "data")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Chown(filepath.Join(base, "data"), uid, -1); err != nil {
		return nil, err
	}
	var master strings.Builder
	for i, w := range ways {
		fmt.Fprintf(&master, "%s inet n - n - - smtpd\n  -o %s\n", w.address, options[i])
	}
	for name, text := range map[string]string{"main.cf": fmt.Sprintf(milterMain, base), "master.cf": master.String() + milterMaster} {
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if out, err := exec.CommandContext(ctx, "postfix", "-c", config, "start").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("postfix start: %w: %s", err, out)
	}
	m.ends = append(m.ends, func() { _ = exec.Command("postfix", "-c", config, "stop").Run() })
	for _, w := range ways {
		if err := listens(ctx, w.address, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return &milterPostfix{queue: filepath.Join(base, "queue")}, nil
}

// settle waits until Postfix has delivered what it has taken.
func (p *milterPostfix) settle(ctx context.Context) error {
	return until(ctx, time.Minute, "Postfix to deliver", func() (bool, error) {
		for _, folder := range []string{"incoming", "active"} {
			f, err := os.Open(filepath.Join(p.queue, folder))
			if err != nil {
				return false, err
			}
			names, _ := f.Readdirnames(1) // io.EOF: there are none
			f.Close()
			if len(names) > 0 {
				return false, nil
			}
		}
		if late, _ := filepath.Glob(filepath.Join(p.queue, "deferred", "*", "*")); len(late) > 0 {
			return false, errors.New("mail was put off by Postfix")
		}
		return true, nil
	})
}
