package servers

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

const quarantineLists = "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\non_match = \"quarantine\"\n"

var quarantineFiles = map[string]string{"bad.txt": "bulk.example\n"}

// TestQuarantineReleasedToPostfix holds that a message that is let go arrives at a real server, once, as it was sent; that it
// stays for a recipient whom that server refuses, and when there is no server.
func TestQuarantineReleasedToPostfix(t *testing.T) {
	p := e2e.StartPostfix(t, e2e.FreeAddress(t), "virtual_mailbox_maps=inline:{bob@here.example=inbox/}")
	d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + p.SMTP, SMTP: "quarantine = \"aside\"\nclient_info = \"xclient\"\n", Lists: quarantineLists, Files: quarantineFiles})
	d.Send(t, "first \x1b[31mred", "bob@here.example")
	d.Send(t, "second", "bob@here.example", "nobody@here.example")
	all := d.Aside(t)
	if len(all) != 2 || all[1].Sender != "Spammer+tag@bulk.example" || len(all[0].Recipients) != 2 || all[0].Lists[0] != "bad" {
		t.Fatalf("in quarantine: %+v", all)
	}
	_, out, _ := d.Quarantine(t, "list")
	if strings.Contains(out, "\x1b") || !strings.Contains(out, `first \x1b[31mred`) || !strings.Contains(out, "bob@here.example and 1 more") {
		t.Errorf("listed:\n%q", out)
	}
	if code, out, _ := d.Quarantine(t, "show", all[1].ID); code != 0 || !strings.Contains(out, "blockd history --ref "+all[1].Ref) || !strings.Contains(out, "\n.a dot\nend\n") || strings.Contains(out, "\x1b") {
		t.Errorf("shown, %d:\n%q", code, out)
	}
	if code, out, _ := d.Quarantine(t, "show", "--raw", all[1].ID); code != 0 || !strings.HasPrefix(out, "Return-Path: <Spammer+tag@bulk.example>\r\nDelivered-To: bob@here.example\r\nX-Blockd: ") {
		t.Errorf("raw, %d:\n%q", code, out)
	}
	code, out, notes := d.Quarantine(t, "release", all[1].ID)
	if code != 0 || !strings.HasPrefix(out, "released: bob@here.example from Spammer+tag@bulk.example: 250 ") {
		t.Fatalf("released, %d: %s%s", code, out, notes)
	}
	arrived := func(n int) string {
		t.Helper()
		testkit.Eventually(t, "mail to arrive", func() bool { return len(e2e.Messages(t, p.Maildir)) == n })
		all := e2e.Messages(t, p.Maildir)
		return string(testkit.Read(t, all[len(all)-1]))
	}
	mail := arrived(1)
	if !strings.Contains(mail, "Return-Path: <Spammer+tag@bulk.example>") || !strings.Contains(mail, "X-Blockd-Released: ") || strings.Count(mail, "Delivered-To: bob@here.example") > 1 ||
		!strings.Contains(mail, "\n.a dot\n") {
		t.Errorf("arrived:\n%s", mail)
	}
	if code, _, notes := d.Quarantine(t, "release", all[1].ID); code != 1 || !strings.Contains(notes, "no such message") {
		t.Errorf("a second time: %d, %s", code, notes)
	}
	code, out, _ = d.Quarantine(t, "release", all[0].ID)
	if code != 1 || !strings.Contains(out, "released: bob@here.example") || !strings.Contains(out, "refused by the next server: nobody@here.example from Spammer+tag@bulk.example: 550 ") || !strings.Contains(out, "still in quarantine") {
		t.Errorf("refused for one, %d: %s", code, out)
	}
	arrived(2)
	if left := d.Aside(t); len(left) != 1 || fmt.Sprint(left[0].Recipients) != "[nobody@here.example]" {
		t.Errorf("left: %+v", left)
	}
	testkit.Must(t, p.Master.Signal(syscall.SIGTERM))
	testkit.Eventually(t, "Postfix to end", func() bool { return !e2e.Listens(p.SMTP) })
	if code, _, notes := d.Quarantine(t, "release", all[0].ID); code != 1 || !strings.Contains(notes, "refused") {
		t.Errorf("without a next server: %d, %s", code, notes)
	}
	d.Stop(t)
	if code, _, notes := d.Quarantine(t, "release", all[0].ID); code != 1 || !strings.Contains(notes, "no daemon answers") {
		t.Errorf("without a daemon: %d, %s", code, notes)
	}
	if left := d.Aside(t); len(left) != 1 || left[0].Unsure != nil {
		t.Errorf("left without a daemon: %+v", left)
	}
	if code, out, notes := d.Quarantine(t, "purge", all[0].ID); code != 0 || !strings.HasPrefix(out, "removed 1 message") {
		t.Errorf("purged, %d: %s%s", code, out, notes)
	}
	if left := d.Aside(t); len(left) != 0 {
		t.Errorf("after that: %+v", left)
	}
}

