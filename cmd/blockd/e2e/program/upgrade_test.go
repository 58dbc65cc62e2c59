package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/durable"
	"blockd/internal/testkit"
)

// processGone reports whether a process has ended. It need not be ours to wait for.
func processGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(after, []byte("Z"))
}

// TestUpgrade lets process after process take over while mail flows through all doors, with an idle client at each: the
// filter, Postfix by the milter, Postfix by the policy service, HTTP. Postfix lets mail pass where blockd does not answer, so
// that a gap would show. Live entries are added all the time, and the list changes.
func TestUpgrade(t *testing.T) {
	rounds := 4
	if *e2e.Soak {
		rounds = 20
	}
	milter, policy := e2e.FreeAddress(t), e2e.FreeAddress(t)
	d := e2e.Configure(t, e2e.Setup{
		Raced:   true,
		Lists:   "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n",
		Files:   map[string]string{"bad.txt": "bulk.example\nmx.bulk.example\n"},
		SMTP:    "drain_timeout = \"3s\"\n",
		Milter:  fmt.Sprintf("listen = %q\n", milter),
		Postfix: fmt.Sprintf("policy_listen = %q\n", policy),
	})
	d.Edit(t, "[http]\n", "[http]\nmax_rate = 0\n") // clients here are faster
	d.Start(t)
	byMilter := e2e.StartPostfix(t, e2e.FreeAddress(t), "smtpd_milters=inet:"+milter, "milter_default_action=accept")
	byPolicy := e2e.StartPostfix(t, e2e.FreeAddress(t), e2e.Restrictions("smtpd_sender_restrictions", "check_policy_service inet:"+policy), "smtpd_policy_service_default_action=DUNNO")

	idle := func() {
		for _, address := range []string{d.SMTP, byMilter.SMTP, byPolicy.SMTP} {
			c, err := smtp.Dial(address)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			if err := c.Hello("idle.example"); err != nil {
				t.Error(err)
			}
		}
		for _, address := range []string{milter, policy, d.HTTP} {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}
	f := e2e.NewFlow(t)
	var filtered, asked [3]atomic.Int64
	f.Mails("the filter", d.SMTP, &filtered[0])
	f.Mails("Postfix by the milter", byMilter.SMTP, &filtered[1])
	f.Mails("Postfix by the policy service", byPolicy.SMTP, &filtered[2])
	for name, client := range map[string]*http.Client{"HTTP": &e2e.Freshly, "HTTP, kept": {Transport: &http.Transport{}}} {
		f.Run(name, func(n int) string {
			sender, want := "a@mx.bulk.example", `"blocked"`
			if n%2 == 0 {
				sender, want = "friend@there.example", `"clear"`
			}
			resp, err := client.Get("http://" + d.HTTP + "/v1/check?sender=" + sender)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			var answer struct {
				Verdict json.RawMessage `json:"verdict"`
			}
			body, err := io.ReadAll(resp.Body)
			if err == nil {
				err = json.Unmarshal(body, &answer)
			}
			if err != nil || string(answer.Verdict) != want {
				return fmt.Sprintf("%s: %s %q, %v", sender, resp.Status, body, err)
			}
			return ""
		})
	}
	f.Run("live entries", func(n int) string {
		out, err := exec.Command(e2e.Program, "add", "-c", d.Path("config.toml"), fmt.Sprintf("live%d@there.example", n)).CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		asked[0].Store(int64(n + 1))
		return ""
	})
	kept, err := net.Dial("tcp", policy) // one connection, which goes from process to process
	testkit.Must(t, err)
	defer kept.Close()
	answers := bufio.NewReader(kept)
	f.Run("policy, kept", func(n int) string {
		sender, want := "a@mx.bulk.example", "action=550 5.7.1 "
		if n%2 == 0 {
			sender, want = "friend@there.example", "action=DUNNO\n"
		}
		kept.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(kept, "request=smtpd_access_policy\nprotocol_state=RCPT\nclient_address=192.0.2.1\nsender=%s\nrecipient=you@here.example\n\n", sender)
		action, err := answers.ReadString('\n')
		if err == nil {
			_, err = answers.ReadString('\n')
		}
		if err != nil || !strings.HasPrefix(action, want) {
			return fmt.Sprintf("%s: %q, %v", sender, action, err)
		}
		return ""
	})
	config := string(testkit.Read(t, d.Path("config.toml")))
	verdicts, wentBack := 0.0, ""
	var processes []int
	for round := range rounds {
		idle()
		f.Goes(60)
		testkit.Write(t, d.Path("bad.txt"), fmt.Sprintf("bulk.example\nmx.bulk.example\nround%d.example\n", round))
		processes = append(processes, d.Newest(t))
		if round%2 == 0 {
			d.Upgraded(t)
		} else { // a list more, and another limit
			testkit.Write(t, d.Path("more.txt"), fmt.Sprintf("more%d.example\n", round))
			text := strings.Replace(config, "[smtp]\n", fmt.Sprintf("[smtp]\nmax_connections = %d\n", 1000+round), 1) +
				fmt.Sprintf("[[list]]\nname = \"more%d\"\npath = \"more.txt\"\n", round)
			// At once: blockd add reads it meanwhile, and an empty one would lead it elsewhere.
			testkit.Must(t, durable.WriteFile(d.Path("config.toml"), []byte(text), 0o644))
			if code, out := d.Reloaded(t); code != 0 || !strings.Contains(out, "smtp.max_connections") || !strings.Contains(out, fmt.Sprintf("more%d", round)) {
				t.Errorf("blockd reload ends with %d and says %q", code, out)
			}
			testkit.Begins(t, "a sender of the list that was added", e2e.Ask(t, d.SMTP, fmt.Sprintf("a@more%d.example", round)), "550 ")
		}
		if now := d.Sum("blockd_verdicts_total"); now < verdicts {
			wentBack = fmt.Sprintf("blockd_verdicts_total was %v and is %v", verdicts, now)
		} else {
			verdicts = now
		}
	}
	f.Goes(60) // behind the last upgrade
	f.End()
	if wentBack != "" {
		t.Error(wentBack)
	}
	for _, pid := range processes[1:] { // the first stays as the keeper of the others
		testkit.Eventually(t, "a former process to end", func() bool { return processGone(pid) })
	}
	if now := d.Sum("blockd_verdicts_total"); now < verdicts {
		t.Errorf("blockd_verdicts_total was %v and is %v", verdicts, now)
	}
	for name, got := range map[string]struct {
		maildir string
		sent    int64
	}{"the filter": {d.Maildir, filtered[0].Load()}, "the milter": {byMilter.Maildir, filtered[1].Load()}, "the policy service": {byPolicy.Maildir, filtered[2].Load()}} {
		testkit.Eventually(t, "all mail that was taken by "+name, func() bool { return len(e2e.Messages(t, got.maildir)) >= int(got.sent) })
		testkit.Equal(t, name+": messages that have come of those that were taken", len(e2e.Messages(t, got.maildir)), int(got.sent))
	}
	for n := range asked[0].Load() {
		sender := fmt.Sprintf("live%d@there.example", n)
		if body := d.Asked(t, sender); !strings.Contains(body, `"verdict":"blocked"`) {
			journal := testkit.Read(t, d.Path("blockd.bdx.live/journal"))
			t.Errorf("live entry %d is lost: %s\nasked again: %s\nthe journal:\n%s", n, body, d.Asked(t, sender), journal)
		}
	}
	for round := range rounds {
		if body := d.Asked(t, fmt.Sprintf("a@round%d.example", round)); strings.Contains(body, `"verdict":"blocked"`) != (round == rounds-1) {
			t.Errorf("the list of round %d: %s", round, body)
		}
	}
	t.Logf("%d upgrades: %d messages, %d live entries", rounds, filtered[0].Load()+filtered[1].Load()+filtered[2].Load(), asked[0].Load())
}

// TestUpgradeThatFails holds that a program that cannot take over costs nothing: the one that runs serves on, says why,
// and has its live entries, history and sources back.
func TestUpgradeThatFails(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bulk.example\n"}})
	own := filepath.Join(t.TempDir(), "blockd")
	text := testkit.Value(os.ReadFile(e2e.Program))(t)
	install := func(text []byte) {
		t.Helper()
		testkit.Must(t, os.WriteFile(own+".new", text, 0o755))
		testkit.Must(t, os.Rename(own+".new", own))
	}
	install(text)
	d.Run(t, exec.Command(own, "serve", "-c", d.Path("config.toml")))
	config := testkit.Read(t, d.Path("config.toml"))
	for name, c := range map[string]struct {
		program, config string
		want            string
	}{
		"no program":        {"#!/bin/sh\nexit 3\n", string(config), "exit status 3"},
		"one that hangs up": {"#!/bin/sh\nexec sleep 0\n", string(config), "it has ended"},
		"not executable":    {"nonsense", string(config), "exec format error"},
		"no configuration":  {string(text), "[smtp]\nlisten = 7\n", "exit status 1"},
		"an address in use": {string(text), strings.Replace(string(config), "[milter]\nlisten = \"\"", fmt.Sprintf("[milter]\nlisten = %q", d.HTTP), 1), "in use"},
		"no certificate":    {string(text), strings.Replace(string(config), "[smtp]", "[smtp]\ntls_cert = \"none.pem\"\ntls_key = \"none.pem\"", 1), "exit status 1"},
	} {
		install([]byte(c.program))
		testkit.Write(t, d.Path("config.toml"), c.config)
		before := strings.Count(d.Log.String(), "not upgraded")
		testkit.Must(t, d.Cmd.Process.Signal(syscall.SIGUSR2))
		testkit.Eventually(t, name+": not upgraded", func() bool { return strings.Count(d.Log.String(), "not upgraded") > before })
		if log := d.Log.String(); !strings.Contains(log[strings.LastIndex(log, "not upgraded"):], c.want) {
			t.Errorf("%s: the log does not say %q:\n%s", name, c.want, e2e.Tail(log, 1500))
		}
		testkit.Write(t, d.Path("config.toml"), string(config))
		if status, body := d.Get("/readyz"); status != http.StatusOK || !strings.Contains(body, "not upgraded: ") {
			t.Errorf("%s: /readyz says %d %q", name, status, body)
		}
		entry := strings.ReplaceAll(name, " ", "") + "@there.example"
		e2e.Blockd(t, "add", "-c", d.Path("config.toml"), entry)
		for _, sender := range []string{"a@bulk.example", entry} {
			testkit.Begins(t, fmt.Sprintf("%s: %s", name, sender), e2e.Ask(t, d.SMTP, sender), "550 ")
		}
		testkit.Eventually(t, "the history to have the refusal", func() bool {
			_, body := d.GetWith(d.FirstToken(t), "/v1/decisions?sender="+entry)
			return strings.Contains(body, entry)
		})
	}
	install(text)
	d.Upgraded(t)
	if _, body := d.Get("/readyz"); body != "ok\n" {
		t.Errorf("/readyz after an upgrade: %q", body)
	}
}

// TestReloadsAtOnce holds that whoever asks for a reload while another process takes over hears what came of it, by
// the command and over HTTP, and that a file which is written meanwhile is taken up after SIGHUP.
func TestReloadsAtOnce(t *testing.T) {
	list := func(n int) string { return fmt.Sprintf("[[list]]\nname = \"more%d\"\npath = \"more%d.txt\"\n", n, n) }
	files := map[string]string{}
	for n := range 12 {
		files[fmt.Sprintf("more%d.txt", n)] = fmt.Sprintf("more%d.example\n", n)
	}
	d := e2e.Serve(t, e2e.Setup{Lists: list(0), Files: files})
	config := string(testkit.Read(t, d.Path("config.toml")))
	add := func(n int) {
		t.Helper()
		config += list(n)
		testkit.Must(t, durable.WriteFile(d.Path("config.toml"), []byte(config), 0o644))
	}
	for n := 1; n <= 5; n++ {
		add(n)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if code, out := d.Reloaded(t); code != 0 {
					t.Errorf("blockd reload beside others ends with %d and says %q", code, out)
				}
			})
		}
		all.Wait()
		testkit.Begins(t, "a sender of the list that was added", e2e.Ask(t, d.SMTP, fmt.Sprintf("a@more%d.example", n)), "550 ")
	}
	for n := 6; n < 12; n++ { // another process begins for the reload, and the file changes before SIGHUP
		var all sync.WaitGroup
		add(n)
		all.Go(func() { d.Reloaded(t) })
		n++
		add(n)
		testkit.Must(t, d.Cmd.Process.Signal(syscall.SIGHUP))
		all.Wait()
		testkit.Eventually(t, "what was in the file at SIGHUP", func() bool { return strings.HasPrefix(e2e.Ask(t, d.SMTP, fmt.Sprintf("a@more%d.example", n)), "550 ") })
	}
}

