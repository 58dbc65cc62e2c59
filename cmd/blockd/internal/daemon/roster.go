package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/cmd/blockd/internal/version"
	"blockd/doors/httpapi"
	"blockd/records/audit"
	"blockd/reload"
	"blockd/sources/roster"
	"blockd/sources/snapshot"
)

// reporting is what a node tells of itself, and what it is told of others.
type reporting struct {
	daemon *daemon

	book  *roster.Book // what nodes have sent here; nil: nobody may
	past  roster.Past  // which nodes there were
	brake roster.Brake
	begun time.Time

	mu     sync.Mutex
	serves snapshot.Status // of the last sequence of which no list was refused; zero: none yet, since the start
	base   roster.Counts   // what was counted when the sequence was first seen
	last   roster.Report   // the last one of this node
	fault  string          // why it could not be told; "" = it was
	halted string          // why the brake has halted the channel; "" = it has not

	published newest
}

// newest is the sequence that this publisher has published last, of a file that is read when it has changed. It is for
// one goroutine.
type newest struct {
	stamp    fs.FileInfo
	sequence int64
}

func (n *newest) read(folder, channel string) (int64, error) {
	now, err := os.Stat(snapshot.PublishedFile(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err == nil && (n.stamp == nil || !os.SameFile(now, n.stamp)) {
		n.sequence, err = snapshot.LastPublished(folder, channel)
	}
	if err == nil {
		n.stamp = now
	}
	return n.sequence, err
}

const (
	reportLimit = 10 * time.Second
	reportSoon  = time.Second      // after a report of a start that was not told, or says that the database has not answered yet
	lookAround  = 10 * time.Minute // how often it is noted which nodes the database has if nobody asks: each machine reads the reports of all
	brakeEvery  = 5 * time.Second
)

// openRoster prepares the view of all nodes, and tells how this one is.
func openRoster(_ context.Context, d *daemon, p *part) error {
	o := &reporting{daemon: d, begun: time.Now().UTC().Truncate(time.Second)}
	if d.config.Publish.On() {
		o.book = roster.NewBook()
	}
	if d.config.Others() {
		d.toHTTP.Fleet = &httpapi.Fleet{Reports: o.everybody, Book: o.book}
	}
	if d.config.Viewed() {
		p.run, p.alone = o.run, upgrade.Writes
	}
	d.fleet = o
	p.problems = lines(func() []string { return o.told(&o.halted, "") }) // that the brake has halted the channel
	p.remarks = func() []string { return o.told(&o.fault, "fleet: this node could not tell how it is: ") }
	return nil
}

// openBrake halts the channel where the nodes that have a sequence first stand out.
func openBrake(_ context.Context, d *daemon, p *part) error {
	if d.config.Publish.On() && d.config.Publish.Brake {
		p.run, p.alone = d.fleet.runBrake, upgrade.Writes
	}
	return nil
}

// everybody are the reports of all nodes, and the nodes that do not report any more.
func (o *reporting) everybody(ctx context.Context) ([]roster.Report, []roster.Gone, error) {
	all, err := o.reports(ctx)
	return all, o.past.Look(all, err == nil, time.Now()), err
}

// reports are those of all nodes.
func (o *reporting) reports(ctx context.Context) ([]roster.Report, error) {
	var told, shared []roster.Report
	if o.book != nil {
		told = o.book.All(time.Now())
	}
	own := []roster.Report{o.report(time.Now(), false)}
	if o.daemon.shared == nil {
		return roster.Merge(own, told), nil
	}
	kept, err := o.daemon.shared.Reports(ctx)
	for _, text := range kept {
		if r, bad := roster.Decode(text); bad == nil {
			shared = append(shared, r)
		}
	}
	return roster.Merge(own, told, shared), err
}

// report says how this node is. kept is whether the rate is counted from it on.
func (o *reporting) report(now time.Time, kept bool) roster.Report {
	d := o.daemon
	status, problems := d.state()
	r := roster.Report{Node: d.config.NodeName(), At: now.UTC(), Version: version.String(), Generation: status.Generation, Ready: status.Ready, Address: d.config.Fleet.Address,
		GateRefusals: len(status.Refusals), Begun: o.begun, Problems: []string{}}
	for _, p := range problems {
		r.Problems = append(r.Problems, p.Text)
	}
	for _, l := range d.config.Lists {
		if s, has := d.sourceStatus(l.Name); has && s.Error != "" {
			r.Sources = append(r.Sources, roster.Source{List: l.Name, State: string(s.State)})
		}
	}
	if d.node != nil {
		s := d.node.Status()
		serves := o.inForce(d.config, s, status)
		r.Channel, r.Sequence, r.Newest, r.Pinned, r.Canary = d.config.Fleet.Channel, serves.Sequence, s.Seen, s.Pinned, d.config.Fleet.Canary
		if serves.Created > 0 {
			r.Lag = max(0, now.Unix()-serves.Created)
		}
	}
	if d.shared != nil {
		s := d.shared.Status()
		r.LiveRevision, r.LiveSum, r.LiveUp, r.LiveLost = s.Revision, s.Sum, s.Up, s.Lost
	}
	r.Checks, r.Refused = d.checker.Counts()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.base.Sequence != r.Sequence {
		o.base = roster.Counts{Sequence: r.Sequence, Checks: r.Checks, Refused: r.Refused}
	}
	r.Since = roster.Counts{Sequence: r.Sequence, Checks: r.Checks - o.base.Checks, Refused: r.Refused - o.base.Refused}
	r.PerSecond = o.last.PerSecond
	from, before := o.last.At, o.last.Checks
	if from.IsZero() {
		from = o.begun
	}
	if took := now.Sub(from).Seconds(); took >= 1 && r.Checks >= before {
		r.PerSecond = float64(r.Checks-before) / took
	}
	if kept {
		o.last = r
	}
	return r
}

// inForce is the sequence by which this node answers: what it has taken, once its gate has looked at that and refuses
// none of its lists.
func (o *reporting) inForce(c config.Config, taken snapshot.Status, status reload.Status) snapshot.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	refused := slices.ContainsFunc(c.Lists, func(l config.List) bool {
		return c.OfFleet(l) && slices.ContainsFunc(status.Refusals, func(r reload.Refusal) bool { return r.List == l.Name })
	})
	if !refused && !status.Looked.Before(taken.Taken) {
		o.serves = taken
	}
	return o.serves
}

// run tells how this node is, until ctx ends.
func (o *reporting) run(ctx context.Context) error {
	d := o.daemon
	var around time.Time
	for {
		up, err := o.tell(ctx)
		if ctx.Err() != nil {
			return nil
		}
		o.noteTold(err)
		if d.config.Others() && err == nil && (d.shared == nil || time.Since(around) >= lookAround) { // of what was sent here memory tells
			around = time.Now()
			_, _, _ = o.everybody(ctx) // whoever asks is told why they could not be read
		}
		wait := roster.Every
		if (err != nil || !up) && time.Since(o.begun) < wait {
			wait = reportSoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// runBrake looks until ctx ends.
func (o *reporting) runBrake(ctx context.Context) error {
	every := brakeEvery
	if o.daemon.shared != nil {
		every = roster.Every // each look is a question to its database
	}
	tick := time.Tick(every)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		if err := o.look(ctx); err != nil && ctx.Err() == nil {
			o.daemon.log.Error("the brake of the channel does not work", slog.Any("error", err))
		}
	}
}

// noteTold notes whether it could be told, and logs once that it could not.
func (o *reporting) noteTold(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if was := o.set(&o.fault, text); was == "" && err != nil {
		o.daemon.log.Warn("how this node is could not be told", slog.Any("error", err))
	}
}

// set changes a text, and returns what it was.
func (o *reporting) set(text *string, to string) (was string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was, *text = *text, to
	return was
}

// told is a text with what goes before it; none if it is "".
func (o *reporting) told(text *string, before string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if *text == "" {
		return nil
	}
	return []string{before + *text}
}

// tell sends the report of this node. up is whether it says that all is as it will be.
func (o *reporting) tell(ctx context.Context) (up bool, err error) {
	d := o.daemon
	r := o.report(time.Now(), true)
	text, err := r.Encode()
	if err != nil {
		return false, err
	}
	if d.shared != nil && (len(d.config.Live.Relays) == 0 || d.config.Fleet.Report == "") {
		err = d.shared.Report(ctx, r.Node, text, roster.Life)
	}
	if to := d.config.Fleet.Report; to != "" {
		err = errors.Join(err, postReport(ctx, to, d.config.Fleet.TokenFile, text))
	}
	return r.Ready && (d.shared == nil || r.LiveUp) && (d.node == nil || r.Sequence > 0), err
}

// postReport sends a report to the machine that shows all.
func postReport(ctx context.Context, to, tokenFile string, text []byte) error {
	token, err := httpapi.ReadToken(tokenFile)
	if err != nil {
		return fmt.Errorf("fleet.token_file: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	// The token goes to that address alone.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("fleet.report: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("fleet.report: %s says %s: %s", to, resp.Status, strings.TrimSpace(string(said)))
	}
	return nil
}

// look halts the channel if the nodes with the newest sequence refuse too much.
func (o *reporting) look(ctx context.Context) error {
	d := o.daemon
	folder, channel := d.config.PublishFolder(), d.config.Publish.Channel
	if !snapshot.Halted(folder) {
		o.set(&o.halted, "") // somebody has published since, or it is over
	}
	all, err := o.reports(ctx)
	if err != nil {
		return err
	}
	newest, err := o.published.read(folder, channel) // what nodes say of it is not asked: one could say any number
	if err != nil {
		return err
	}
	found := o.brake.Look(all, channel, newest)
	if !found.Halt {
		return nil
	}
	p, err := OpenPublisher(d.config, d.log)
	if err != nil {
		return err
	}
	defer p.Close()
	if p.Halted() {
		return p.Assert(ctx)
	}
	if err := d.audit.Add(audit.Line{By: audit.Author(audit.Daemon, "blockd"), Action: audit.SnapshotHalt, Subject: channel, Why: found.String(), Detail: fmt.Sprintf("sequence %d", newest)}); err != nil {
		return err
	}
	to, err := p.Halt(ctx, time.Now().Add(snapshot.DefaultHalt))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("publish: sequence %d of the channel %s is halted, and nodes go back to %d: %s; blockd publish or publish --again ends it", newest, channel, to, found)
	d.log.Error("channel halted by the brake", slog.String("channel", channel), slog.Int64("sequence", newest), slog.Int64("back_to", to), slog.String("found", found.String()))
	o.set(&o.halted, text)
	return nil
}
