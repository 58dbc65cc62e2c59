package mailbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"blockd/internal/testkit"
)

// quiet is a logger for tests that provoke errors.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func start(t *testing.T, s Settings) *Server {
	t.Helper()
	if s.Dir == "" {
		s.Dir = filepath.Join(t.TempDir(), "mail")
	}
	if s.Hostname == "" {
		s.Hostname = "mx.here.example"
	}
	m := testkit.Value(New(s, quiet()))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Shutdown(ctx); err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return m
}

// client returns an independent SMTP client in a session with m.
func client(t *testing.T, m *Server) *smtp.Client {
	t.Helper()
	conn := testkit.Value(m.Dial(t.Context()))(t)
	c := smtp.NewClient(conn)
	t.Cleanup(func() { c.Close() })
	testkit.Must(t, c.Hello("client.example"))
	return c
}

// send delivers one message and returns the name that the last reply gives it.
func send(c *smtp.Client, from string, to []string, message string) (string, error) {
	if err := c.Mail(from, nil); err != nil {
		return "", err
	}
	for _, rcpt := range to {
		if err := c.Rcpt(rcpt, nil); err != nil {
			return "", err
		}
	}
	w, err := c.Data()
	if err != nil {
		return "", err
	}
	if _, err := io.WriteString(w, message); err != nil {
		return "", err
	}
	reply, err := w.CloseWithResponse()
	if err != nil {
		return "", err
	}
	id, ok := strings.CutPrefix(reply.StatusText, "2.0.0 Ok: queued as ")
	if !ok {
		return "", fmt.Errorf("reply %q names no file", reply.StatusText)
	}
	return id, nil
}

// files returns the contents of a folder of m, the names sorted.
func files(t *testing.T, m *Server, folder string) (names, contents []string) {
	t.Helper()
	entries := testkit.Value(os.ReadDir(filepath.Join(m.maildir.dir, folder)))(t)
	for _, e := range entries {
		b := testkit.Read(t, filepath.Join(m.maildir.dir, folder, e.Name()))
		names, contents = append(names, e.Name()), append(contents, string(b))
	}
	return names, contents
}

// raw is a session by hand, for lines that no proper client sends.
type raw struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func rawSession(t *testing.T, m *Server) *raw {
	t.Helper()
	conn := testkit.Value(m.Dial(t.Context()))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &raw{t, conn, bufio.NewReader(conn)}
}

func (r *raw) send(s string) {
	r.t.Helper()
	if _, err := io.WriteString(r.conn, s); err != nil {
		r.t.Fatal(err)
	}
}

// want reads one reply, all its lines, and compares its beginning.
func (r *raw) want(prefix string) string {
	r.t.Helper()
	var all strings.Builder
	for {
		line, err := r.r.ReadString('\n')
		if err != nil {
			r.t.Fatalf("reply %q and then %v, want %q", all.String(), err, prefix)
		}
		all.WriteString(line)
		if len(line) > 3 && line[3] != '-' {
			break
		}
	}
	if !strings.HasPrefix(all.String(), prefix) {
		r.t.Fatalf("reply %q, want %q", all.String(), prefix)
	}
	return all.String()
}

// data sends the commands of an envelope, up to DATA.
func (r *raw) data(commands string) {
	r.t.Helper()
	r.want("220 mx.here.example ")
	r.send(commands)
	for _, want := range []string{"250", "250", "250", "354"} {
		r.want(want)
	}
}

func (r *raw) wantEnd() {
	r.t.Helper()
	if line, err := r.r.ReadString('\n'); err == nil || line != "" {
		r.t.Fatalf("reply %q, want the end of the session", line)
	}
}

func TestMessageIsOneFileWithItsEnvelopeOnTop(t *testing.T) {
	m := start(t, Settings{})
	c := client(t, m)
	message := "Subject: hi\r\n\r\n.dot\r\n..two dots\r\n.\r\nlast\r\n"
	id := testkit.Value(send(c, "a@sender.example", []string{"b@here.example", "c@here.example"}, message))(t)
	names, contents := files(t, m, "new")
	want := "Return-Path: <a@sender.example>\r\nDelivered-To: b@here.example\r\nDelivered-To: c@here.example\r\n" + message
	if len(contents) != 1 || contents[0] != want {
		t.Errorf("new/ holds %q, want one file %q", contents, want)
	}
	if len(names) != 1 || names[0] != id+".mx.here.example" {
		t.Errorf("reply names %q, file is %q: want the same with the host", id, names)
	}
	if left, _ := files(t, m, "tmp"); len(left) != 0 {
		t.Errorf("tmp/ holds %q, want nothing", left)
	}
}

