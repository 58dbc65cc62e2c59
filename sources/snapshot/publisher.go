package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"blockd/internal/durable"
	"blockd/internal/minisign"
)

// Life is how long a sequence may be begun with. A publisher writes another one before half of that is over, also if nothing has
// changed, so that nodes can tell a quiet publisher from one that is held off.
const Life = 24 * time.Hour

// DefaultHalt is how long a halt lasts by itself.
const DefaultHalt = 7 * 24 * time.Hour

// PlannedStage is a stage before it has a time.
type PlannedStage struct {
	Share int           // percent
	For   time.Duration // until the next one
}

// PublisherOptions of a Publisher.
type PublisherOptions struct {
	Folder  string // what it remembers of what it has published; it is made if need be, and nothing else may be in it
	Channel string
	Key     minisign.SecretKey
	To      Target
	Keep    int            // sequences that stay in the store
	Stages  []PlannedStage // before the one of all
	Version string
	Workers int // how many shards are made at a time; 0 = one for each processor, four at most
	Log     *slog.Logger
}

// Content is what is to be published.
type Content struct {
	Lists []List // without Entries and Shards
	// Lines gives the entries of all lists that want wants, as lines of the format entries (lists.AppendEntryLine), in any order, but those
	// of one key together. It calls use right after want has said yes, and both keep nothing. It does so for one of so many parts, which
	// together have each entry, and is called by a goroutine for each part, and twice for all of them: with the same entries.
	Lines func(ctx context.Context, part, parts int, want func(list int, key []byte) bool, use func(list int, line []byte) error) error
	Ask   []AskedContent
	Gate  Gate
}

// AskedContent is the filter of a list that is asked.
type AskedContent struct{ Name, Path string }

// Published is what a publication has come to.
type Published struct {
	Sequence                int64
	Entries                 int64
	Added, Removed, Altered int64         // since the sequence before
	Written                 int64         // octets of objects
	Took                    time.Duration // from the first line to the last file
	Stages                  []Stage
	Eases                   bool // nobody is refused because of it who was not refused before: it is in one stage
	Lifted                  bool // a halt has ended

	again int64 // the sequence that is published again; 0 = none
}

// Publisher writes the files of a channel. It is for one goroutine.
type Publisher struct {
	PublisherOptions
	lock  *durable.LockFile
	last  *Manifest // the newest that was published; nil = none
	after int64     // a number that was used, of what is no manifest of ours; 0 = none

	leastBase int64         // octets of objects that may be earlier files; leastBase, but for tests
	elsewhere bool          // the store is another one than that of last, or an older copy of it: nothing is known to be there
	aged      time.Duration // how much older the last sequence is than it says; 0, but for tests
}

// ErrHalted says that the channel is halted, and nothing is published by itself.
var ErrHalted = errors.New("the channel is halted; blockd publish, or blockd publish --again N, ends that")

// OpenPublisher takes the folder. The error is ErrLocked or of the disk.
func OpenPublisher(o PublisherOptions) (*Publisher, error) {
	p := &Publisher{PublisherOptions: o, leastBase: leastBase}
	for _, folder := range []string{o.Folder, p.path(filesName), p.path(objectsName), p.path(manifestsName)} {
		if err := durable.MakeFolder(folder); err != nil {
			return nil, err
		}
	}
	var err error
	if p.lock, err = durable.WaitLock(p.path(lockName), 10*time.Second, ErrLocked); err != nil {
		return nil, err
	}
	return p, nil
}

// Close gives the folder back.
func (p *Publisher) Close() error { return p.lock.Close() }

func (p *Publisher) path(parts ...string) string {
	return filepath.Join(append([]string{p.Folder}, parts...)...)
}