// TestTheEndOfASuccessorIsNoSilence: without an init system, a process whose successor has died ends too, even if it
// still has sessions. Otherwise whoever watches it would see a live process and start no new one.
func TestTheEndOfASuccessorIsNoSilence(t *testing.T) {
	for _, upgrades := range []int{1, 2} {
		t.Run(fmt.Sprintf("after %d", upgrades), func(t *testing.T) {
			d := e2e.Serve(t, e2e.Setup{SMTP: "drain_timeout = \"1h\"\n", Files: map[string]string{"bad.txt": "bulk.example\n"}, Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n"})
			open, idle := e2e.DialTalk(t, d.SMTP), e2e.DialTalk(t, d.SMTP)
			open.Command("EHLO client.there.example")
			open.Command("MAIL FROM:<friend@there.example>")
			for range upgrades {
				d.Upgraded(t)
			}
			testkit.Begins(t, "a session of the former process goes on", open.Command("RCPT TO:<you@here.example>"), "250 ")
			testkit.Must(t, syscall.Kill(d.Newest(t), syscall.SIGKILL))
			testkit.Begins(t, "an idle session of the former process", idle.Reply(), "421 ")
			if err := <-d.Ended; err == nil {
				t.Error("the former process says that all is well")
			}
			d.Ended <- nil // it was to end
			testkit.Has(t, d.Log.String(), "the process that had taken over has ended, and this one with it")
		})
	}
}

// TestUpgradesOneAfterTheOther holds that processes which still have sessions do not become more without end, and that the
// first one ends with the last.
func TestUpgradesOneAfterTheOther(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Raced: true, Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bulk.example\n"}})
	d.Start(t)
	const most = 16
	var idle []*e2e.Client
	for range most {
		idle = append(idle, e2e.DialTalk(t, d.SMTP)) // its process stays for it
		d.Upgraded(t)
	}
	pid := d.Newest(t)
	testkit.Must(t, syscall.Kill(pid, syscall.SIGUSR2))
	testkit.Eventually(t, "an upgrade too many to be refused", func() bool {
		return strings.Contains(d.Log.String(), "16 former processes still end their sessions")
	})
	for i, c := range idle {
		testkit.Begins(t, fmt.Sprintf("the session of process %d", i), c.Command("NOOP"), "250")
		c.Command("QUIT")
	}
	former := func() bool { return strings.Count(d.Log.String(), "the process before has ended") == most }
	testkit.Eventually(t, "all former processes to end", former)
	d.Upgraded(t)
	testkit.Begins(t, "a listed sender", e2e.Ask(t, d.SMTP, "a@bulk.example"), "550 ")
}

// TestHitsGoOn holds that `blockd lists` counts on over an upgrade, a restart and both after each other.
func TestHitsGoOn(t *testing.T) {
	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bulk.example\n"}})
	d.Start(t)
	hits := 0
	hit := func(after string) {
		t.Helper()
		e2e.MustBegin(t, after+": a listed sender", e2e.Ask(t, d.SMTP, "a@bulk.example"), "550 ")
		hits++
		// A session that the former process still took is known after its next report, see tellEvery.
		testkit.Eventually(t, fmt.Sprintf("%s: %d hits in blockd lists", after, hits), func() bool {
			out, err := exec.Command(e2e.Program, "lists", "--json", "--entries", "-c", d.Path("config.toml")).CombinedOutput()
			text := strings.ReplaceAll(string(out), " ", "")
			return err == nil && strings.Count(text, fmt.Sprintf(`"hits":%d,`, hits)) == 2 && strings.Contains(text, `"entry":"bulk.example"`)
		})
	}
	hit("at first")
	hit("again")
	d.Upgraded(t)
	hit("after an upgrade")
	d.Upgraded(t)
	hit("after another one")
	d.Stop(t)
	d.Start(t)
	hit("after a restart")
}

// TestUpgradeUnderAnInitSystem holds that the init system hears which process is the main one, and that the end of that one,
// which is all that systemd tells (KillMode=mixed), lets transactions of the former one end well.
func TestUpgradeUnderAnInitSystem(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	init := testkit.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}))(t)
	defer init.Close()
	main := make(chan int, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := init.Read(buf)
			if err != nil {
				return
			}
			if rest, ok := strings.CutPrefix(string(buf[:n]), "MAINPID="); ok {
				pid := 0
				fmt.Sscan(rest, &pid)
				main <- pid
			}
		}
	}()
	d := e2e.Configure(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bulk.example\n"}})
	cmd := exec.Command(e2e.Program, "serve", "-c", d.Path("config.toml"))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	d.Run(t, cmd)
	c, idle := e2e.DialTalk(t, d.SMTP), e2e.DialTalk(t, d.SMTP)
	c.Command("EHLO client.there.example")
	c.Command("MAIL FROM:<friend@there.example>")
	c.Command("RCPT TO:<you@here.example>")
	e2e.MustBegin(t, "DATA", c.Command("DATA"), "354")
	d.Upgraded(t)
	pid := <-main
	if pid != d.Newest(t) {
		t.Errorf("the main process is %d, and init was told %d", d.Newest(t), pid)
	}
	testkit.Must(t, syscall.Kill(pid, syscall.SIGTERM))
	testkit.Begins(t, "an idle session of the former process", idle.Reply(), "421 ")
	if processGone(pid) {
		t.Error("the main process has ended before the former one")
	}
	testkit.Begins(t, "the transaction of the former process", c.Command("Subject: x\r\n\r\nx\r\n."), "250 ")
	testkit.Eventually(t, "both processes to end", func() bool { return processGone(pid) && processGone(d.Cmd.Process.Pid) })
	testkit.Equal(t, "messages that have come", len(e2e.Messages(t, d.Maildir)), 1)
}

