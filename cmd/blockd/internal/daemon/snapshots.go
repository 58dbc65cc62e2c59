package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/cmd/blockd/internal/version"
	"blockd/doors/httpapi"
	"blockd/index"
	"blockd/lists"
	"blockd/records/audit"
	"blockd/sources/snapshot"
)

// firstSnapshot is how long a start waits for the first snapshot of a node that has none yet.
const firstSnapshot = 30 * time.Second

// OpenStore makes the store at an address. It makes no connection.
func OpenStore(address string) (snapshot.Target, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	switch scheme {
	case "file":
		return snapshot.Folder(rest), nil
	case "s3":
		return openBucket(address)
	}
	return nil, errors.New("want s3://… or file://…")
}

// openStore is OpenStore for stores that are only read.
func openStore(address string) (snapshot.Store, error) {
	if strings.HasPrefix(address, "http") {
		return snapshot.NewWeb(address, version.String())
	}
	return OpenStore(address)
}

// SnapshotOptions are those of the node that a configuration has.
func SnapshotOptions(c config.Config) (o snapshot.Options, err error) {
	o = c.Snapshots()
	address, err := c.Fleet.Store()
	if err == nil {
		o.From, err = openStore(address)
	}
	if err != nil {
		return o, fmt.Errorf("fleet.from: %w", err)
	}
	for _, r := range c.Fleet.Relays {
		relay, err := openStore(r)
		if err != nil {
			return o, fmt.Errorf("fleet.relays: %w", err)
		}
		o.Relays = append(o.Relays, relay)
	}
	o.Built, _ = time.Parse(time.RFC3339, version.Read().Date) // not known: no clock is before it
	return o, nil
}

// openSnapshots makes what follows the channel of [fleet]. A node without anything waits for its first snapshot, for a
// while; its lists are those of the configuration from then on.
func openSnapshots(ctx context.Context, d *daemon, p *part) error {
	if !d.config.Fleet.On() {
		return nil
	}
	o, err := SnapshotOptions(d.config)
	if err != nil {
		return err
	}
	taken := make(chan struct{}, 1) // holds one value while a snapshot waits to be brought into service
	o.Log, o.Changed = d.log, func(*snapshot.Manifest) { tellOnce(taken) }
	d.node, d.taken = snapshot.New(o, d.metrics), taken
	p.run, p.alone, p.problems, p.remarks, p.renew = d.node.Run, upgrade.Lists, lines(d.node.Problems), d.node.Remarks, d.node.Now
	if err := MakeIndexFolder(d.config); err != nil {
		return err
	}
	_, damaged := snapshot.Current(d.config.FleetFolder())
	if err := d.node.Open(); err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	if d.node.Status().Sequence > 0 {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, firstSnapshot)
	defer cancel()
	if err := d.node.Once(wait); err != nil && damaged != nil && d.upgrade.predecessor != nil {
		return fmt.Errorf("snapshots: %w, and it cannot be fetched: %w", damaged, err) // the process before has its lists
	} else if err != nil {
		d.log.Warn("no snapshot yet: the lists of the fleet are not served", slog.Any("error", err))
		return nil
	}
	c, err := config.LoadToServe(d.setup.path)
	if err != nil {
		return err
	}
	select {
	case <-taken:
	default:
	}
	d.config = c
	d.setup.now.Store(&c)
	return nil
}

// openFleetLists makes the age of the fleet's lists that of the newest snapshot that was seen, and what an operator
// has chosen of them meant. It brings what was taken into service.
func openFleetLists(_ context.Context, d *daemon, p *part) error {
	if d.node == nil {
		return nil
	}
	for i, l := range d.toLists.Lists {
		if l.Path == snapshot.ListFiles(d.config.FleetFolder(), l.Name) {
			d.toLists.Lists[i].Confirmed = func() time.Time { return time.Unix(d.node.Status().Fresh, 0) }
			d.toLists.Lists[i].Signed = func() bool { return d.node.Status().Chosen }
		}
	}
	p.run = func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-d.taken:
			}
			d.setup.turn.Lock()
			_, changes, err := config.Reread(d.setup.path, *d.setup.now.Load())
			d.setup.turn.Unlock()
			if err == nil && len(changes.Added)+len(changes.Removed)+len(changes.Changed) == 0 {
				d.lists.Replaced()
				continue
			}
			d.reread(ctx, audit.Author(audit.Daemon, "the fleet's publisher"))
		}
	}
	return nil
}