func TestPathsStandInTheHeaderAsSent(t *testing.T) {
	for _, tt := range []struct{ name, from, to, message, want string }{
		{"quoted, and UTF-8", `"victim@blocked.example> ENVID=a\"b"@good.example> BODY=8BITMIME`, "\xc3\xbc@here.example>", "x\r\n",
			`Return-Path: <"victim@blocked.example> ENVID=a\"b"@good.example>` + "\r\nDelivered-To: \u00fc@here.example\r\n"},
		{"null sender", ">", "b@here.example>", "x\r\n", "Return-Path: <>\r\nDelivered-To: b@here.example\r\n"},
		// RFC 5321, section 4.5.1. go-smtp's parser wants a domain. The same line in the message is text.
		{"postmaster needs no domain", "a@b.example>", "PostMaster>", "RCPT TO:<postmaster>\r\n",
			"Return-Path: <a@b.example>\r\nDelivered-To: PostMaster@mx.here.example\r\n"},
	} {
		m := start(t, Settings{})
		r := rawSession(t, m)
		r.data("EHLO c\r\nmail from:<" + tt.from + "\r\nRCPT TO: <" + tt.to + "\r\nDATA\r\n")
		r.send(tt.message + ".\r\nQUIT\r\n")
		r.want("250 2.0.0 Ok: queued as ")
		r.want("221")
		if _, got := files(t, m, "new"); !slices.Equal(got, []string{tt.want + tt.message}) {
			t.Errorf("%s: new/ holds %q, want %q", tt.name, got, tt.want+tt.message)
		}
	}
}

func TestEHLOOffersOnlyWhatIsKept(t *testing.T) {
	m := start(t, Settings{MaxBytes: 1000})
	r := rawSession(t, m)
	r.want("220")
	r.send("EHLO c\r\n")
	lines := strings.Split(r.want("250-"), "\r\n")
	for _, want := range []string{"250-PIPELINING", "250-8BITMIME", "250-SMTPUTF8", "250-SIZE 1000"} {
		if !slices.Contains(lines, want) {
			t.Errorf("EHLO answers %q, want %q among them", lines, want)
		}
	}
	for _, line := range lines {
		if strings.Contains(line, "CHUNKING") || strings.Contains(line, "AUTH") || strings.Contains(line, "STARTTLS") {
			t.Errorf("EHLO offers %q", line)
		}
	}
}

func TestRefusals(t *testing.T) {
	hello := "EHLO c\r\n"
	mail := hello + "MAIL FROM:<a@b.example>\r\n"
	tests := []struct {
		name, send string
		want       []string
		ends       bool
	}{
		{"BDAT is not taken, nor its chunk read as commands", hello + "BDAT 28\r\nMAIL FROM:<evil@b.example>\r\n", []string{"250", "502 5.5.1"}, true},
		{"BDAT in small letters", hello + "bdat 4294967296\r\n", []string{"250", "502 5.5.1"}, true},
		{"command line beyond 4096 octets", hello + "NOOP " + strings.Repeat("x", 5000) + "\r\n", []string{"250", "500 5.5.2"}, true},
		{"command line without end", strings.Repeat("x", 5000), []string{"500 5.5.2"}, true},
		{"sender with a control character", hello + "MAIL FROM:<a@b.example\rX>\r\n", []string{"250", "501 5.1.7"}, false},
		{"sender without brackets", hello + "MAIL FROM:a@b.example\r\n", []string{"250", "501 5.1.7"}, false},
		{"recipient with a control character", mail + "RCPT TO:<a@b.example\x01>\r\n", []string{"250", "250", "501 5.1.3"}, false},
		{"second sender in a transaction", mail + "MAIL FROM:<c@d.example>\r\n", []string{"250", "250", "503 5.5.1"}, false},
		{"bare CR in the message", mail + "RCPT TO:<c@d.example>\r\nDATA\r\na\rb\r\n.\r\n", []string{"250", "250", "250", "354", "550 5.5.2"}, false},
		{"end of data behind a bare CR", mail + "RCPT TO:<c@d.example>\r\nDATA\r\na\r\r\n.\r\nQUIT\r\n", []string{"250", "250", "250", "354", "550 5.5.2"}, false},
		{"bare LF in the message", mail + "RCPT TO:<c@d.example>\r\nDATA\r\na\n.\r\nx\r\n.\r\n", []string{"250", "250", "250", "354", "550 5.5.2"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := start(t, Settings{})
			r := rawSession(t, m)
			r.want("220")
			r.send(tt.send)
			for _, want := range tt.want {
				r.want(want)
			}
			if tt.ends {
				r.wantEnd()
			}
			for _, folder := range []string{"new", "tmp"} {
				if names, _ := files(t, m, folder); len(names) != 0 {
					t.Errorf("%s/ holds %q, want nothing", folder, names)
				}
			}
		})
	}
}