// catchUp reads what was published last: by this folder, or by another machine with the same key.
func (p *Publisher) catchUp(ctx context.Context) error {
	text, err := os.ReadFile(p.path(manifestFile))
	if err == nil {
		if p.last, err = ParseManifest(text); err != nil {
			return fmt.Errorf("%s: %w", p.path(manifestFile), err)
		}
		if p.last.Channel != p.Channel {
			p.last = nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sequence, err := p.newest(ctx)
	if err != nil {
		return fmt.Errorf("%s: what was published last cannot be read: %w", p.To, err)
	}
	if p.last == nil && sequence > 0 || p.last != nil && sequence > p.last.Sequence {
		return p.adopt(ctx, sequence)
	}
	p.elsewhere = p.last != nil && sequence < p.last.Sequence
	return nil
}

// adopt makes a sequence of the store the last one. One that another key has signed is not ours: its number counts, and nothing else.
func (p *Publisher) adopt(ctx context.Context, sequence int64) (err error) {
	last, err := p.Manifest(ctx, sequence)
	if errors.Is(err, minisign.ErrAnotherKey) || errors.Is(err, ErrMissing) {
		p.after = max(p.after, sequence)
		return nil
	}
	if err == nil {
		p.last = last
	}
	return err
}

// newest is the sequence that the store's latest.json has, or was to have when a publisher was killed; 0 = there is none. It is the one of
// the signature, which is written before it.
func (p *Publisher) newest(ctx context.Context) (int64, error) {
	text, signature, err := p.read(ctx, latestName(p.Channel), maxLatest)
	if errors.Is(err, ErrMissing) && signature == nil {
		signature, err = get(ctx, p.To, latestName(p.Channel)+minisign.Suffix, minisign.MaxSignature)
	}
	if errors.Is(err, ErrMissing) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	signed, err := p.Key.Public().Signature(signature)
	if errors.Is(err, minisign.ErrAnotherKey) { // the key has changed: only the number counts, so that it goes on growing
		l, err := ParseLatest(text)
		if err != nil {
			return 0, err
		}
		return l.Sequence, nil
	}
	if err != nil {
		return 0, err
	}
	number, ok := strings.CutPrefix(signed.Comment, fmt.Sprintf("blockd %s ", p.Channel))
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 1 {
		return 0, fmt.Errorf("it is signed as %q", cut(signed.Comment))
	}
	return n, nil
}

// PublishedFile is the file of LastPublished, which is replaced with each sequence.
func PublishedFile(folder string) string { return filepath.Join(folder, manifestFile) }

// LastPublished is the sequence of a channel that the publisher of a folder has published last; 0 = none. It takes no lock.
func LastPublished(folder, channel string) (int64, error) {
	text, err := os.ReadFile(PublishedFile(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	m, err := ParseManifest(text)
	if err != nil || m.Channel != channel {
		return 0, err
	}
	return m.Sequence, nil
}

func (p *Publisher) read(ctx context.Context, name string, most int64) (text, signature []byte, err error) {
	if text, err = get(ctx, p.To, name, most); err == nil {
		signature, err = get(ctx, p.To, name+minisign.Suffix, minisign.MaxSignature)
	}
	return text, signature, err
}

// Manifest is a sequence that was published: as this folder has kept it, or else as the store has it.
func (p *Publisher) Manifest(ctx context.Context, sequence int64) (*Manifest, error) {
	text, err := os.ReadFile(p.path(manifestName(sequence)))
	if err != nil {
		var signature []byte
		if text, signature, err = p.read(ctx, manifestName(sequence), maxManifest); err != nil {
			return nil, err
		}
		comment, err := minisign.Verify([]minisign.PublicKey{p.Key.Public()}, text, signature)
		if err != nil {
			return nil, fmt.Errorf("sequence %d: %w", sequence, err)
		}
		if comment != sequenceComment(p.Channel, sequence) {
			return nil, fmt.Errorf("sequence %d: it is signed as %q", sequence, cut(comment))
		}
	}
	m, err := ParseManifest(text)
	if err == nil && (m.Sequence != sequence || m.Channel != p.Channel) {
		err = fmt.Errorf("it is sequence %d of the channel %s", m.Sequence, m.Channel)
	}
	return m, err
}

// Publish writes one more sequence. now: for all nodes at once, in one stage. A halt ends with it.
func (p *Publisher) Publish(ctx context.Context, c Content, now bool) (*Published, error) {
	began := time.Now()
	if err := p.catchUp(ctx); err != nil {
		return nil, err
	}
	m, told, err := p.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	err = p.publish(ctx, m, told, now)
	told.Took = time.Since(began)
	if err == nil {
		err = p.release()
	}
	return told, err
}

// PublishChanges is Publish for a program that runs by itself: it publishes if there is anything new, or the last sequence grows old, and
// returns nil if not. The error is ErrHalted while the channel is halted, and ErrStands while what was published again stands.
func (p *Publisher) PublishChanges(ctx context.Context, c Content) (*Published, error) {
	if p.Halted() {
		return nil, errors.Join(p.Assert(ctx), ErrHalted)
	}
	if err := p.catchUp(ctx); err != nil {
		return nil, err
	}
	if Stands(p.Folder) && p.last != nil {
		if p.aging() {
			return p.renewed(ctx, &Published{Entries: p.last.entries(), again: p.last.Again()})
		}
		return nil, ErrStands
	}
	m, told, err := p.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	if p.last != nil && m.sameAs(p.last) {
		if p.aging() {
			return p.renewed(ctx, told)
		}
		return nil, nil
	}
	return told, p.publish(ctx, m, told, false)
}

// sameAs reports whether two manifests have the same lists.
func (m *Manifest) sameAs(other *Manifest) bool {
	same := slices.EqualFunc(m.Lists, other.Lists, func(a, b List) bool {
		return a.settings() == b.settings() && slices.EqualFunc(a.Shards, b.Shards, func(a, b Shard) bool { return a.Plain == b.Plain })
	})
	return same && slices.Equal(m.Ask, other.Ask)
}

// Again writes one more sequence with what another one had. It stands until Publish: PublishChanges does not put what the lists have in its
// place, since that may be what a person has taken back.
func (p *Publisher) Again(ctx context.Context, sequence int64, now bool) (*Published, error) {
	if err := p.catchUp(ctx); err != nil {
		return nil, err
	}
	in, err := p.To.Get(ctx, manifestName(sequence), 0)
	var old *Manifest
	if err == nil { // so its objects are there too
		in.Close()
		old, err = p.Manifest(ctx, sequence)
	}
	if errors.Is(err, ErrMissing) {
		return nil, fmt.Errorf("sequence %d is not kept (publish.keep = %d), or was never published", sequence, p.Keep)
	}
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(p.path(againFile), nil, 0o640); err != nil {
		return nil, err
	}
	m, told := *old, &Published{Entries: old.entries(), again: sequence}
	return told, p.publish(ctx, &m, told, now)
}

// publish gives a manifest its number, its times and its signature, and makes it the newest of the channel.
func (p *Publisher) publish(ctx context.Context, m *Manifest, told *Published, now bool) error {
	before := p.last
	m.Blockd, m.Channel, m.Previous, m.Sequence = version, p.Channel, 0, 1
	if before != nil {
		m.Previous, m.Sequence = before.Sequence, before.Sequence+1
	}
	m.Sequence = max(m.Sequence, p.after+1)
	if err := p.unused(ctx, m); err != nil {
		return err
	}
	at := time.Now()
	m.Created, m.Expires = at.Unix(), at.Add(Life).Unix()
	m.Publisher.Version = p.Version[:min(len(p.Version), maxText-len(againMark)-20)]
	if told.again > 0 {
		m.Publisher.Version += againMark + strconv.FormatInt(told.again, 10)
	}
	m.Stages = stagesFrom(p.Stages, at, now || told.Eases)
	if err := m.validate(); err != nil {
		return fmt.Errorf("not published: %w", err)
	}
	text := encode(m)
	if len(text) > maxManifest {
		return fmt.Errorf("not published: the manifest has %d octets, at most %d", len(text), maxManifest)
	}
	comment := sequenceComment(p.Channel, m.Sequence)
	name := manifestName(m.Sequence)
	if err := p.put(ctx, name, text, comment, false); err != nil {
		return err
	}
	// From here on the number is used, whatever happens.
	if err := durable.WriteFile(p.path(name), text, 0o640); err != nil {
		return err
	}
	latest := encode(m.Latest(text))
	if err := p.put(ctx, latestName(p.Channel), latest, comment, true); err != nil {
		return err
	}
	if err := durable.WriteFile(p.path(manifestFile), text, 0o640); err != nil {
		return err
	}
	p.last = m
	told.Sequence, told.Stages = m.Sequence, m.Stages
	if p.Halted() {
		if err := p.lift(ctx); err != nil {
			return fmt.Errorf("sequence %d is published, but the halt stays: %w", m.Sequence, err)
		}
		told.Lifted = true
	}
	p.prune(ctx)
	return nil
}

// stagesFrom are the stages of a publication.
func stagesFrom(planned []PlannedStage, at time.Time, now bool) (all []Stage) {
	if !now {
		for _, s := range planned {
			if s.Share < 100 {
				all = append(all, Stage{s.Share, at.Unix()})
				at = at.Add(s.For)
			}
		}
	}
	return append(all, Stage{100, at.Unix()})
}

// unused finds a number that no manifest of the store has: another channel may have used it, or a publisher that was killed.
func (p *Publisher) unused(ctx context.Context, m *Manifest) error {
	const most = 10_000
	for range most {
		in, err := p.To.Get(ctx, manifestName(m.Sequence), 0)
		if errors.Is(err, ErrMissing) {
			return nil
		}
		if err != nil {
			return err
		}
		in.Close()
		m.Sequence++
	}
	return fmt.Errorf("%s has manifests of %d numbers from %d on", p.To, most, m.Sequence-most)
}

// put signs and writes a file. Its signature comes first: a node that reads the file between the two reads both again.
func (p *Publisher) put(ctx context.Context, name string, text []byte, comment string, changes bool) error {
	signature := p.Key.Sign(text, comment)
	if err := p.To.Put(ctx, name+minisign.Suffix, bytes.NewReader(signature), int64(len(signature)), changes); err != nil {
		return err
	}
	return p.To.Put(ctx, name, bytes.NewReader(text), int64(len(text)), changes)
}
