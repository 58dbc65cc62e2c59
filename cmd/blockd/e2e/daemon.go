package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/doors/httpapi"
	"blockd/internal/testkit"
	"blockd/records/quarantine"
)

// Daemon is a running `blockd serve` of a test's own.
type Daemon struct {
	Dir        string // of config.toml, lists and the Maildir
	SMTP, HTTP string // HOST:PORT
	Maildir    string // "" with another upstream
	Cmd        *exec.Cmd
	Log        daemonLog
	Ended      chan error
	Unready    bool   // Start does not wait until it is ready, for it will not be
	Program    string // its path; "" = the one that is built as users build it
}

// Setup is what a test wants of its daemon.
type Setup struct {
	Upstream string            // "" = the embedded mailbox
	SMTP     string            // more lines of [smtp]
	Milter   string            // lines of [milter]; "" = no such door
	Postfix  string            // lines of [postfix]; "" = none of its services
	Lists    string            // [[list]] tables; paths relative to the daemon's folder or absolute
	Files    map[string]string // list files below the daemon's folder, name to text
	Raced    bool              // the program with the race detector
}

// ManyErrors is for a daemon that a test asks much on one session: refusals are errors, and
// a session of too many ends.
const ManyErrors = "hard_errors = 20000\n"

// Serve configures and starts a daemon.
func Serve(t *testing.T, s Setup) *Daemon {
	t.Helper()
	d := Configure(t, s)
	d.Start(t)
	return d
}

// Configure is serve without the start.
func Configure(t *testing.T, s Setup) *Daemon {
	t.Helper()
	dir := t.TempDir()
	d := &Daemon{Dir: dir, SMTP: FreeAddress(t), HTTP: FreeAddress(t)}
	if s.Raced {
		d.Program = Raced(t)
	}
	if s.Upstream == "" {
		d.Maildir = filepath.Join(dir, "mail")
		s.Upstream = "maildir:mail"
	}
	if s.Milter == "" {
		s.Milter = `listen = ""`
	}
	if s.Postfix == "" {
		s.Postfix = `policy_listen = ""`
	}
	for name, text := range s.Files {
		testkit.Write(t, d.Path(name), text)
	}
	config := fmt.Sprintf(`
[index]
path = "blockd.bdx"
quiet = "50ms"

[smtp]
listen = %q
hostname = "filter.here.example"
upstream = %q
%s

[milter]
%s

[postfix]
%s

[http]
listen = %q

[log]
format = "text"

%s
`, d.SMTP, s.Upstream, s.SMTP, s.Milter, s.Postfix, d.HTTP, s.Lists)
	testkit.Write(t, d.Path("config.toml"), config)
	return d
}

// Start runs the program on the config.toml in d.dir until the test ends, and
// waits until it is ready to filter.
func (d *Daemon) Start(t *testing.T) {
	t.Helper()
	d.Run(t, exec.Command(cmp.Or(d.Program, Program), "serve", "-c", d.Path("config.toml")))
}

// Run is start with another command line.
func (d *Daemon) Run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log, out := newDaemonLog(t)
	defer out.Close()
	d.Cmd, d.Log, d.Ended = cmd, log, make(chan error, 1)
	d.Cmd.Stdout, d.Cmd.Stderr = out, out
	testkit.Must(t, d.Cmd.Start())
	go func() { d.Ended <- d.Cmd.Wait() }()
	t.Cleanup(func() { d.Stop(t) })

	testkit.Eventually(t, "the daemon to be ready", func() bool {
		select {
		case err := <-d.Ended:
			d.Ended <- err
			t.Fatalf("blockd serve ended: %v\n%s", err, d.Log)
		default:
		}
		status, _ := d.Get("/readyz")
		return status == http.StatusOK || d.Unready && status != 0
	})
}

// Reload has the daemon look at its files at once.
func (d *Daemon) Reload(t *testing.T) {
	t.Helper()
	testkit.Must(t, d.Cmd.Process.Signal(syscall.SIGHUP))
}

func (d *Daemon) Path(name string) string { return filepath.Join(d.Dir, name) }

// Stop ends the daemon as an init system does, and fails the test when it does
// not end well: a race report makes the exit status 66.
func (d *Daemon) Stop(t *testing.T) {
	t.Helper()
	d.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-d.Ended:
		if err != nil {
			t.Errorf("blockd serve ended with %v\n%s", err, d.Log)
		}
		d.Ended <- err
	case <-time.After(90 * time.Second):
		d.Cmd.Process.Kill()
		t.Errorf("blockd serve did not end within 90 s of SIGTERM\n%s", d.Log)
	}
	if t.Failed() {
		t.Logf("log of blockd, its end:\n%s", Tail(d.Log.String(), 8000))
	}
}