func TestSizeLimitIsExact(t *testing.T) {
	m := start(t, Settings{MaxBytes: 1000})
	c := client(t, m)
	fits := strings.Repeat("x", 998) + "\r\n"
	testkit.Value(send(c, "a@b.example", []string{"c@d.example"}, fits))(t)
	var refused *smtp.SMTPError
	if _, err := send(c, "a@b.example", []string{"c@d.example"}, "x"+fits); !errors.As(err, &refused) || refused.Code != 552 {
		t.Errorf("1001 octets: %v, want 552", err)
	}
	testkit.Value(send(c, "a@b.example", []string{"c@d.example"}, fits))(t)
	if names, _ := files(t, m, "new"); len(names) != 2 {
		t.Errorf("%d messages, want 2", len(names))
	}
}

func TestLongLinesArePartOfMail(t *testing.T) {
	m := start(t, Settings{})
	for _, n := range []int{998, 3000, 4095, 4096, 4097, 1<<20 + 1, 3 << 20} {
		message := strings.Repeat("x", n) + "\r\n.\r\nend\r\n"
		c := client(t, m)
		if _, err := send(c, "a@b.example", []string{"c@d.example"}, message); err != nil {
			t.Fatalf("line of %d octets: %v", n, err)
		}
		_, contents := files(t, m, "new")
		want := "Return-Path: <a@b.example>\r\nDelivered-To: c@d.example\r\n" + message
		if !slices.Contains(contents, want) {
			t.Errorf("line of %d octets: not delivered as sent", n)
		}
	}
}

func TestManyRecipients(t *testing.T) {
	m := start(t, Settings{})
	c := client(t, m)
	testkit.Must(t, c.Mail("a@b.example", nil))
	for i := range maxRecipients {
		if err := c.Rcpt(fmt.Sprintf("u%d@here.example", i), nil); err != nil {
			t.Fatalf("recipient %d: %v", i+1, err)
		}
	}
	var refused *smtp.SMTPError
	if err := c.Rcpt("one-more@here.example", nil); !errors.As(err, &refused) || refused.Code != 452 {
		t.Errorf("recipient %d: %v, want 452", maxRecipients+1, err)
	}
	w := testkit.Value(c.Data())(t)
	io.WriteString(w, "x\r\n")
	testkit.Must(t, w.Close())
	_, contents := files(t, m, "new")
	if len(contents) != 1 || strings.Count(contents[0], "\r\nDelivered-To: u") != maxRecipients {
		t.Errorf("want one file with %d recipients", maxRecipients)
	}
}

// P2: half a message is no message.
func TestLostClientDeliversNothing(t *testing.T) {
	for _, sent := range []string{"", "half", "half\r\n", "half\r\n.", "half\r\n.\r"} {
		m := start(t, Settings{})
		r := rawSession(t, m)
		r.data("EHLO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n")
		r.send(sent)
		r.conn.Close()
		if err := m.Shutdown(t.Context()); err != nil { // waits for the session's end
			t.Fatal(err)
		}
		for _, folder := range []string{"new", "tmp"} {
			if names, _ := files(t, m, folder); len(names) != 0 {
				t.Errorf("client gone after %q: %s/ holds %q, want nothing", sent, folder, names)
			}
		}
	}
}

