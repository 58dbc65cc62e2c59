package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startDoor measures how long `blockd serve` takes until it answers, where nothing has changed since it
// was stopped: with and without live entries, its files in memory and not.
type startDoor struct {
	doorSettings
	times, memory table
	program       string
	starts        []startable
}

// startable is a configuration that is started again and again.
type startable struct {
	name    string
	folder  string
	config  string
	address string
	socket  string // of HTTP
	live    int    // live entries
}

// liveEntries are as many as the goal is set for.
const liveEntries = 200_000

// The columns.
const (
	startListed = iota
	startOpen
	startGreeting
	startAnswer
)

func newStartCommand() *command {
	d := &startDoor{}
	d.kind = kindNumbered
	c := newDoorCommand("start", "a daemon that starts", 10, &d.doorSettings, d)
	c.within = func() bool { return d.n >= 1000 && d.rounds >= 1 }
	c.bounds = "-n of 1000 or more, -rounds of 1 or more"
	return c
}

func (d *startDoor) lacks() error { return nil }
func (d *startDoor) stop()        {} // each start ends its own

const blockdStartConfig = `
[index]
path = %q
[smtp]
listen = %q
upstream = "maildir:%s"
[http]
listen = ""
socket = %q
max_rate = 0
[milter]
listen = ""
[postfix]
policy_listen = ""
[[list]]
name = "list"
path = %q
format = "plain"
`

func (d *startDoor) start(ctx context.Context, dir string, l *addresses) (err error) {
	d.program = l.program
	d.times = table{title: "From the start of the process", note: "ms. The first two are what the log says: the lists serve; all doors are open. Then what a client sees: the greeting, and 550 to the first RCPT, of a listed sender. Cold: index, live entries and program are not in the system's memory.", columns: []column{
		{"lists", significant, neither}, {"open", significant, neither}, {"greeting", significant, lower}, {"first answer", significant, lower}}}
	d.memory = table{title: "Memory after the first answer", note: "MB.", columns: []column{{"anonymous", significant, lower}, {"with pages of files", significant, neither}}}
	for _, live := range []int{0, liveEntries} {
		s := startable{name: "no live entries", live: live}
		if live > 0 {
			s.name = grouped(live) + " live entries"
		}
		s.folder = filepath.Join(dir, fmt.Sprint(live))
		s.config, s.socket = filepath.Join(s.folder, "blockd.toml"), filepath.Join(s.folder, "http.sock")
		if s.address, err = freeAddress(); err != nil {
			return err
		}
		if err := os.Mkdir(s.folder, 0o755); err != nil {
			return err
		}
		config := fmt.Appendf(nil, blockdStartConfig, filepath.Join(s.folder, "lists.bdx"), s.address, filepath.Join(s.folder, "mail"), s.socket, l.text)
		if err := os.WriteFile(s.config, config, 0o644); err != nil {
			return err
		}
		if err := d.prepare(ctx, &s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		d.starts = append(d.starts, s)
	}
	return nil
}

// prepare builds the index and adds the live entries, and waits until both are at rest.
func (d *startDoor) prepare(ctx context.Context, s *startable) error {
	r, err := d.launchOne(ctx, s)
	if err != nil {
		return err
	}
	defer r.end()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}}}
	defer client.CloseIdleConnections()
	const batch = 1000
	for from := 0; from < s.live; from += batch {
		type entry struct {
			Entry string `json:"entry"`
			Why   string `json:"why"`
		}
		all := make([]entry, batch)
		for i := range all {
			all[i] = entry{fmt.Sprintf("live%d@bulk%d.bench.test", from+i, (from+i)%1000), "phishing, ticket 4711"}
		}
		body, err := json.Marshal(map[string]any{"entries": all})
		if err != nil {
			return err
		}
		if answer, err := request(ctx, client, http.MethodPost, "/v1/entries", body); err != nil {
			return fmt.Errorf("%w: %s", err, answer)
		}
	}
	if s.live == 0 {
		return nil
	}
	return until(ctx, 5*time.Minute, "the live entries to be in the index and in the snapshot", func() (bool, error) {
		time.Sleep(time.Second)
		text, err := request(ctx, client, http.MethodGet, "/metrics", nil)
		if err != nil {
			return false, err
		}
		info, err := os.Stat(filepath.Join(s.folder, "lists.bdx.live", "journal"))
		return err == nil && info.Size() < 200_000 && bytes.Contains(text, []byte("\nblockd_live_newer_entries 0\n")), err
	})
}