// Get asks the HTTP door; status 0 means no answer.
func (d *Daemon) Get(path string) (status int, body string) { return d.GetWith("", path) }

// GetWith is Get with a token.
func (d *Daemon) GetWith(token, path string) (status int, body string) {
	return d.request("GET", path, token, "")
}

// request asks the HTTP door, with a token unless it is "", and with fields of a header, "NAME: VALUE".
func (d *Daemon) request(method, path, token, body string, header ...string) (status int, answer string) {
	req, err := http.NewRequest(method, "http://"+d.HTTP+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		header = append(header, "Authorization: Bearer "+token)
	}
	if body != "" {
		header = append(header, "Content-Type: application/json")
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return answered(http.DefaultClient.Do(req))
}

// answered is an answer of HTTP; status 0 means that there was none.
func answered(resp *http.Response, err error) (status int, body string) {
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// Metric returns the value of one series as /metrics prints it, "" if absent.
func (d *Daemon) Metric(series string) string {
	_, body := d.Get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}

// Counted waits until a series of /metrics has a value: a daemon may count what it has done
// after it has told the client.
func (d *Daemon) Counted(t *testing.T, series, want string) {
	t.Helper()
	last := ""
	defer func() {
		if last != want {
			t.Logf("%s is %q, want %q", series, last, want)
		}
	}()
	testkit.Eventually(t, series+" "+want, func() bool {
		last = d.Metric(series)
		return last == want
	})
}

// CountedSome is counted for any value but zero.
func (d *Daemon) CountedSome(t *testing.T, series string) {
	t.Helper()
	testkit.Eventually(t, series, func() bool { n := d.Metric(series); return n != "" && n != "0" })
}

// Messages returns those in a Maildir's new/.
func Messages(t *testing.T, maildir string) []string {
	t.Helper()
	return testkit.Value(filepath.Glob(filepath.Join(maildir, "new", "*")))(t)
}

// Replace writes a file the way list tools do: aside, then renamed over the old.
func Replace(t *testing.T, path, text string) {
	t.Helper()
	testkit.Write(t, path+".new", text)
	testkit.Must(t, os.Rename(path+".new", path))
}

// NetworkOf is an address of a configuration, HOST:PORT or unix:PATH, for net.Dial.
func NetworkOf(address string) (network, where string) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return "unix", path
	}
	return "tcp", address
}

