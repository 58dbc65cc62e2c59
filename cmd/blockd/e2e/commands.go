package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
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
)

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

var Reference = regexp.MustCompile(`\(ref ([0-9a-z]{10}(?:[0-9a-z]{6})?)\)`) // sixteen with [receipts]

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

// Kill ends the daemon as a crash of the machine does: with a process that it has begun, which could serve on
// otherwise.
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