func TestDiskErrorsAreTemporary(t *testing.T) {
	remove := func(t *testing.T, m *Server, folder string) {
		testkit.Must(t, os.RemoveAll(filepath.Join(m.maildir.dir, folder)))
	}
	tests := []struct {
		name  string
		fault func(t *testing.T, m *Server)
	}{
		{"disk full", func(t *testing.T, m *Server) {
			m.maildir.create = func(string) (*os.File, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) }
			if f, err := m.maildir.create(""); err != nil {
				t.Skip("no /dev/full here: ", err)
			} else {
				f.Close()
			}
		}},
		{"no folder for the file", func(t *testing.T, m *Server) { remove(t, m, "tmp") }},
		{"a file where the folder was", func(t *testing.T, m *Server) {
			remove(t, m, "tmp")
			testkit.Write(t, filepath.Join(m.maildir.dir, "tmp"), "")
		}},
		{"no folder to move it to", func(t *testing.T, m *Server) { remove(t, m, "new") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := start(t, Settings{})
			good := m.maildir.create
			tt.fault(t, m)
			c := client(t, m)
			_, err := send(c, "a@b.example", []string{"c@d.example"}, strings.Repeat("x\r\n", 50_000))
			var refused *smtp.SMTPError
			if !errors.As(err, &refused) || refused.Code != 451 || refused.EnhancedCode != (smtp.EnhancedCode{4, 3, 0}) {
				t.Fatalf("reply %v, want 451 4.3.0", err)
			}
			if strings.Contains(refused.Message, m.maildir.dir) {
				t.Errorf("reply %q tells the client of our disk", refused.Message)
			}

			// The fault is over, and the session has not suffered.
			for _, folder := range []string{"tmp", "new"} {
				if info, err := os.Stat(filepath.Join(m.maildir.dir, folder)); err != nil || !info.IsDir() {
					os.Remove(filepath.Join(m.maildir.dir, folder))
					testkit.Must(t, os.Mkdir(filepath.Join(m.maildir.dir, folder), 0o700))
				} else if names, _ := files(t, m, folder); len(names) != 0 {
					t.Errorf("%s/ holds %q, want nothing", folder, names)
				}
			}
			m.maildir.create = good
			testkit.Value(send(c, "a@b.example", []string{"c@d.example"}, "x\r\n"))(t)
		})
	}
}

func TestUnusableFolderIsReportedAtTheStart(t *testing.T) {
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "file"), "")
	if _, err := New(Settings{Dir: filepath.Join(dir, "file")}, quiet()); err == nil {
		t.Error("New on a file: no error")
	}
	if os.Getuid() != 0 {
		sub := filepath.Join(dir, "sub")
		testkit.Must(t, os.MkdirAll(filepath.Join(sub, "tmp"), 0o700))
		testkit.Must(t, os.Chmod(filepath.Join(sub, "tmp"), 0o500))
		testkit.Fails(New(Settings{Dir: sub}, quiet()))(t, "New without permission to write", os.ErrPermission)
	}
}

func TestStaleDeliveriesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	tmp := filepath.Join(dir, "tmp")
	testkit.Must(t, os.Mkdir(tmp, 0o700))
	for name, age := range map[string]time.Duration{"old": 37 * time.Hour, "young": 35 * time.Hour} {
		path := testkit.Write(t, filepath.Join(tmp, name), "")
		testkit.Must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
	}
	m := start(t, Settings{Dir: dir})
	if names, _ := files(t, m, "tmp"); !slices.Equal(names, []string{"young"}) {
		t.Errorf("tmp/ holds %q, want only the file that may be in use", names)
	}
}

func TestConcurrentDeliveriesNeverShareAName(t *testing.T) {
	dir := t.TempDir()
	const sessions, each = 16, 20
	servers := []*Server{start(t, Settings{Dir: dir}), start(t, Settings{Dir: dir})}
	var wg sync.WaitGroup
	for i := range sessions {
		c := client(t, servers[i%len(servers)])
		wg.Go(func() {
			for range each {
				testkit.Fails(send(c, "a@b.example", []string{"c@d.example"}, "x\r\n"))(t, fmt.Sprintf("session %d", i), nil)
			}
		})
	}
	wg.Wait()
	if names, _ := files(t, servers[0], "new"); len(names) != sessions*each {
		t.Errorf("%d files, want %d", len(names), sessions*each)
	}
}

func TestShutdownWaitsForTheOpenSession(t *testing.T) {
	m := start(t, Settings{})
	c := client(t, m)
	done := make(chan error, 1)
	go func() { done <- m.Shutdown(context.Background()) }()
	<-m.closed
	testkit.Fails(m.Dial(t.Context()))(t, "Dial during Shutdown", ErrClosed)
	testkit.Value(send(c, "a@b.example", []string{"c@d.example"}, "x\r\n"))(t)
	select {
	case err := <-done:
		t.Fatalf("Shutdown returned %v before the session's end", err)
	default:
	}
	testkit.Must(t, c.Quit())
	testkit.IsError(t, "Shutdown", <-done, nil)
	testkit.IsError(t, "second Shutdown", m.Shutdown(t.Context()), ErrClosed)
}