// publishing publishes what serves.
type publishing struct {
	config config.Config
	log    *slog.Logger
	served chan struct{} // has a value while a generation waits to be published
	live   func() *index.Index

	mu    sync.Mutex
	fault string
}

// How often a publication that has failed is tried again, and how often it is looked whether the last one grows old.
const (
	publishRetry   = time.Minute
	publishRefresh = 10 * time.Minute
)

// openPublishing makes what publishes each generation.
func openPublishing(_ context.Context, d *daemon, p *part) error {
	if !d.config.Publish.On() {
		return nil
	}
	o := &publishing{config: d.config, log: d.log, served: make(chan struct{}, 1), live: func() *index.Index { return d.lists.Live() }}
	d.toHTTP.Channel = o.channel()
	p.run, p.alone, p.problems = o.run, upgrade.Lists, lines(o.problems)
	p.served = func(*index.Index) { tellOnce(o.served) }
	return nil
}

// tellOnce puts a value into a channel that has room for one, unless it has it.
func tellOnce(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // it is known
	}
}

// run publishes each generation that serves, until ctx ends.
func (o *publishing) run(ctx context.Context) error {
	for {
		wait := publishRefresh
		if err := o.publish(ctx); err != nil && ctx.Err() == nil {
			wait = publishRetry
			if !errors.Is(err, snapshot.ErrHalted) && !errors.Is(err, snapshot.ErrStands) {
				o.log.Error("not published", slog.Any("error", err))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.served:
		case <-time.After(wait):
		}
	}
}

func (o *publishing) publish(ctx context.Context) (err error) {
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.fault = ""; err != nil && ctx.Err() == nil {
			o.fault = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}()
	p, err := OpenPublisher(o.config, o.log)
	if err != nil {
		return err
	}
	defer p.Close()
	// Mail goes first. More workers at a low priority would be threads that wait for the system while they keep Go
	// from answering there.
	p.Workers = 1
	ix := o.live()
	c, err := SnapshotContent(o.config, ix)
	if err != nil {
		return err
	}
	told, err := p.PublishChanges(ctx, c)
	if err != nil || told == nil {
		return err
	}
	o.log.Info("snapshot published", slog.String("channel", o.config.Publish.Channel), slog.Int64("sequence", told.Sequence), slog.Int64("entries", told.Entries),
		slog.Int64("added", told.Added), slog.Int64("removed", told.Removed), slog.Int("stages", len(told.Stages)), slog.Int64("written", told.Written))
	return nil
}

// problems are why nothing is published.
func (o *publishing) problems() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fault == "" {
		return nil
	}
	return []string{"publish: " + o.fault}
}

// channel is what the HTTP door does with the channel that this machine publishes.
func (o *publishing) channel() *httpapi.Channel {
	return &httpapi.Channel{State: o.channelState,
		Halt: func(ctx context.Context, until time.Time) error {
			return o.changeChannel(func(p *snapshot.Publisher) error {
				_, err := p.Halt(ctx, until)
				return err
			})
		},
		Again: func(ctx context.Context, sequence int64, now bool) error {
			return o.changeChannel(func(p *snapshot.Publisher) error {
				_, err := p.Again(ctx, sequence, now)
				return err
			})
		}}
}

// changeChannel does something with the publisher that no other process, and nothing else here, has at the time.
func (o *publishing) changeChannel(change func(*snapshot.Publisher) error) error {
	p, err := OpenPublisher(o.config, o.log)
	if errors.Is(err, snapshot.ErrLocked) {
		return httpapi.ErrPublishing
	}
	if err != nil {
		return err
	}
	defer p.Close()
	defer tellOnce(o.served) // what is wrong, or no longer, is known at once
	return change(p)
}