// A configuration is taken up whole, under an open session, or not at all; each fault is told with its line, also where the
// file does not lead to the daemon any more.
func TestReloadOfTheConfiguration(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"spam\"\npath = \"spam.txt\"\n", Files: map[string]string{"spam.txt": "bulk.example\n"}})
	path := d.Path("config.toml")
	text := testkit.Value(os.ReadFile(path))(t)
	write := func(text string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	reload := func(wantCode int, want string) {
		t.Helper()
		if code, out := d.Reloaded(t); code != wantCode || !strings.Contains(out, want) {
			t.Errorf("blockd reload ends with %d and says %q, want %d and %q", code, out, wantCode, want)
		}
	}
	reload(0, "nothing changed\n")

	idle := e2e.DialTalk(t, d.SMTP)
	idle.Command("EHLO client.example")
	idle.Command("MAIL FROM:<a@bulk.example>")
	good := strings.Replace(string(text), "[smtp]\n", "[smtp]\nrecipients_exempt = [\"desk\"]\n", 1) + "\n[refusal]\ncontact = \"https://help.example/\"\n"
	write(good)
	reload(0, "refusal.contact")
	if got := idle.Command("RCPT TO:<desk@here.example>"); !strings.HasPrefix(got, "550") || strings.Contains(got, "help.example") {
		t.Errorf("an open transaction follows the new configuration: %s", got)
	}
	idle.Command("RSET")
	idle.Command("MAIL FROM:<a@bulk.example>")
	testkit.Begins(t, "the next transaction of an open session", idle.Command("RCPT TO:<desk@here.example>"), "250")
	testkit.Has(t, idle.Command("RCPT TO:<other@here.example>"), "help.example")
	idle.Conn.Close()

	for name, bad := range map[string]struct{ text, want string }{
		"torn":              {good[:len(good)-3], "config.toml:"},
		"empty":             {"", "config.toml:1: the file is empty"},
		"a wrong value":     {strings.Replace(good, "[log]\n", "[log]\nlevel = \"loud\"\n", 1), "log.level"},
		"an address in use": {good + "[dns]\nlisten = \"" + d.HTTP + "\"\n[[dns.zone]]\nname = \"bl.here.example\"\nkind = \"domain\"\nlists = [\"spam\"]\n", "dns.listen: " + d.HTTP + " is in use"},
	} {
		write(bad.text)
		reload(1, bad.want)
		if status, body := d.Get("/readyz"); status != 200 || !strings.HasPrefix(body, "degraded") || !strings.Contains(body, "configuration not taken up") {
			t.Errorf("%s: /readyz says %d %q", name, status, body)
		}
		testkit.Has(t, e2e.Ask(t, d.SMTP, "a@bulk.example"), "help.example")
	}
	testkit.Must(t, os.Remove(path))
	reload(1, "no such file")
	write(good)
	reload(0, "nothing changed\n")
	if _, body := d.Get("/readyz"); body != "ok\n" {
		t.Errorf("/readyz is not cured: %q", body)
	}
	d.Stop(t)
	reload(2, "no daemon")
	d.Start(t)
}

