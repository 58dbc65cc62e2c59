package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// reloadDoor measures what clients feel of a list that changes. Probes ask the SMTP filter, HTTP and
// the milter a thousand times a second, first while nothing happens and then from the change of
// the file until the build behind it is over.
type reloadDoor struct {
	doorSettings
	servers
	felt, memory table
	program      string
	dir          string
	one, ten     watched // the whole in one list, and in ten
	changes      int     // so far: each brings a sender of its own
}

// watched is a daemon with its list files.
type watched struct {
	path
	http, milter string
	config, log  string
	files        []string
}

// quietFor is how long probes ask before each change.
const quietFor = 5 * time.Second

func newReloadCommand() *command {
	d := &reloadDoor{}
	d.kind = kindNumbered
	c := newDoorCommand("reload", "lists that change", 3, &d.doorSettings, d)
	c.within = func() bool { return d.n >= 1000 && d.rounds >= 1 }
	c.bounds = "-n of 1000 or more, -rounds of 1 or more"
	return c
}

func (d *reloadDoor) lacks() error { return nil }

const blockdReloadConfig = `
[index]
path = %q
[smtp]
listen = %q
upstream = "maildir:%s"
[http]
listen = %q
max_rate = 0
[milter]
listen = %q
[postfix]
policy_listen = ""
`

func (d *reloadDoor) start(ctx context.Context, dir string, l *addresses) (err error) {
	d.program, d.dir = l.program, dir
	d.felt = table{title: "While a list changes", note: "Probes each millisecond, on one connection a door: MAIL and RCPT of a listed sender, `GET /v1/check`, the milter's MAIL event. From the change until its build is over; \"before\": the same daemon in the seconds before. Acts: from the change of the file to the first answer that knows it, with the half second of quiet that a change is waited for.", columns: feltColumns()}
	d.memory = table{title: "Memory meanwhile", note: "MB, the most seen by looks each 20 ms: anonymous memory of the daemon, and of the process that builds.", columns: []column{
		{"daemon", significant, lower}, {"builder", significant, neither}}}
	text, err := os.ReadFile(l.text)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		*watched
		name  string
		lists int
	}{{&d.one, "one", 1}, {&d.ten, "ten", changedLists}} {
		folder := filepath.Join(dir, w.name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			return err
		}
		rest := text
		for i := range w.lists {
			end := len(rest)
			if i < w.lists-1 {
				end = len(rest) / (w.lists - i)
				end += bytes.IndexByte(rest[end:], '\n') + 1
			}
			file := filepath.Join(folder, fmt.Sprintf("list%d.txt", i))
			if err := os.WriteFile(file, rest[:end], 0o644); err != nil {
				return err
			}
			w.files, rest = append(w.files, file), rest[end:]
		}
		if err := d.serve(ctx, w.watched, folder); err != nil {
			return err
		}
	}
	return nil
}

// serve starts a daemon with its files.
func (d *reloadDoor) serve(ctx context.Context, w *watched, folder string) error {
	for _, address := range []*string{&w.address, &w.http, &w.milter} {
		var err error
		if *address, err = freeAddress(); err != nil {
			return err
		}
	}
	config := fmt.Appendf(nil, blockdReloadConfig, filepath.Join(folder, "lists.bdx"), w.address, filepath.Join(folder, "mail"), w.http, w.milter)
	for i, file := range w.files {
		config = fmt.Appendf(config, "[[list]]\nname = \"list%d\"\npath = %q\nformat = \"plain\"\n", i, file)
	}
	path := filepath.Join(folder, "blockd.toml")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return err
	}
	w.config, w.log = path, path+".log"
	var err error
	w.pid, err = d.launch(ctx, w.milter, w.log, d.program, "serve", "-c", path)
	return err
}