func TestShutdownEndsSessionsWithItsContext(t *testing.T) {
	m := start(t, Settings{})
	idle, busy := rawSession(t, m), rawSession(t, m)
	idle.want("220")
	busy.data("EHLO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\nhalf")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	testkit.IsError(t, "Shutdown", m.Shutdown(ctx), context.DeadlineExceeded)
	for _, r := range []*raw{idle, busy} {
		if _, err := io.Copy(io.Discard, r.r); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Logf("session ended with %v", err)
		}
	}
	select {
	case <-m.empty: // the sessions' goroutines have ended
	case <-time.After(time.Minute):
		t.Fatal("sessions outlive Shutdown")
	}
	for _, folder := range []string{"new", "tmp"} {
		if names, _ := files(t, m, folder); len(names) != 0 {
			t.Errorf("%s/ holds %q, want nothing", folder, names)
		}
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	m := start(t, Settings{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // either answer is right, but no third
		conn, err := m.Dial(ctx)
		switch {
		case err == nil:
			conn.Close()
		case !errors.Is(err, context.Canceled):
			t.Fatalf("Dial: %v, want Canceled", err)
		}
	}
}

// RFC 5321, section 4.1.1.4: blanks behind a command are to be tolerated.
func TestBlanksBehindACommandAreNoArgument(t *testing.T) {
	r := rawSession(t, start(t, Settings{}))
	r.want("220")
	r.send("EHLO c\r\nNOOP \r\nRSET  \r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<b@here.example>\r\ndata \r\n")
	for _, reply := range []string{"250", "250", "250", "250", "250", "354"} {
		r.want(reply)
	}
	r.send("NOOP \r\n.\r\nQUIT \r\n")
	r.want("250")
	r.want("221")
}

// An empty quoted string is a local-part.
func TestEmptyLocalPartIsDelivered(t *testing.T) {
	m := start(t, Settings{})
	r := rawSession(t, m)
	r.want("220")
	r.send("EHLO c\r\nMAIL FROM:<\"\"@b.example> BODY=8BITMIME\r\nRCPT TO:<@relay.example:\"\"@here.example>\r\nDATA\r\nx\r\n.\r\n")
	for _, reply := range []string{"250", "250", "250", "354", "250"} {
		r.want(reply)
	}
	want := "Return-Path: <\"\"@b.example>\r\nDelivered-To: @relay.example:\"\"@here.example\r\nx\r\n"
	if _, got := files(t, m, "new"); !slices.Equal(got, []string{want}) {
		t.Errorf("new/ holds %q, want %q", got, want)
	}
}

// A host name of legal length would make a file name of illegal length.
func TestLongHostNameIsCutInFileNames(t *testing.T) {
	m := start(t, Settings{Hostname: strings.Repeat("long-label.", 22) + "example"})
	testkit.Value(send(client(t, m), "a@b.example", []string{"b@here.example"}, "x\r\n"))(t)
	if names, _ := files(t, m, "new"); len(names) != 1 || !strings.Contains(names[0], ".long-label.") {
		t.Errorf("new/ holds %q, want one name with the host's beginning", names)
	}
}

// Every real message arrives as it was sent. Behind the headers that delivery
// adds, no byte differs.
func TestRealMailArrivesUnchanged(t *testing.T) {
	paths := testkit.Value(filepath.Glob(filepath.Join(testkit.Shared(t, "mail"), "*/*.eml")))(t)
	if len(paths) == 0 {
		t.Fatal("no message in the corpus")
	}
	m := start(t, Settings{})
	c := client(t, m)
	for _, path := range paths {
		message := testkit.Read(t, path)
		message = bytes.ReplaceAll(message, []byte("\n"), []byte("\r\n"))
		id := testkit.Value(send(c, "a@sender.example", []string{"b@here.example"}, string(message)))(t)
		got := testkit.Read(t, filepath.Join(m.maildir.dir, "new", id+".mx.here.example"))
		header := "Return-Path: <a@sender.example>\r\nDelivered-To: b@here.example\r\n"
		if string(got) != header+string(message) {
			t.Errorf("%s: delivered bytes differ from those sent", path)
		}
	}
}
