package session

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/script"
	"blockd/mail/mailbox"
	"blockd/policy"
	"blockd/smtpfilter/upstream"
)

const hostname = "filter.example"

var testClient = netip.MustParseAddrPort("192.0.2.7:40000")

// rig is a Relay between an in-memory client and a scripted upstream.
type rig struct {
	server  *script.Server
	relay   *Relay
	log     *bytes.Buffer
	metrics *prometheus.Registry
}

// newRig makes a rig without trace headers: upstream gets what the client sent
// and nothing else.
func newRig(server *script.Server, checker *policy.Checker, s Settings) *rig {
	r := &rig{server: server, log: new(bytes.Buffer), metrics: prometheus.NewRegistry()}
	s.Hostname = hostname
	presented := s.ClientInfo // else upstream need not understand it
	s.ClientInfo = cmp.Or(s.ClientInfo, "xclient")
	if server.LMTP {
		s.Protocol = upstream.LMTP
	}
	dialer := upstream.New(upstream.Settings{Protocol: s.Protocol, Dial: server.Dial, Hostname: hostname, ClientInfo: presented})
	r.relay = New(s, dialer, checker, NewMetrics(r.metrics), slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	return r
}

// logTo has the relay log elsewhere.
func (r *rig) logTo(log *slog.Logger) { r.relay.log, r.relay.door.Log = log, log }

// start begins a session and returns the client's end. ended is closed with Run.
func (r *rig) start(ctx context.Context) (client net.Conn, ended <-chan struct{}) {
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.relay.Run(ctx, far, testClient)
	}()
	return near, done
}

// count reads a counter; label is the value of one of its labels, if it has any.
func (r *rig) count(t testing.TB, name, label string) float64 {
	t.Helper()
	var labels []string
	if label != "" {
		labels = []string{label}
	}
	for _, v := range testkit.Samples(t, r.metrics, name, labels...) {
		return v // the first
	}
	return 0
}

func TestDialogues(t *testing.T) {
	all := testkit.Value(dialogue.Load(filepath.Join(testkit.Root(t), "testdata/dialogues")))(t)
	for _, d := range all {
		if d.Only != "" && d.Only != "smtp" {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			for _, mail := range []string{"lazy", "strict"} {
				if only := d.Settings["mail"]; only == "" || only == mail {
					t.Run(mail, func(t *testing.T) {
						checker := d.Checker(t)
						synctest.Test(t, func(t *testing.T) { runDialogue(t, d, checker, mail) })
					})
				}
			}
		})
	}
}

// runDialogue plays d with [smtp] mail as given.
func runDialogue(t *testing.T, d *dialogue.Dialogue, checker *policy.Checker, mail string) {
	server := &script.Server{LMTP: d.Settings["protocol"] == "lmtp"}
	if caps, ok := d.Settings["caps"]; ok {
		server.Caps = strings.Split(caps, ", ")
	}
	for _, a := range d.Upstream {
		server.On(a.Point, a.Text)
	}
	number := func(key string) int {
		n, _ := strconv.Atoi(d.Settings[key])
		return n
	}
	aside := t.TempDir()
	most := cmp.Or(int64(number("quarantine_max")), 1<<20)
	held := testkit.Value(mailbox.OpenQuarantine(aside, hostname, mailbox.Use{Octets: most, Messages: 1 << 20}, discardLog()))(t)
	var trusted []netip.Prefix
	for text := range strings.FieldsSeq(d.Settings["trusted"]) {
		trusted = append(trusted, netip.MustParsePrefix(text))
	}
	r := newRig(server, checker, Settings{
		Mail: mail, RejectAt: d.Settings["reject_at"], ClientInfo: d.Settings["client_info"],
		ClientRejectAt: d.Settings["client_reject_at"], Helo: d.Settings["helo"], PTR: d.Settings["ptr"], Resolver: d.Resolver(t), Chunking: d.Settings["chunking"] == "true",
		Quarantine: held, Trusted: trusted, Auth: d.Settings["auth"], SkipAuthenticated: d.Settings["skip_authenticated"] != "false",
		StartTLS: plainTLS(d), MaxCopy: int64(number("max_message")),
		Limits: Limits{MessageSize: int64(number("message_size")), Recipients: number("recipients"), HardErrors: number("hard_errors")},
	})
	ctx, drain := context.WithCancel(t.Context())
	defer drain()
	client, ended := r.start(ctx)
	playErr := d.Play(client, dialogue.Hooks{Drain: drain, Restart: server.HangUp})
	<-ended
	server.Wait()
	if playErr != nil {
		t.Errorf("%v\nupstream read: %q\nlog:\n%s", playErr, server.Log(), r.log)
	}
	if got := server.Log(); d.CheckRead && !slices.EqualFunc(got, d.Read, matchLine) {
		t.Errorf("upstream read\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(d.Read, "\n\t"))
	}
	if got := heldLines(t, aside); d.CheckHeld && !slices.EqualFunc(got, d.Aside, matchLine) {
		t.Errorf("quarantine holds\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(d.Aside, "\n\t"))
	}
	testkit.EqualSlices(t, "upstream's view", server.Faults(), nil)
	if strings.Contains(r.log.String(), "panicked") {
		t.Errorf("log:\n%s", r.log)
	}
}

// plainTLS is a TLS that the dialogue can be read through.
func plainTLS(d *dialogue.Dialogue) func(context.Context, net.Conn) (net.Conn, error) {
	if d.Settings["tls"] != "plain" {
		return nil
	}
	return func(_ context.Context, conn net.Conn) (net.Conn, error) { return conn, nil }
}

// heldLines are the lines of what is in quarantine. Nothing may be left in tmp.
func heldLines(t *testing.T, dir string) (lines []string) {
	t.Helper()
	for _, folder := range []string{"new", "tmp"} {
		entries := testkit.Value(os.ReadDir(filepath.Join(dir, folder)))(t)
		for _, e := range entries {
			text := testkit.Read(t, filepath.Join(dir, folder, e.Name()))
			if folder == "tmp" {
				lines = append(lines, "left in tmp: "+e.Name())
				continue
			}
			lines = append(lines, strings.Split(strings.TrimSuffix(string(text), "\r\n"), "\r\n")...)
		}
	}
	return lines
}

// matchLine compares a line with one of a dialogue, which may end in "*".
func matchLine(got, want string) bool {
	if head, ok := strings.CutSuffix(want, "*"); ok {
		return strings.HasPrefix(got, head)
	}
	return got == want
}