func (o *publishing) channelState() (state httpapi.ChannelState, err error) {
	folder, channel := o.config.PublishFolder(), o.config.Publish.Channel
	state = httpapi.ChannelState{Channel: channel, Stands: snapshot.Stands(folder), Sequences: []httpapi.SequenceRow{}}
	if state.Sequence, err = snapshot.LastPublished(folder, channel); err != nil {
		return state, err
	}
	if pin := snapshot.HaltedAt(folder); pin != nil {
		state.Halted = &httpapi.ChannelHalt{Sequence: pin.Sequence, Until: time.Unix(pin.Until, 0).UTC()}
	}
	kept, err := snapshot.Kept(folder, channel)
	for _, m := range kept {
		row := httpapi.SequenceRow{Sequence: m.Sequence, Created: time.Unix(m.Created, 0).UTC(), Lists: []string{}}
		for _, l := range m.Lists {
			row.Entries += l.Entries
			row.Lists = append(row.Lists, l.Name)
		}
		for _, a := range m.Ask {
			row.Lists = append(row.Lists, a.Name)
		}
		state.Sequences = append(state.Sequences, row)
	}
	return state, err
}

// OpenPublisher makes the publisher of [publish].
func OpenPublisher(c config.Config, log *slog.Logger) (*snapshot.Publisher, error) {
	if !c.Publish.On() {
		return nil, errors.New("publish.to says nowhere to publish to")
	}
	key, err := c.Publish.ReadKey()
	if err != nil {
		return nil, err
	}
	address, err := c.Publish.Address()
	if err != nil {
		return nil, fmt.Errorf("publish.to: %w", err)
	}
	to, err := OpenStore(address)
	if err != nil {
		return nil, fmt.Errorf("publish.to: %w", err)
	}
	return snapshot.OpenPublisher(snapshot.PublisherOptions{Folder: c.PublishFolder(), Channel: c.Publish.Channel, Key: key, To: to, Keep: c.Publish.Keep,
		Stages: c.Publish.PlannedStages(), Version: version.String(), Log: log})
}

// SnapshotContent is what a generation has to publish: the entries that act, of the lists of the configuration. Live
// entries are of this machine, and stay here. The error is about what a snapshot cannot say.
func SnapshotContent(c config.Config, ix *index.Index) (snapshot.Content, error) {
	var content snapshot.Content
	number := map[string]int{}
	for _, l := range c.Lists {
		if l.Asked() {
			if c.Published(l) {
				content.Ask = append(content.Ask, snapshot.AskedContent{Name: l.Name, Path: l.Path})
			}
			continue
		}
		if c.Published(l) {
			number[l.Name] = len(content.Lists)
			content.Lists = append(content.Lists, l.Manifest())
		}
	}
	of := make([]int, len(ix.Lists())) // by row: the list; -1: it is not published
	read := map[string]bool{}
	for i, row := range ix.Lists() {
		n, ok := number[row.Source.List]
		if of[i] = -1; ok {
			of[i] = n
			read[row.Source.List] = true
			content.Gate.Protected += row.Summary.Dropped.Count(lists.Protected)
		}
	}
	for _, l := range c.Lists {
		if _, ok := number[l.Name]; ok && !read[l.Name] && !l.Optional {
			return content, fmt.Errorf("list %s: nothing of it serves yet", l.Name)
		}
	}
	content.Lines = func(ctx context.Context, part, parts int, want func(int, []byte) bool, use func(int, []byte) error) error {
		err := ix.Lines(ctx, part, parts, func(row int, key []byte) bool { return of[row] >= 0 && want(of[row], key) }, func(row int, line []byte) error {
			l := &content.Lists[of[row]]
			if !l.PerRecipient && len(lists.OwnerOfLine(line)) > 0 {
				return fmt.Errorf("list %s: it has entries of single recipients, and is no list of such", l.Name)
			}
			return use(of[row], line)
		})
		if no := (*index.NoLineError)(nil); errors.As(err, &no) {
			return fmt.Errorf("list %s: %q is a pattern, which a snapshot does not carry; name the others in publish.lists, or set patterns = false", content.Lists[of[no.Row]].Name, no.Name)
		}
		return err
	}
	return content, nil
}