func request(ctx context.Context, client *http.Client, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return text, err
}

// running is a daemon that has greeted.
type running struct {
	cmd   *exec.Cmd
	talk  *talk
	log   bytes.Buffer // to be read behind end
	began time.Time
	greet time.Duration
}

// launchOne starts the daemon, and waits for its greeting as a client that tries again without a pause.
func (d *startDoor) launchOne(ctx context.Context, s *startable) (*running, error) {
	r := &running{cmd: exec.CommandContext(ctx, d.program, "serve", "-c", s.config)}
	r.cmd.Stderr = &r.log
	r.began = time.Now()
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	deadline := r.began.Add(5 * time.Minute)
	for {
		t, err := dialTalk(ctx, s.address)
		if err == nil {
			r.greet, r.talk = time.Since(r.began), t
			return r, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			r.end()
			return nil, fmt.Errorf("no greeting: %w\n%s", err, r.log.String())
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// end stops the daemon and waits for it.
func (r *running) end() error {
	if r.talk != nil {
		r.talk.close()
		r.talk = nil
	}
	r.cmd.Process.Signal(syscall.SIGTERM)
	return r.cmd.Wait()
}

func (d *startDoor) round(ctx context.Context) error {
	for i := range d.starts {
		for _, how := range []string{"warm", "cold"} {
			if err := d.once(ctx, &d.starts[i], how); err != nil {
				return fmt.Errorf("%s, %s: %w", d.starts[i].name, how, err)
			}
		}
	}
	return nil
}

func (d *startDoor) once(ctx context.Context, s *startable, how string) error {
	if how == "cold" {
		for _, pattern := range []string{"lists.bdx", "lists.bdx.live/*", "lists.bdx.live/folded/*"} {
			files, _ := filepath.Glob(filepath.Join(s.folder, pattern))
			for _, file := range files {
				if err := forgetFile(file); err != nil {
					return err
				}
			}
		}
		if err := forgetFile(d.program); err != nil {
			return err
		}
	}
	name := s.name + ", " + how
	r, err := d.launchOne(ctx, s)
	if err != nil {
		return err
	}
	for _, step := range []struct{ text, want string }{{"MAIL FROM:<" + probesListed + ">", "250"}, {"RCPT TO:<" + anyReceiver + ">", "550"}} {
		if err := r.talk.say(step.text, step.want); err != nil {
			r.end()
			return err
		}
	}
	answered := time.Since(r.began)
	err = addMemory(&d.memory, name, r.cmd.Process.Pid, 0, 1)
	if ended := r.end(); err != nil || ended != nil {
		return fmt.Errorf("%v, %v: %s", err, ended, r.log.String())
	}
	d.times.add(name, startGreeting, milliseconds(r.greet))
	d.times.add(name, startAnswer, milliseconds(answered))
	for column, words := range map[int]string{startListed: `msg="lists swapped in"`, startOpen: `msg="smtp listens"`} {
		at, err := loggedAt(r.log.String(), words)
		if err != nil {
			return err
		}
		d.times.add(name, column, milliseconds(at.Sub(r.began)))
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// loggedAt is the time of the first line with these words.
func loggedAt(log, words string) (time.Time, error) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, words) {
			text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			return time.Parse(time.RFC3339Nano, text)
		}
	}
	return time.Time{}, fmt.Errorf("no %s in the log:\n%s", words, log)
}

// forgetFile takes a file out of the system's memory, as far as nobody maps it.
func forgetFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

func (d *startDoor) finish(context.Context, progress) error { return nil }

func (d *startDoor) goals() (goals []goal) {
	for i := range d.starts {
		cells := d.times.cells(d.starts[i].name+", warm", startAnswer)
		goals = append(goals, atMost("first answer, "+d.starts[i].name, 30, "ms", cells.median(), len(cells) > 0))
	}
	return goals
}

func (d *startDoor) tables() []*table { return []*table{&d.times, &d.memory} }

func (d *startDoor) plot() (title string, panels []panel) { return "", nil }
