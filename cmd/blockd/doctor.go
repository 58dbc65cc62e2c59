package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/access"
	"blockd/internal/config"
	"blockd/internal/daemon"
	"blockd/internal/term"
)

// The time of one check, and how much longer one is waited for that does not keep to it,
// as a file system that does not answer.
const (
	doctorPatience = 10 * time.Second
	doctorGrace    = 2 * time.Second
	answerTimeout  = 2 * time.Second // of the question whether a daemon runs
)

func newDoctor() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [-c config.toml] [--json]",
		Short: "examine whether what is configured is safe and works",
		Long: `Examine whether what is configured is safe and works: the configuration; files and
folders, as the daemon's user sees them; each door; the next server, whether it would
relay for strangers (it is asked now, and no mail is sent) and whether it understands who
the client is; TLS and certificates; DNS, the clock, room on disks; the lists.

Each line is ok, a warning or a fault, with what to do. Ends with 0, with 1 if there is
a warning, with 2 if there is a fault. Nothing is changed. It takes ten seconds at most,
give or take.

Run it as root or as the daemon's user: others may not look at all files. The daemon's
user is that of the running daemon, or else the owner of the index's folder.`,
		Example: `  blockd doctor -c /etc/blockd/config.toml
  blockd doctor --json | jq -r 'select(.state != "ok")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := examine(cmd.Context(), path)
			var err error
			if asJSON {
				err = printFindingsJSON(cmd.OutOrStdout(), found)
			} else {
				err = printFindings(cmd.OutOrStdout(), found)
			}
			if err != nil {
				return err
			}
			if code := worst(found); code > 0 {
				return answer(code)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one object a line")
	return cmd
}

// finding is what one check has found.
type finding struct {
	Check string `json:"check"`
	State state  `json:"state"`
	Text  string `json:"text"`
	Hint  string `json:"hint"` // what to do; "" for ok
}

// state is how something is, and in the order of its values how bad that is: the exit
// code is the worst of all.
type state int

const (
	stateOK state = iota
	stateWarning
	stateFault
)

func (s state) String() string { return [...]string{"ok", "warning", "fault"}[s] }

// MarshalText implements encoding.TextMarshaler.
func (s state) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func worst(found []finding) int {
	var code state
	for _, f := range found {
		code = max(code, f.State)
	}
	return int(code)
}

// report collects the findings of one check. It is used by one goroutine.
type report struct {
	check string
	found []finding
}

func (r *report) ok(format string, args ...any) { r.add(stateOK, "", format, args...) }
func (r *report) warning(hint, format string, args ...any) {
	r.add(stateWarning, hint, format, args...)
}
func (r *report) fault(hint, format string, args ...any) { r.add(stateFault, hint, format, args...) }

func (r *report) add(s state, hint, format string, args ...any) {
	r.found = append(r.found, finding{r.check, s, oneLine(fmt.Sprintf(format, args...)), oneLine(hint)})
}

// oneLine makes one line of several, as of errors that are joined.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }

// doctor is what the checks go by. It does not change.
type doctor struct {
	config.Config
	path    string
	user    access.User // the daemon's
	pid     int         // 0: unknown, or no daemon runs
	running bool        // a daemon answers
	asked   error       // why it does not
	now     time.Time
}

// An examination looks at one thing and says what it has found, with ctx for its time.
type examination struct {
	name string
	run  func(*doctor, context.Context, *report)
}

// examine runs all checks for the configuration at path.
func examine(ctx context.Context, path string) []finding {
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
	if d.user, d.pid, err = daemon.User(ctx, c); err != nil {
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
	return append(user.found, d.runAll(ctx, checks, doctorPatience)...)
}

// runAll runs checks side by side, for a time each, and returns what they find in their
// order.
func (d *doctor) runAll(ctx context.Context, checks []examination, patience time.Duration) (found []finding) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late := time.After(patience + doctorGrace)
	reports := make([]chan []finding, len(checks))
	for i, c := range checks {
		reports[i] = make(chan []finding, 1)
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
			late = time.After(0) // for all that follow
		}
		select {
		case f := <-reports[i]: // at the last moment
			found = append(found, f...)
		default:
			found = append(found, finding{c.name, stateFault, fmt.Sprintf("no answer in %v", patience+doctorGrace), "look at the file systems and servers that it is about: one hangs"})
		}
	}
	return found
}

// blind reports whether no way leads to the daemon but its doors for mail.
func (d *doctor) blind() bool {
	path := d.HTTPSocket()
	return d.HTTP.Listen == "" && (path == "" || len(path) > config.MaxSocketPath)
}

// answers reports whether the daemon of this configuration runs and answers.
func (d *doctor) answers(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, _, err := daemon.Text(ctx, d.Config, "/healthz")
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
		r.fault("start it: systemctl start blockd, or blockd serve -c "+term.Path(d.path), "%v; files are looked at as %s", d.asked, who)
	}
	if !d.running {
		return
	}
	status, body, err := daemon.Text(ctx, d.Config, "/readyz")
	first, rest, _ := strings.Cut(strings.TrimSpace(body), "\n")
	switch {
	case err != nil:
		r.fault("see its log", "/readyz: %v", err)
	case status != http.StatusOK && status != http.StatusServiceUnavailable:
		r.warning(tokenHint, "/readyz answers %d", status)
	case status != http.StatusOK:
		r.fault("see its log, and the lines below", "/readyz: %s; %s", first, rest)
	case !strings.HasPrefix(first, "ok"):
		r.warning("see its log, and the lines below", "/readyz: %s; %s", first, rest)
	default:
		r.ok("/readyz: %s", oneLine(first+"\n"+rest))
	}
}

func printFindingsJSON(w io.Writer, found []finding) error {
	for _, f := range found {
		if err := term.JSON(w, f); err != nil {
			return err
		}
	}
	return nil
}

// printFindings writes a line for each finding, and what to do below it. Long texts are
// folded within their column.
func printFindings(w io.Writer, found []finding) error {
	p, width := term.NewPaint(w), cmp.Or(term.Width(w), term.PlainWidth)
	names, states, counts := 0, len("warning"), [3]int{}
	for _, f := range found {
		names = max(names, term.Columns(f.Check))
		counts[f.State]++
	}
	indent := strings.Repeat(" ", states+2+names+2)
	room := max(width-len(indent), 30)
	var b strings.Builder
	for _, f := range found {
		word := map[state]func(string) string{stateOK: p.Green, stateWarning: p.Yellow, stateFault: p.Red}[f.State](f.State.String())
		head := word + strings.Repeat(" ", states+2-len(f.State.String())) + f.Check + strings.Repeat(" ", names+2-term.Columns(f.Check))
		for _, line := range term.Fold(term.Visible(f.Text), room) {
			b.WriteString(head + line + "\n")
			head = indent
		}
		if f.Hint == "" {
			continue
		}
		arrow := "-> "
		for _, line := range term.Fold(term.Visible(f.Hint), room-len(arrow)) {
			b.WriteString(indent + p.Faint(arrow+line) + "\n")
			arrow = "   "
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %s, %s\n", counts[stateOK], term.Counted(counts[stateWarning], "warning"), term.Counted(counts[stateFault], "fault"))
	_, err := io.WriteString(w, b.String())
	return err
}

func newHealth() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "health [-c config.toml]",
		Short: "say whether the daemon is ready, for monitors",
		Long: `Ask the daemon whether it is ready, print what it says, and end with 0 if it is
(/readyz says 200) and with 1 if it is not, or does not answer in five seconds. A daemon that
is degraded is ready.`,
		Example: `  blockd health -c /etc/blockd/config.toml
  HEALTHCHECK CMD ["blockd", "health"]`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			status, body, err := daemon.Text(ctx, c, "/readyz")
			if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
				err = fmt.Errorf("/readyz answers %d: %s", status, tokenHint)
			}
			if err != nil {
				return err
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), body); err != nil {
				return err
			}
			if status != http.StatusOK {
				return answer(exitFault)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	return cmd
}

const healthTimeout = 5 * time.Second

// tokenHint is what helps where the daemon does not say how it is.
const tokenHint = "put a token into " + daemon.TokenVariable + ", or ask as a user who may open its socket"
