// Package doctor examines whether the configured setup is safe and works.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/internal/access"
	"blockd/internal/term"
)

// The time of one check, and the longer wait for a check that does not keep to it,
// for example because a file system does not answer.
const (
	patience      = 10 * time.Second
	grace         = 2 * time.Second
	answerTimeout = 2 * time.Second // of the question whether a daemon runs
)

// Finding is what one check has found.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	Text  string `json:"text"`
	Hint  string `json:"hint"` // what to do; "" for ok
}

// State is the result of a check. Higher values are worse; the exit
// code is the worst of all.
type State int

const (
	OK State = iota
	Warning
	Fault
)

func (s State) String() string { return [...]string{"ok", "warning", "fault"}[s] }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// report collects the findings of one check. It is used by one goroutine.
type report struct {
	check string
	found []Finding
}

func (r *report) ok(format string, args ...any) { r.add(OK, "", format, args...) }
func (r *report) warning(hint, format string, args ...any) {
	r.add(Warning, hint, format, args...)
}
func (r *report) fault(hint, format string, args ...any) { r.add(Fault, hint, format, args...) }

func (r *report) add(s State, hint, format string, args ...any) {
	r.found = append(r.found, Finding{r.check, s, oneLine(fmt.Sprintf(format, args...)), oneLine(hint)})
}

// oneLine makes one line of several, for example of joined errors.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }

// doctor holds the facts that the checks need. It does not change.
type doctor struct {
	config.Config
	path    string
	user    access.User // the daemon's
	pid     int         // 0: unknown, or no daemon runs
	running bool        // a daemon answers
	asked   error       // why it does not answer
	now     time.Time
}

// An examination looks at one thing and says what it has found, with ctx for its time.
type examination struct {
	name string
	run  func(*doctor, context.Context, *report)
}

// Examine runs all checks for the configuration at path.
func Examine(ctx context.Context, path string) []Finding {
	file := report{check: "config"}
	c, err := config.Load(path) // what LoadToServe finds beside faults the checks say one by one
	if faults := (config.Faults)(nil); errors.As(err, &faults) {
		for _, f := range faults {
			file.fault("mend this line; nothing else can be examined before", "%v", f)
		}
		return file.found
	} else if err != nil {
		file.fault("name the configuration with -c", "%v", err)
		return file.found
	}
	d := &doctor{Config: c, path: path, now: time.Now()}
	user := report{check: "daemon"}
	if d.user, d.pid, err = control.DaemonUser(ctx, c); err != nil {
		user.fault("make the folder and give it to the daemon's user", "%v", err)
		d.user = access.Self()
	}
	if d.blind() {
		d.running = true // the doors tell
	} else {
		d.running, d.asked = d.answers(ctx)
	}

	checks := slices.Concat([]examination{{"config", (*doctor).checkConfig}, {"daemon", (*doctor).checkDaemon}, {"files", (*doctor).checkFiles}},
		d.doorChecks(), d.upstreamChecks(),
		[]examination{{"dns", (*doctor).checkDNS}, {"clock", (*doctor).checkClock}, {"disk", (*doctor).checkDisks}, {"lists", (*doctor).checkLists}})
	if slices.ContainsFunc(c.Lists, func(l config.List) bool { return l.Source != nil }) {
		checks = append(checks, examination{"sources", (*doctor).checkSources})
	}
	if c.Live.Shared != "" {
		checks = append(checks, examination{"live", (*doctor).checkShared})
	}
	if c.Others() {
		checks = append(checks, examination{"fleet", (*doctor).checkFleet})
	}
	if len(c.Filters) > 0 {
		checks = append(checks, examination{"filters", (*doctor).checkFilters})
	}
	return append(user.found, d.runAll(ctx, checks, patience)...)
}