// TestQuarantineReleaseKilled holds that a release that was killed when the next server had the whole message is not repeated
// by itself, and that one that was killed before is.
func TestQuarantineReleaseKilled(t *testing.T) {
	l := testkit.Listen(t)
	hangs, got := make(chan string, 1), make(chan string, 10)
	hangs <- "."
	go hangingServer(l, hangs, got)
	d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + l.Addr().String(), SMTP: "quarantine = \"aside\"\nclient_info = \"none\"\nallow_open_upstream = true\n", Lists: quarantineLists, Files: quarantineFiles})
	d.Send(t, "hello", "bob@here.example")
	id := d.Aside(t)[0].ID
	release := func(flags ...string) (notes string, code int) {
		code, _, notes = d.Quarantine(t, "release", append(flags, id)...)
		return notes, code
	}
	killedAt := func(line string) {
		t.Helper()
		ended := make(chan struct{})
		go func() { defer close(ended); release() }()
		testkit.Eventually(t, "the next server to hear "+line, func() bool { return len(got) > 0 })
		testkit.MustEqual(t, "the next server hangs at", <-got, line)
		d.Cmd.Process.Kill()
		<-d.Ended
		<-ended
		d.Start(t)
	}
	killedAt(".")
	if all := d.Aside(t); len(all) != 1 || all[0].Unsure == nil {
		t.Fatalf("after the kill: %+v", all)
	}
	if _, out, _ := d.Quarantine(t, "list"); !strings.Contains(out, "(perhaps released) hello") {
		t.Errorf("listed:\n%s", out)
	}
	if notes, code := release(); code != 1 || !strings.Contains(notes, "cut off") || !strings.Contains(notes, "--again") {
		t.Errorf("released after the kill: %d, %s", code, notes)
	}
	if notes, code := release("--again"); code != 0 {
		t.Errorf("released again: %d, %s", code, notes)
	}
	if all := d.Aside(t); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
	if notes, err := os.ReadDir(filepath.Join(d.Dir, "aside", "release")); err != nil || len(notes) > 0 {
		t.Errorf("notes left: %v, %v", notes, err)
	}

	d.Send(t, "once more", "bob@here.example")
	id = d.Aside(t)[0].ID
	hangs <- "DATA"
	killedAt("DATA")
	if notes, code := release(); code != 0 {
		t.Errorf("released after a kill before the end: %d, %s", code, notes)
	}
}

// hangingServer is a next server that takes all mail. At a line from hangs it says to got that it has heard it, and nothing to
// the client any more.
func hangingServer(l net.Listener, hangs <-chan string, got chan<- string) {
	hang := ""
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case hang = <-hangs:
		default:
		}
		func() {
			defer c.Close()
			fmt.Fprint(c, "220 next\r\n")
			lines, data := bufio.NewScanner(c), false
			for lines.Scan() {
				line := lines.Text()
				verb, _, _ := strings.Cut(line, " ")
				switch {
				case hang != "" && line == hang:
					got <- hang
					hang = ""
					for lines.Scan() { // until the client is killed
					}
					return
				case data && line != ".":
				case verb == "DATA":
					data = true
					fmt.Fprint(c, "354 go on\r\n")
				case verb == "QUIT":
					fmt.Fprint(c, "221 bye\r\n")
					return
				default:
					data = false
					fmt.Fprint(c, "250 ok\r\n")
				}
			}
		}()
	}
}
