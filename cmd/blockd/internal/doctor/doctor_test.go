package doctor

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/doors/httpapi"
	"blockd/internal/access"
	"blockd/internal/testkit"
)

func TestCertificatesAreJudgedByTheirTime(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name        string
		begins, end time.Duration // from now
		want        State
		says        string
	}{
		{"good for months", -24 * time.Hour, 90 * 24 * time.Hour, OK, "ends on 2027-01-30"},
		{"just more than two weeks", -time.Hour, certificateNotice + time.Minute, OK, "ends on"},
		{"two weeks", -time.Hour, certificateNotice - time.Minute, Warning, "ends on 2026-11-15"},
		{"ended", -48 * time.Hour, -time.Second, Fault, "ended on 2026-11-01"},
		{"not yet", time.Hour, 90 * 24 * time.Hour, Warning, "does not hold before 2026-11-01 13:00:00"},
	} {
		r := report{check: "tls-smtp"}
		judgeCertificate(&r, "cert.pem", &x509.Certificate{NotBefore: now.Add(tt.begins), NotAfter: now.Add(tt.end)}, now)
		if len(r.found) != 1 || r.found[0].State != tt.want || !strings.Contains(r.found[0].Text, tt.says) || (r.found[0].Hint == "") != (tt.want == OK) {
			t.Errorf("%s: %+v, want one %s with %q", tt.name, r.found, tt.want, tt.says)
		}
	}
}

func TestHungCheckIsAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		begun := time.Now()
		found := new(doctor).runAll(t.Context(), []examination{
			{"a", func(_ *doctor, _ context.Context, r *report) { r.ok("fine") }},
			{"b", func(*doctor, context.Context, *report) { <-end }},
			{"c", func(_ *doctor, ctx context.Context, r *report) { <-ctx.Done(); r.fault("", "late") }},
			{"d", func(*doctor, context.Context, *report) { <-end }},
			{"e", func(_ *doctor, _ context.Context, r *report) { r.ok("fine") }},
		}, time.Second)
		var got []string
		for _, f := range found {
			got = append(got, f.Check+" "+f.State.String())
		}
		if want := "a ok, b fault, c fault, d fault, e ok"; strings.Join(got, ", ") != want {
			t.Errorf("found %q, want %s", got, want)
		}
		if took := time.Since(begun); took > time.Second+grace {
			t.Errorf("took %v", took)
		}
	})
}

func TestRoomOnDisks(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		least, want int64
		state       State
	}{{0, 1 << 20, OK}, {0, 1 << 60, Warning}, {1 << 60, 1 << 61, Fault}} {
		r := report{check: "disk"}
		new(doctor).checkRoom(&r, "index.path", dir+"/not/made/yet", tt.least, tt.want, "a rebuild")
		if len(r.found) != 1 || r.found[0].State != tt.state {
			t.Errorf("least %d, want %d: %+v, want %s", tt.least, tt.want, r.found, tt.state)
		}
	}
}

func TestFetchedListsAreFresh(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	week := config.Duration(7 * 24 * time.Hour)
	for _, tt := range []struct {
		name string
		list config.List
		age  time.Duration
		want int
	}{
		{"a file", config.List{Name: "a"}, 1000 * time.Hour, 0},
		{"fetched of late", config.List{Name: "a", URL: "https://lists.example/a"}, 23 * time.Hour, 0},
		{"not for days", config.List{Name: "a", URL: "https://lists.example/a"}, 25 * time.Hour, 1},
		{"not for weeks, as asked", config.List{Name: "a", URL: "https://lists.example/a", Every: &week}, 600 * time.Hour, 0},
	} {
		r, at := report{check: "lists"}, now.Add(-tt.age)
		(&doctor{now: now}).judgeAge(&r, tt.list, &at)
		testkit.Equal(t, fmt.Sprintf("%s: %+v", tt.name, r.found), len(r.found), tt.want)
	}
}