// runAll runs checks side by side, each within a time limit, and returns their findings in
// order.
func (d *doctor) runAll(ctx context.Context, checks []examination, patience time.Duration) (found []Finding) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late := time.After(patience + grace)
	reports := make([]chan []Finding, len(checks))
	for i, c := range checks {
		reports[i] = make(chan []Finding, 1)
		go func() {
			r := report{check: c.name}
			c.run(d, ctx, &r)
			reports[i] <- r.found
		}()
	}
	for i, c := range checks {
		select {
		case f := <-reports[i]:
			found = append(found, f...)
			continue
		case <-late:
			late = time.After(0) // for the remaining checks
		}
		select {
		case f := <-reports[i]: // at the last moment
			found = append(found, f...)
		default:
			found = append(found, Finding{c.name, Fault, fmt.Sprintf("no answer in %v", patience+grace), "look at the file systems and servers that it is about: one hangs"})
		}
	}
	return found
}

// blind reports whether the daemon can be reached only by its doors for mail.
func (d *doctor) blind() bool {
	path := d.HTTPSocket()
	return d.HTTP.Listen == "" && (path == "" || len(path) > config.MaxSocketPath)
}

// answers reports whether the daemon of this configuration runs and answers.
func (d *doctor) answers(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, _, err := control.Text(ctx, d.Config, "/healthz")
	return err == nil, err
}

func (d *doctor) checkConfig(_ context.Context, r *report) {
	warnings := d.SettingWarnings() // the files of lists are looked at by checkFiles and checkLists
	for _, text := range warnings {
		if !strings.HasPrefix(text, "smtp.allow_open_upstream") { // upstream-relay says so
			r.warning("see blockd config --check and blockd.toml(5)", "%s", text)
		}
	}
	if len(warnings) == 0 {
		r.ok("%s: %s", term.Path(d.path), term.Counted(len(d.Lists), "list"))
	}
}

func (d *doctor) checkDaemon(ctx context.Context, r *report) {
	who := d.user.String()
	switch {
	case d.blind():
		r.warning(`set http.socket = "auto", or http.listen`, "it cannot be asked: [http] opens no door; files are looked at as %s", who)
		return
	case d.running && d.pid > 0:
		r.ok("runs as %s, process %d", who, d.pid)
	case d.running:
		r.ok("runs; files are looked at as %s, who owns %s", who, term.Path(d.Index.Path))
	default:
		r.fault("start it: systemctl start blockd, or blockd serve -c "+term.Path(d.path), "%v; files are looked at as %s, and doors, sockets and lists when it runs", d.asked, who)
	}
	if !d.running {
		return
	}
	status, body, err := control.Text(ctx, d.Config, "/readyz")
	first, rest, _ := strings.Cut(strings.TrimSpace(body), "\n")
	rest = r.turnedAway(rest)
	switch {
	case err != nil:
		r.fault("see its log", "/readyz: %v", err)
	case status != http.StatusOK && status != http.StatusServiceUnavailable:
		r.warning(control.TokenHint, "/readyz answers %d", status)
	case status != http.StatusOK:
		r.fault("see its log, and the lines below", "/readyz: %s; %s", first, rest)
	case !strings.HasPrefix(first, "ok"):
		r.warning("see its log, and the lines below", "/readyz: %s; %s", first, rest)
	default:
		r.ok("/readyz: %s", oneLine(first+"\n"+rest))
	}
}

// turnedAway warns of each remark of /readyz about clients that a door has turned away, and returns the other lines.
func (r *report) turnedAway(lines string) string {
	var others []string
	for _, line := range strings.Split(lines, "\n") {
		if key, _, _ := strings.Cut(line, ": "); !strings.HasSuffix(key, ".allow_from") || !strings.Contains(line, "turned away") {
			others = append(others, line)
			continue
		}
		text, hint, _ := strings.Cut(line, "; ")
		if hint == "" {
			hint = "see its log"
		}
		r.warning(hint+", or else keep it from the port", "%s", text)
	}
	return strings.Join(others, "\n")
}
