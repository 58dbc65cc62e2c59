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
	"blockd/cmd/blockd/internal/version"
	"blockd/doors/httpapi"
	"blockd/records/audit"
	"blockd/reload"
	"blockd/sources/roster"
	"blockd/sources/snapshot"
)

// reporting is what a node tells of itself, and what it is told of others.
type reporting struct {
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

// newest is the sequence that this publisher has published last, of a file that is read when it has changed. It is for one goroutine.
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

// openRoster prepares the view of all nodes.
func (d *daemon) openRoster() {
	d.roster.begun = time.Now().UTC().Truncate(time.Second)
	if d.config.Publish.On() {
		d.roster.book = roster.NewBook()
	}
}

// view is what the HTTP door shows of all nodes; nil where there is no fleet to be seen.
func (d *daemon) view() *httpapi.Fleet {
	if !d.config.Others() {
		return nil
	}
	return &httpapi.Fleet{Reports: d.everybody, Book: d.roster.book}
}

// everybody are the reports of all nodes, and the nodes that do not report any more.
func (d *daemon) everybody(ctx context.Context) ([]roster.Report, []roster.Gone, error) {
	all, err := d.reports(ctx)
	return all, d.roster.past.Look(all, err == nil, time.Now()), err
}

// reports are those of all nodes.
func (d *daemon) reports(ctx context.Context) ([]roster.Report, error) {
	var told, shared []roster.Report
	if d.roster.book != nil {
		told = d.roster.book.All(time.Now())
	}
	own := []roster.Report{d.report(time.Now(), false)}
	if d.shared == nil {
		return roster.Merge(own, told), nil
	}
	kept, err := d.shared.Reports(ctx)
	for _, text := range kept {
		if r, bad := roster.Decode(text); bad == nil {
			shared = append(shared, r)
		}
	}
	return roster.Merge(own, told, shared), err
}

// report says how this node is. kept is whether the rate is counted from it on.
func (d *daemon) report(now time.Time, kept bool) roster.Report {
	status, problems := d.state()
	r := roster.Report{Node: d.config.NodeName(), At: now.UTC(), Version: version.String(), Generation: status.Generation, Ready: status.Ready, Address: d.config.Fleet.Address,
		GateRefusals: len(status.Refusals), Begun: d.roster.begun, Problems: []string{}}
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
		serves := d.roster.inForce(d.config, s, status)
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
	o := &d.roster
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

// runReports tells how this node is, until ctx ends.
func (d *daemon) runReports(ctx context.Context) error {
	if !d.config.Viewed() {
		return nil
	}
	var around time.Time
	for {
		up, err := d.tell(ctx)
		if ctx.Err() != nil {
			return nil
		}
		d.noteTold(err)
		if d.config.Others() && err == nil && (d.shared == nil || time.Since(around) >= lookAround) { // of what was sent here memory tells
			around = time.Now()
			_, _, _ = d.everybody(ctx) // whoever asks is told why they could not be read
		}
		wait := roster.Every
		if (err != nil || !up) && time.Since(d.roster.begun) < wait {
			wait = reportSoon
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// runBrake halts the channel where the nodes that have a sequence first stand out, until ctx ends.
func (d *daemon) runBrake(ctx context.Context) error {
	if !d.config.Publish.On() || !d.config.Publish.Brake {
		return nil
	}
	every := brakeEvery
	if d.shared != nil {
		every = roster.Every // each look is a question to its database
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := d.look(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("the brake of the channel does not work", slog.Any("error", err))
		}
	}
}

func (d *daemon) noteTold(err error) {
	d.roster.mu.Lock()
	defer d.roster.mu.Unlock()
	was := d.roster.fault
	if d.roster.fault = ""; err != nil {
		d.roster.fault = err.Error()
	}
	if was == "" && err != nil {
		d.log.Warn("how this node is could not be told", slog.Any("error", err))
	}
}

// tell sends the report of this node. up is whether it says that all is as it will be.
func (d *daemon) tell(ctx context.Context) (up bool, err error) {
	r := d.report(time.Now(), true)
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
func (d *daemon) look(ctx context.Context) error {
	folder, channel := d.config.PublishFolder(), d.config.Publish.Channel
	if !snapshot.Halted(folder) {
		d.roster.mu.Lock()
		d.roster.halted = "" // somebody has published since, or it is over
		d.roster.mu.Unlock()
	}
	all, err := d.reports(ctx)
	if err != nil {
		return err
	}
	newest, err := d.roster.published.read(folder, channel) // what nodes say of it is not asked: one could say any number
	if err != nil {
		return err
	}
	found := d.roster.brake.Look(all, channel, newest)
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
	d.roster.mu.Lock()
	d.roster.halted = text
	d.roster.mu.Unlock()
	return nil
}

// rosterProblems are that the brake has halted the channel, and that this node could not tell how it is.
func (d *daemon) rosterProblems() (all []string) {
	d.roster.mu.Lock()
	defer d.roster.mu.Unlock()
	if d.roster.halted != "" {
		all = append(all, d.roster.halted)
	}
	return all
}

// rosterRemarks are what concerns the view of the fleet alone.
func (d *daemon) rosterRemarks() (all []string) {
	d.roster.mu.Lock()
	defer d.roster.mu.Unlock()
	if d.roster.fault != "" {
		all = append(all, "fleet: this node could not tell how it is: "+d.roster.fault)
	}
	return all
}