// Listens reports whether somebody listens at an address of a configuration.
func Listens(address string) bool {
	network, where := NetworkOf(address)
	conn, err := net.Dial(network, where)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// Command runs the program with the daemon's configuration, and returns its exit code
// and both outputs.
func (d *Daemon) Command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(Program, slices.Insert(slices.Clone(args), 1, "-c", d.Path("config.toml"))...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Must is command that has to work.
func (d *Daemon) Must(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := d.Command(t, args...)
	if code != 0 {
		t.Fatalf("blockd %q = %d: %s%s", args, code, out, errs)
	}
	return out
}

// Ends is Command with the exit code that it must have. It returns both outputs.
func (d *Daemon) Ends(t *testing.T, code int, args ...string) string {
	t.Helper()
	got, out, errs := d.Command(t, args...)
	testkit.Equal(t, fmt.Sprintf("blockd %q says %s%s: its exit code", args, out, errs), got, code)
	return out + errs
}

// Prints waits until a command, words with blanks between them, prints each of these parts.
func (d *Daemon) Prints(t *testing.T, words string, parts ...string) {
	t.Helper()
	testkit.Eventually(t, "blockd "+words+" to print "+strings.Join(parts, " and "), func() bool {
		_, out, _ := d.Command(t, strings.Fields(words)...)
		return hasAll(out, parts)
	})
}

// Says waits until the answer of the HTTP door has each of these parts.
func (d *Daemon) Says(t *testing.T, path string, parts ...string) {
	t.Helper()
	testkit.Eventually(t, path+" to say "+strings.Join(parts, " and "), func() bool {
		_, body := d.Get(path)
		return hasAll(body, parts)
	})
}

func hasAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// doors ask a running daemon about one sender, each over a connection that stays. An SMTP
// session stays until it has collected a few refusals: one with many is slowed and ended.
type doors struct {
	t        *testing.T
	d        *Daemon
	said     *Client // the session in use
	refusals int     // that it has collected
	policy   net.Conn
	answers  *bufio.Reader // of policy
}

func (d *Daemon) Doors(t *testing.T, policy string) *doors {
	conn, answers := DialRaw(t, policy)
	return &doors{t: t, d: d, policy: conn, answers: answers}
}

// Refused says of each door whether it refuses a sender.
func (d *doors) Refused(sender string) (smtp, policy, http bool) {
	d.t.Helper()
	if d.said == nil || d.refusals == 5 {
		d.said, d.refusals = DialSMTP(d.t, d.d.SMTP), 0
	}
	reply := d.said.Rcpt(sender, "user@here.example")
	if smtp = strings.HasPrefix(reply, "550 5.7.1"); smtp {
		d.refusals++
	} else {
		MustBegin(d.t, sender, reply, "250")
	}
	d.policy.SetDeadline(time.Now().Add(time.Minute))
	action := AskPolicy(d.t, d.policy, d.answers, sender, "user@here.example")
	status, body := d.d.Get("/v1/check?sender=" + sender)
	testkit.MustEqual(d.t, body, status, 200)
	return smtp, action != "DUNNO", strings.Contains(body, `"verdict":"blocked"`)
}

// AskPolicy asks a policy service about a recipient as Postfix does, with more attributes, and returns the action.
func AskPolicy(t *testing.T, conn net.Conn, answers *bufio.Reader, sender, recipient string, more ...string) string {
	t.Helper()
	fmt.Fprintf(conn, "request=smtpd_access_policy\nprotocol_state=RCPT\nsender=%s\nrecipient=%s\n%s\n\n", sender, recipient,
		strings.Join(append([]string{"client_address=198.51.100.9"}, more...), "\n"))
	line := testkit.Value(answers.ReadString('\n'))(t)
	if empty, err := answers.ReadString('\n'); err != nil || empty != "\n" {
		t.Fatalf("policy: %q, %q, %v", line, empty, err)
	}
	return strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "action=")
}

// SocketClient asks by the daemon's Unix socket.
func (d *Daemon) SocketClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Path("blockd.bdx.sock"))
	}}}
}

var Reference = regexp.MustCompile(`\(ref ([0-9a-z]{10})\)`)

// Kept is all that the history has on disk.
func (d *Daemon) Kept(t *testing.T) string {
	t.Helper()
	files := testkit.Value(filepath.Glob(d.Path("blockd.bdx.history/*.decisions")))(t)
	var all strings.Builder
	for _, file := range files {
		text := testkit.Read(t, file)
		all.Write(text)
	}
	return all.String()
}

// Kill ends the daemon as a crash of the machine does: with a process that it has begun, which could serve on otherwise.
func (d *Daemon) Kill(t *testing.T) {
	t.Helper()
	pid := d.Cmd.Process.Pid
	testkit.Stop(t, pid)
	all := []int{pid}
	for _, file := range testkit.Value(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)))(t) {
		for _, child := range strings.Fields(string(testkit.Read(t, file))) {
			all = append(all, testkit.Value(strconv.Atoi(child))(t))
		}
	}
	for _, pid := range all {
		testkit.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	<-d.Ended
	d.Ended <- nil
}

// FirstToken is the token that the daemon's first start has made.
func (d *Daemon) FirstToken(t *testing.T) string {
	t.Helper()
	text := testkit.Read(t, d.Path("blockd.bdx.token"))
	return strings.TrimSpace(string(text))
}

// Fetch is the body of an answer of 200 to the first token.
func (d *Daemon) Fetch(t *testing.T, target string) []byte {
	t.Helper()
	status, body := d.GetWith(d.FirstToken(t), target)
	testkit.MustEqual(t, "GET "+target+", "+body, status, http.StatusOK)
	return []byte(body)
}

// Edit replaces a part of the configuration.
func (d *Daemon) Edit(t *testing.T, old, with string) {
	t.Helper()
	text := testkit.Read(t, d.Path("config.toml"))
	if !strings.Contains(string(text), old) {
		t.Fatalf("config.toml has no %q", old)
	}
	testkit.Write(t, d.Path("config.toml"), strings.Replace(string(text), old, with, 1))
}

// JSONOf reads an answer.
func JSONOf[T any](t *testing.T, d *Daemon, target string) (v T) {
	t.Helper()
	if err := json.Unmarshal(d.Fetch(t, target), &v); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	return v
}