func TestAnswersOfTheRESPDoor(t *testing.T) {
	for _, tt := range []struct {
		answer string // "" = the connection is closed
		ok     bool
		says   string
	}{
		{"+PONG\r\n", true, "answers PING"},
		{"-NOAUTH Authentication required.\r\n", true, "wants a password"},
		{"220 mail.example ESMTP\r\n", false, `no blockd answers there: "220 mail.example ESMTP"`},
		{"-ERR max number of clients reached\r\n", false, "max number of clients reached"},
		{strings.Repeat("x", 5000), false, "no answer to PING"},
		{"", false, "does resp.allow_from let"},
	} {
		here, there := net.Pipe()
		go func() {
			there.Read(make([]byte, len("PING\r\n")))
			there.Write([]byte(tt.answer))
			there.Close()
		}()
		r := report{check: "door-resp"}
		err := new(doctor).speakRESP(here, &r)
		here.Close()
		switch {
		case (err == nil) != tt.ok:
			t.Errorf("%.50q: %v", tt.answer, err)
		case err != nil && !strings.Contains(err.Error(), tt.says):
			t.Errorf("%.50q: %v, want %q", tt.answer, err, tt.says)
		case err == nil && (len(r.found) != 1 || r.found[0].State != OK || !strings.Contains(r.found[0].Text, tt.says)):
			t.Errorf("%.50q: %+v, want %q", tt.answer, r.found, tt.says)
		}
	}
}

func TestFiltersThatFailAreFaults(t *testing.T) {
	written := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		filter httpapi.KeptFilter
		want   State
		says   string
	}{
		{"written", httpapi.KeptFilter{Written: &written, Keys: 7}, OK, "has 7 keys, in redis://r.example#bl"},
		{"not yet", httpapi.KeptFilter{}, Warning, "not yet written"},
		{"patterns", httpapi.KeptFilter{Written: &written, Patterns: 2}, Warning, "lacks 2 patterns"},
		{"never", httpapi.KeptFilter{Error: "connection refused"}, Fault, "was never written to redis://r.example#bl: connection refused"},
		{"no more", httpapi.KeptFilter{Written: &written, Error: "no space left"}, Fault, "is as of 2026-11-01"},
	} {
		r := report{check: "filters"}
		tt.filter.Name, tt.filter.To = "bl", "redis://r.example#bl"
		judgeFilter(&r, &tt.filter)
		if len(r.found) != 1 || r.found[0].State != tt.want || !strings.Contains(r.found[0].Text, tt.says) || (r.found[0].Hint == "") != (tt.want == OK) {
			t.Errorf("%s: %+v, want one %s with %q", tt.name, r.found, tt.want, tt.says)
		}
	}
}

// A socket that systemd holds is root's, in a folder of root's: the daemon need not be able to make it.
func TestSocketOfAUnit(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.Missing(t, "files of other users are root's to make")
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "policy")
	const uid, gid = 4311, 4312
	for _, tt := range []struct {
		name   string
		owner  int
		exists bool
		faults int // of the folder, and of the socket's group
	}{{"of a unit", 0, true, 0}, {"its own", uid, true, 2}, {"none", 0, false, 2}} {
		if os.Remove(path); tt.exists {
			l := testkit.Value(net.Listen("unix", path))(t)
			defer l.Close()
			testkit.Must(t, os.Chmod(path, daemon.SocketMode))
			testkit.Must(t, os.Chown(path, tt.owner, 7))
		}
		d := &doctor{user: access.ByID(uid, gid)}
		d.Postfix.PolicyListen = config.UnixPrefix + path
		var r report
		(&files{doctor: d, report: &r}).seeSockets()
		d.checkSocket(&r, path, "7", true)
		r.found = slices.DeleteFunc(r.found, func(f Finding) bool { return f.State == OK })
		testkit.Equal(t, fmt.Sprintf("%s: %+v", tt.name, r.found), len(r.found), tt.faults)
	}
}