// probe asks the health door at address; the status is 0 where nobody answers.
func probe(address, path string) int {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// While another process takes over, no probe fails; a configuration may move the door; and a daemon that drains is not ready, but alive.
func TestProbesOverATakeOver(t *testing.T) {
	first, second := e2e.FreeAddress(t), e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{Raced: true, SMTP: "drain_timeout = \"1m\"\n", Files: map[string]string{"spam.txt": "bulk.example\n"},
		Lists: fmt.Sprintf("[health]\nlisten = %q\n[[list]]\nname = \"spam\"\npath = \"spam.txt\"\n", first)})
	testkit.Eventually(t, "the daemon to be ready", func() bool { return probe(first, "/readyz") == 200 })

	f := e2e.NewFlow(t)
	for _, path := range []string{"/readyz", "/livez"} {
		f.Run(path, func(int) string {
			if status := probe(first, path); status != 200 {
				return fmt.Sprintf("%d in the midst of a take-over", status)
			}
			return ""
		})
	}
	for range 3 {
		d.Upgraded(t)
		f.Goes(4)
	}
	f.End()

	text := strings.Replace(string(testkit.Read(t, d.Path("config.toml"))), first, second, 1)
	testkit.Must(t, os.WriteFile(d.Path("config.toml"), []byte(text), 0o600))
	if code, out := d.Reloaded(t); code != 0 || !strings.Contains(out, "health.listen") {
		t.Errorf("reload: %d %q", code, out)
	}
	testkit.Eventually(t, "the door to have moved", func() bool { return probe(second, "/readyz") == 200 && probe(first, "/readyz") == 0 })

	open := e2e.DialSMTP(t, d.SMTP) // keeps the daemon from ending
	defer open.Conn.Close()
	open.Command("MAIL FROM:<friend@there.example>")
	testkit.Must(t, d.Cmd.Process.Signal(os.Interrupt))
	testkit.Eventually(t, "the door to say that nothing new is wanted", func() bool { return probe(second, "/readyz") == 503 })
	testkit.Equal(t, "/livez of a daemon that drains", probe(second, "/livez"), 200)
}