// Series are the sums of /v1/series by name.
func (d *Daemon) Series(t *testing.T, query string) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	s := JSONOf[httpapi.Series](t, d, "/v1/series?"+query)
	for _, row := range s.Series {
		if want := int(s.Until.Sub(s.From).Seconds()) / s.Step; len(row.Counts) != want {
			t.Errorf("%s: %s has %d counts, want %d", query, row.Name, len(row.Counts), want)
		}
		for _, n := range row.Counts {
			all[row.Name] += n
		}
	}
	return all
}

// Changes asks for a change of the lists with the first token, and returns its status and its answer.
func (d *Daemon) Changes(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	return d.request(method, path, d.FirstToken(t), body, header...)
}

// Changed is changes that are to be made.
func (d *Daemon) Changed(t *testing.T, method, path, body string) (c httpapi.SubscriptionChanged) {
	t.Helper()
	status, text := d.Changes(t, method, path, body)
	if err := json.Unmarshal([]byte(text), &c); status != 200 || err != nil {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return c
}

// Reloaded runs `blockd reload`.
func (d *Daemon) Reloaded(t *testing.T) (code int, out string) {
	t.Helper()
	code, out, errs := d.Command(t, "reload")
	return code, out + errs
}

// ResidentKiB is the daemon's resident memory.
func ResidentKiB(t *testing.T, d *Daemon) int {
	t.Helper()
	status := testkit.Read(t, filepath.Join("/proc", fmt.Sprint(d.Cmd.Process.Pid), "status"))
	var kib int
	_, text, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(text, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// LetterDue has the next start begin with a letter about the time since then.
func (d *Daemon) LetterDue(t *testing.T, ago time.Duration) {
	t.Helper()
	testkit.Write(t, d.Path("blockd.bdx.report"), fmt.Sprintf(`{"report_version":1,"since":%q}`, time.Now().Add(-ago).UTC().Format(time.RFC3339)))
}

// Readyz is what /readyz says.
func Readyz(d *Daemon) string {
	_, body := d.Get("/readyz")
	return body
}

// daemonLog is the file that a daemon writes its log to. A line is in it as soon as the daemon
// has written it; a pipe would bring it to the test at some later time.
//
// The daemon may write a line after it has answered a client. So a test waits for a line
// (logged), and looks for what must not be there when the daemon has ended (wholeLog).
type daemonLog struct{ path string }

func newDaemonLog(t *testing.T) (l daemonLog, out *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	out = testkit.Value(os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644))(t)
	return daemonLog{path}, out
}

// String returns the log as it is now, for the message of a failed test.
func (l daemonLog) String() string {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Logged waits until so many lines of d's log have all of these texts.
func (d *Daemon) Logged(t *testing.T, number int, texts ...string) {
	t.Helper()
	testkit.Eventually(t, "the log to have "+strings.Join(texts, " and "), func() bool {
		found := 0
		for line := range strings.Lines(d.Log.String()) {
			if hasAll(line, texts) {
				found++
			}
		}
		return found >= number
	})
}

// WholeLog ends d and returns its log.
func (d *Daemon) WholeLog(t *testing.T) string {
	t.Helper()
	d.Stop(t)
	return d.Log.String()
}

// Quarantine runs blockd quarantine, and returns its exit code and both outputs.
func (d *Daemon) Quarantine(t *testing.T, what string, words ...string) (code int, out, notes string) {
	t.Helper()
	return d.Command(t, append([]string{"quarantine", what}, words...)...)
}

// Aside are the messages that blockd quarantine list shows.
func (d *Daemon) Aside(t *testing.T) (all []quarantine.Message) {
	t.Helper()
	code, out, notes := d.Quarantine(t, "list", "--json")
	if code > 1 {
		t.Fatalf("quarantine list: %d, %s", code, notes)
	}
	for line := range strings.Lines(out) {
		var m quarantine.Message
		testkit.Must(t, json.Unmarshal([]byte(line), &m))
		all = append(all, m)
	}
	return all
}

// Send sends a message of a listed sender through the filter, which sets it aside.
func (d *Daemon) Send(t *testing.T, subject string, recipients ...string) {
	t.Helper()
	c := DialSMTP(t, d.SMTP)
	lines := []string{"EHLO client.example", "MAIL FROM:<Spammer+tag@bulk.example>"}
	for _, r := range recipients {
		lines = append(lines, "RCPT TO:<"+r+">")
	}
	for _, line := range append(lines, "DATA") {
		if got := c.Command(line); got[0] > '3' {
			t.Fatalf("%s: %s", line, got)
		}
	}
	MustBegin(t, "the message", c.Command("Subject: "+subject+"\r\nDelivered-To: forged@here.example\r\n\r\n..a dot\r\nend\r\n."), "250")
	c.Command("QUIT")
}