func (d *reloadDoor) round(ctx context.Context) error {
	for _, c := range []struct {
		name    string
		to      *watched
		prepare func(file, sender string) (change func() error, err error)
	}{
		{reloadAppend, &d.one, appendLine},
		{reloadLine, &d.one, func(file, sender string) (func() error, error) { return rewrite(file, sender, 0) }},
		{reloadTenth, &d.one, func(file, sender string) (func() error, error) { return rewrite(file, sender, 10) }},
		{reloadOfTen, &d.ten, func(file, sender string) (func() error, error) { return rewrite(file, sender, 0) }},
	} {
		d.changes++
		sender := fmt.Sprintf("changed%d@list.bench.test", d.changes)
		change, err := c.prepare(c.to.files[len(c.to.files)-1], sender) // long before, so that none of its work is felt
		if err == nil {
			err = d.feel(ctx, c.name, c.to, verdictOf(listedKind), sender, change)
		}
		if err == nil && c.name == reloadTenth {
			err = d.takeBack(ctx, c.to, sender)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// takeBack measures a rollback of the list after a change that has added a sender. Then it adopts the change, so that the list follows its file again.
func (d *reloadDoor) takeBack(ctx context.Context, w *watched, brought string) error {
	act := func(command string) func() error {
		return func() error {
			out, err := exec.CommandContext(ctx, d.program, command, "-c", w.config, "list0").CombinedOutput()
			if err != nil {
				return fmt.Errorf("blockd %s: %w: %s", command, err, out)
			}
			return nil
		}
	}
	if err := d.feel(ctx, reloadBack, w, verdictOf(clearKind), brought, act("rollback")); err != nil {
		return err
	}
	return act("adopt")()
}

// feel measures one change, which is over when a sender gets a verdict.
func (d *reloadDoor) feel(ctx context.Context, name string, w *watched, verdict, sender string, change func() error) error {
	debug.FreeOSMemory()
	p, err := newProbes(ctx, w)
	if err != nil {
		return err
	}
	defer p.close()
	before, err := p.during(ctx, func(ctx context.Context) error { return pause(ctx, quietFor) })
	if err != nil {
		return err
	}
	builds := w.builds()
	peak := watchMemory(w.pid)
	defer peak.end()
	var acts time.Duration
	after, err := p.during(ctx, func(ctx context.Context) error {
		began := time.Now() // what is written into a file has to be written; a rollback is a command
		if err := change(); err != nil {
			return err
		}
		u, e := asker{address: w.http}, get(w.http, "/v1/check", sender, verdict)
		defer u.hangUp()
		if err := until(ctx, 10*time.Minute, "the change to act", func() (bool, error) {
			if u.ask(e) == nil {
				return true, nil
			}
			u.hangUp()
			return false, nil
		}); err != nil {
			return err
		}
		acts = time.Since(began)
		return until(ctx, 10*time.Minute, "the build", func() (bool, error) { return w.builds() > builds, nil })
	})
	if err != nil {
		return err
	}
	own, builder := peak.end()
	d.felt.add(name, feltActs, acts.Seconds())
	for i := range probedDoors {
		d.felt.add(name, feltColumn(i, feltTail), after[i].quantile(0.99))
		d.felt.add(name, feltColumn(i, feltMax), after[i].quantile(1))
		d.felt.add(name+quietRow, feltColumn(i, feltTail), before[i].quantile(0.99))
		d.felt.add(name+quietRow, feltColumn(i, feltMax), before[i].quantile(1))
	}
	d.memory.add(name, 0, own/1024)
	d.memory.add(name, 1, builder/1024)
	return nil
}

// builds is how many builds have begun to serve, as the log says.
func (w *watched) builds() int {
	text, err := os.ReadFile(w.log)
	if err != nil {
		return 0
	}
	return bytes.Count(text, []byte("lists swapped in"))
}

func appendLine(file, sender string) (change func() error, err error) {
	return func() error {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(sender + "\n")
		return err
	}, nil
}

// rewrite puts another file in a file's place: with a sender in place of the line in the middle and, where every is
// not 0, another octet at the beginning of each of so many lines. What is renamed is written beforehand.
func rewrite(file, sender string, every int) (change func() error, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if every > 0 {
		line := 0
		for at := 0; at < len(text); line++ {
			if line%every == 0 { // "user…" to "vser…" and on, to 'z'
				text[at] = 'a' + (text[at]-'a'+1)%26
			}
			next := bytes.IndexByte(text[at:], '\n')
			if next < 0 {
				break
			}
			at += next + 1
		}
	}
	middle := bytes.IndexByte(text[len(text)/2:], '\n') + 1 + len(text)/2
	end := middle + bytes.IndexByte(text[middle:], '\n') + 1
	err = writeFile(file+".new", func(f *os.File) error {
		for _, part := range [][]byte{text[:middle], []byte(sender + "\n"), text[end:]} {
			if _, err := f.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
	return func() error { return os.Rename(file+".new", file) }, err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *reloadDoor) finish(context.Context, progress) error { return nil }

// memoryPeak looks at a process and its children until end.
type memoryPeak struct {
	stop, done   chan struct{}
	own, builder float64 // KiB
}

func watchMemory(pid int) *memoryPeak {
	p := &memoryPeak{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
			}
			if own, err := anonymous(pid); err == nil {
				p.own = max(p.own, own)
			}
			for _, child := range childrenOf(pid) {
				if its, err := anonymous(child); err == nil {
					p.builder = max(p.builder, its)
				}
			}
		}
	}()
	return p
}

// end returns the most that was seen. It may be called again.
func (p *memoryPeak) end() (own, builder float64) {
	select {
	case <-p.done:
	default:
		close(p.stop)
		<-p.done
	}
	return p.own, p.builder
}

// childrenOf are those that any thread of a process has started.
func childrenOf(pid int) (all []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(text)) {
			child := 0
			if _, err := fmt.Sscan(word, &child); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// probes ask all doors.
type probes struct {
	w    *watched
	smtp *talk
	said int // transactions of smtp
	http asker
	get  exchange
	mil  *milterTalk

	fresh bool // each by a connection of its own, which counts
}

var probedDoors = [...]string{"SMTP", "HTTP", "milter"}

// probesListed is a sender that stays listed through all changes but those of a tenth, which spare it.
var probesListed = numbered(fmt.Sprintf("%012d", 7))

// perSession is how many refusals an SMTP session is asked for: more of them end it.
const perSession = 8

func newProbes(ctx context.Context, w *watched) (p *probes, err error) {
	p = &probes{w: w, http: asker{address: w.http}, get: get(w.http, "/v1/check", probesListed, verdictOf(listedKind))}
	if p.mil, err = dialMilter(net.Dialer{}, w.milter); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *probes) close() {
	if p.smtp != nil {
		p.smtp.close()
	}
	p.http.hangUp()
	p.mil.conn.Close()
}

// during asks for as long as do runs, and returns what each door took, in ms.
func (p *probes) during(ctx context.Context, do func(context.Context) error) (times [len(probedDoors)]series, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	ask := [...]func() (time.Duration, error){
		func() (time.Duration, error) { return p.refused(ctx) },
		func() (time.Duration, error) {
			began := time.Now()
			err := p.http.ask(p.get)
			took := time.Since(began)
			if p.fresh {
				p.http.hangUp()
			}
			return took, err
		},
		func() (time.Duration, error) {
			if p.fresh {
				return p.freshMilter()
			}
			mail, rcpt, err := p.mil.mail(probesListed, milterContinue)
			return mail + rcpt, err
		},
	}
	over := make(chan struct{})
	faults := make(chan error, len(ask))
	for i, ask := range ask {
		go func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-over:
					faults <- nil
					return
				case <-tick.C:
				}
				took, err := ask()
				if err != nil {
					end()
					faults <- fmt.Errorf("%s: %w", probedDoors[i], err)
					return
				}
				times[i] = append(times[i], float64(took.Nanoseconds())/1e6)
			}
		}()
	}
	err = do(ctx)
	close(over)
	for range ask {
		if fault := <-faults; fault != nil {
			err = fault
		}
	}
	return times, err
}

// refused asks for a refusal by SMTP. A new session, where one is due, does not count.
func (p *probes) refused(ctx context.Context) (time.Duration, error) {
	if p.smtp != nil && (p.said == perSession || p.fresh) {
		p.smtp.close()
		p.smtp = nil
	}
	began := time.Now()
	if p.smtp == nil {
		t, err := dialTalk(ctx, p.w.address)
		if err != nil {
			return 0, err
		}
		p.smtp, p.said = t, 0
	}
	p.said++
	if !p.fresh {
		began = time.Now()
	}
	for _, step := range []struct{ text, want string }{{"MAIL FROM:<" + probesListed + ">", "250"}, {"RCPT TO:<" + anyReceiver + ">", "550"}} {
		if err := p.smtp.say(step.text, step.want); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	return took, p.smtp.say("RSET", "250")
}
