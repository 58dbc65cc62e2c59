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
	"blockd/cmd/blockd/internal/version"
	"blockd/index"
	"blockd/lists"
	"blockd/records/audit"
	"blockd/reload"
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

// openSnapshots makes what follows the channel of [fleet]. A node without anything waits for its first snapshot, for a while; its
// lists are those of the configuration from then on.
func (d *daemon) openSnapshots(ctx context.Context) error {
	if !d.config.Fleet.On() {
		return nil
	}
	o, err := SnapshotOptions(d.config)
	if err != nil {
		return err
	}
	d.taken = make(chan struct{}, 1)
	o.Log, o.Changed = d.log, func(*snapshot.Manifest) {
		select {
		case d.taken <- struct{}{}:
		default: // it is known
		}
	}
	d.node = snapshot.New(o, d.metrics)
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
	case <-d.taken:
	default:
	}
	d.config = c
	d.setup.run(c)
	return nil
}

// followSnapshots brings what was taken into service, until ctx ends.
func (d *daemon) followSnapshots(ctx context.Context) error {
	if d.node == nil {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.taken:
		}
		d.setup.turn.Lock()
		_, changes, err := config.Reread(d.setup.path, d.setup.running)
		d.setup.turn.Unlock()
		if err == nil && len(changes.Added)+len(changes.Removed)+len(changes.Changed) == 0 {
			d.lists.Replaced()
			continue
		}
		d.reread(ctx, audit.Author(audit.Daemon, "the fleet's publisher"))
	}
}

// snapshotConfirmed makes the age of the fleet's lists that of the newest snapshot that was seen, and what an
// operator has chosen of them meant.
func (d *daemon) snapshotConfirmed(all []reload.List) {
	if d.node == nil {
		return
	}
	for i, l := range all {
		if l.Path == snapshot.ListFiles(d.config.FleetFolder(), l.Name) {
			all[i].Confirmed = func() time.Time { return time.Unix(d.node.Status().Fresh, 0) }
			all[i].Signed = func() bool { return d.node.Status().Chosen }
		}
	}
}

// publishing publishes what serves.
type publishing struct {
	served chan struct{}

	mu    sync.Mutex
	fault string
}

// How often a publication that has failed is tried again, and how often it is looked whether the last one grows old.
const (
	publishRetry   = time.Minute
	publishRefresh = 10 * time.Minute
)

// openPublishing returns served, which then publishes too.
func (d *daemon) openPublishing(served func(*index.Index)) func(*index.Index) {
	if !d.config.Publish.On() {
		return served
	}
	d.publishing.served = make(chan struct{}, 1)
	return func(ix *index.Index) {
		if served != nil {
			served(ix)
		}
		d.lookToPublish()
	}
}

// lookToPublish has publish look at once.
func (d *daemon) lookToPublish() {
	select {
	case d.publishing.served <- struct{}{}:
	default: // it is known
	}
}

// publish publishes each generation that serves, until ctx ends.
func (d *daemon) publish(ctx context.Context) error {
	if d.publishing.served == nil {
		return nil
	}
	for {
		wait := publishRefresh
		if err := d.publishNow(ctx); err != nil && ctx.Err() == nil {
			wait = publishRetry
			if !errors.Is(err, snapshot.ErrHalted) && !errors.Is(err, snapshot.ErrStands) {
				d.log.Error("not published", slog.Any("error", err))
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-d.publishing.served:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (d *daemon) publishNow(ctx context.Context) (err error) {
	defer func() {
		d.publishing.mu.Lock()
		defer d.publishing.mu.Unlock()
		if d.publishing.fault = ""; err != nil && ctx.Err() == nil {
			d.publishing.fault = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}()
	p, err := OpenPublisher(d.config, d.log)
	if err != nil {
		return err
	}
	defer p.Close()
	// Mail goes first. More workers at a low priority would be threads that wait for the system while they keep Go from answering there.
	p.Workers = 1
	ix := d.lists.Live()
	c, err := SnapshotContent(d.config, ix)
	if err != nil {
		return err
	}
	told, err := p.PublishChanges(ctx, c)
	if err != nil || told == nil {
		return err
	}
	d.log.Info("snapshot published", slog.String("channel", d.config.Publish.Channel), slog.Int64("sequence", told.Sequence), slog.Int64("entries", told.Entries),
		slog.Int64("added", told.Added), slog.Int64("removed", told.Removed), slog.Int("stages", len(told.Stages)), slog.Int64("written", told.Written))
	return nil
}

// publishProblems are why nothing is published.
func (d *daemon) publishProblems() []string {
	d.publishing.mu.Lock()
	defer d.publishing.mu.Unlock()
	if d.publishing.fault == "" {
		return nil
	}
	return []string{"publish: " + d.publishing.fault}
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

// SnapshotContent is what a generation has to publish: the entries that act, of the lists of the configuration. Live entries are of this
// machine, and stay here. The error is about what a snapshot cannot say.
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
