package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"blockd/internal/durable"
	"blockd/internal/minisign"
	"blockd/internal/stamp"
)

// The names in a node's folder.
const (
	stateName     = "state"       // State
	lockName      = "lock"        // taken while a Node runs
	currentName   = "current"     // a link to the generation in force
	freshName     = "current.new" // the link before it is renamed
	manifestsName = "manifests"   // of generations that are kept, and their signatures
	objectsName   = "objects"     // that a relay gives to others
	filesName     = "files"       // shards, by the SHA-256 of what is in them
	latestFile    = "latest.json"
	pinFile       = "pin.json"
	ownPinName    = "pin"           // of SetPin
	fetchName     = "fetch"         // objects that are being fetched
	listsName     = "lists"         // in a generation: a folder for each list
	filtersName   = "filters"       // in a generation: NAME.bdf
	manifestFile  = "manifest.json" // in a generation
)

// ErrLocked reports that another process follows the same channel into the same folder.
var ErrLocked = errors.New("another process keeps the snapshots of this folder")

// Options of a Node.
type Options struct {
	Folder  string // it is made if need be; nothing else may be in it
	Channel string
	Node    string               // its name, for its turn
	Canary  bool                 // it is among the first
	Keys    []minisign.PublicKey // one of them has to sign
	From    Store
	Relays  []Store // asked before From for objects, and after it for the rest
	Every   time.Duration
	MaxAge  time.Duration // of what serves, before Remarks says so; 0 = any
	Pin     int64         // the sequence of the configuration; 0 = none
	Built   time.Time     // when this program was made: an earlier clock is wrong
	Serves  bool          // objects are kept for other nodes

	// Check judges a manifest before anything of it is fetched; nil = all is well. Its error says why this node cannot use it.
	Check func(*Manifest) error
	// Changed is called when another sequence is in force, from the goroutine that has taken it. It must not wait.
	Changed func(*Manifest)
	Log     *slog.Logger
}

// Node follows a channel. Run and Once are for one goroutine, the other methods for any.
type Node struct {
	Options
	counters counters

	// What follows belongs to the goroutine of Run.
	lock     *durable.LockFile
	state    State
	current  *Manifest               // in force; nil = there is none
	latest   *Latest                 // verified; nil = none yet
	pin      *Pin                    // of the channel, in force; nil = none
	unpinned int                     // looks in a row at which the store had no pin any more
	local    int64                   // sequence of the file "pin"; 0 = none
	told     time.Time               // when the log last said what is wrong
	step     func(what string) error // of tests: before each step on the disk; an error ends it there

	asked   chan struct{}      // of Now
	fetches singleflight.Group // by object

	linked map[string]os.FileInfo // folders of links in force, as they were when all their links were right

	wholeMu sync.Mutex
	whole   map[string]os.FileInfo // files that were read and are what their names say, as they were then

	mu     sync.Mutex
	status Status
}

// New returns a node. It opens nothing.
func New(o Options, reg prometheus.Registerer) *Node {
	n := &Node{Options: o, asked: make(chan struct{}, 1), whole: map[string]os.FileInfo{}, linked: map[string]os.FileInfo{}, step: func(string) error { return nil }}
	n.counters.make()
	if reg != nil {
		reg.MustRegister(collector{n})
	}
	return n
}

// Open takes the folder, and what is in force there. The error is ErrLocked or of the disk.
func (n *Node) Open() (err error) {
	for _, folder := range []string{n.Folder, n.path(manifestsName), n.path(objectsName), n.path(filesName), n.path(fetchName)} {
		if err := durable.MakeFolder(folder); err != nil {
			return err
		}
	}
	if n.lock, err = durable.Lock(n.path(lockName), ErrLocked); err != nil {
		return err
	}
	if err := n.load(); err != nil {
		n.Close()
		return err
	}
	return nil
}

// Close gives the folder back. What is in force stays so.
func (n *Node) Close() error {
	if n.lock == nil {
		return nil
	}
	err := n.lock.Close()
	n.lock = nil
	return err
}

func (n *Node) path(parts ...string) string {
	return filepath.Join(append([]string{n.Folder}, parts...)...)
}

func (n *Node) load() (err error) {
	if n.state, err = readState(n.path(stateName), n.Channel); errors.Is(err, ErrDamaged) {
		n.state, err = n.stateAnew(err)
	}
	if err != nil {
		return err
	}
	if n.current, err = Current(n.Folder); errors.Is(err, ErrDamaged) {
		n.Log.Error("the manifest in force is damaged, and is fetched again with what belongs to it", slog.String("channel", n.Channel), slog.String("error", oneLine(err)))
		n.current, err = nil, nil
	}
	if err != nil {
		return err
	}
	if _, err := n.removeDamaged(); err != nil {
		return err
	}
	// What cannot be used any more, such as of another channel or key, is fetched anew.
	if f, err := readSigned(n.path(latestFile)); err == nil {
		if l, err := n.readLatest(f); err == nil && n.state.Highest == l.Sequence && n.state.Digest == l.Manifest {
			n.latest = l
		}
	}
	if f, err := readSigned(n.path(pinFile)); err == nil && n.state.PinEnds > time.Now().Unix() {
		if p, err := n.readPin(f); err == nil && p.Until == n.state.PinEnds {
			n.pin = p
		}
	}
	n.local = readPinFile(n.Folder)
	n.note(nil)
	return nil
}

// stateAnew is a state in the place of a damaged one: of the newest sequence that the keys have signed on this disk,
// so that no older one is taken. Without such a sequence a person has to say that the channel is begun anew.
func (n *Node) stateAnew(damage error) (State, error) {
	s := State{Blockd: version, Channel: n.Channel}
	path := n.path(stateName)
	f, err := readSigned(n.path(latestFile))
	if err == nil {
		var l *Latest
		if l, err = n.readLatest(f); err == nil {
			s.Highest, s.Digest = l.Sequence, l.Manifest
		}
	}
	if err != nil {
		return s, fmt.Errorf("%w; nothing here is signed from which it could be made: mv %s %[2]s.damaged, and blockd takes what the channel has now", damage, path)
	}
	if err := os.Rename(path, path+".damaged"); err != nil {
		return s, err
	}
	n.Log.Error("the state of the node is damaged, and is made anew of the newest sequence that is here", slog.String("channel", n.Channel), slog.Int64("sequence", s.Highest), slog.String("error", oneLine(damage)))
	return s, s.write(path)
}

// Current is the manifest in force in the folder of a node; nil if there is none.
func Current(folder string) (*Manifest, error) {
	path := filepath.Join(folder, currentName, manifestFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w; remove %s and blockd fetches all of it anew", path, ErrDamaged, err, folder)
	}
	return m, nil
}

// ListFiles is the pattern of the files of a list in force, as the path of a [[list]].
func ListFiles(folder, list string) string {
	return filepath.Join(folder, currentName, listsName, list, "*.ent")
}

// Shards returns a function that names the files of a list in force as the manifest does, whatever is in its folder;
// false where there was no manifest yet, or it has no such list. It reads the manifest when that is another one; what
// cannot be read is as it was. Any goroutine may call it.
func Shards(folder, list string) func() (paths []string, ok bool) {
	var mu sync.Mutex
	var seen os.FileInfo
	var paths []string
	return func() ([]string, bool) {
		now, err := os.Stat(filepath.Join(folder, currentName, manifestFile))
		mu.Lock()
		defer mu.Unlock()
		if err != nil || stamp.Same(seen, now) {
			return paths, len(paths) > 0
		}
		if m, err := Current(folder); err == nil && m != nil {
			seen, paths = now, nil
			for i := range m.Lists {
				for k := range m.Lists[i].Shards {
					if m.Lists[i].Name == list {
						paths = append(paths, filepath.Join(folder, currentName, shardName(list, k)))
					}
				}
			}
		}
		return paths, len(paths) > 0
	}
}

// shardName is where the link to a shard is, in the folder of its sequence.
func shardName(list string, shard int) string {
	return filepath.Join(listsName, list, fmt.Sprintf("%02x.ent", shard))
}

// links are the links of a sequence's folder, with what they lead to.
func (m *Manifest) links() map[string]string {
	all := map[string]string{}
	for i := range m.Lists {
		for k, s := range m.Lists[i].Shards {
			all[shardName(m.Lists[i].Name, k)] = filepath.Join("..", "..", "..", filesName, s.Plain)
		}
	}
	for _, a := range m.Ask {
		all[filepath.Join(filtersName, a.Name+".bdf")] = filepath.Join("..", "..", filesName, a.Filter.Key)
	}
	return all
}

// FilterFile is the file of the filter of a list that is asked.
func FilterFile(folder, list string) string {
	return filepath.Join(folder, currentName, filtersName, list+".bdf")
}

// Run follows the channel until ctx ends, and then returns nil. It opens the folder if that is not open, and closes it. It may be run again. A
// nil Node follows nothing.
func (n *Node) Run(ctx context.Context) error {
	if n == nil {
		return nil
	}
	if n.lock == nil {
		if err := n.Open(); err != nil {
			return err
		}
	}
	defer n.Close()
	for ctx.Err() == nil {
		err := n.Once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		n.report(err)
		wait := time.Duration(float64(n.Every) * (0.9 + 0.2*rand.Float64())) // so that a thousand nodes do not come at once
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-n.asked:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// Now asks Run to look at once. It does not wait.
func (n *Node) Now() {
	if n == nil {
		return
	}
	select {
	case n.asked <- struct{}{}:
	default:
	}
}

// troubles is how often the log says at most that something is wrong.
const troubles = 10 * time.Minute

func (n *Node) report(err error) {
	switch {
	case err == nil && !n.told.IsZero():
		n.told = time.Time{}
		n.Log.Info("snapshots are followed again", slog.String("channel", n.Channel))
	case err != nil && (n.told.IsZero() || time.Since(n.told) >= troubles):
		n.told = time.Now()
		n.Log.Warn("snapshot not taken", slog.String("channel", n.Channel), slog.String("reason", string(reasonOf(err))),
			slog.String("error", oneLine(err)), slog.Int64("serves", n.Status().Sequence))
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Once looks at the store, and takes what there is to take. After an error what was in force still is.
func (n *Node) Once(ctx context.Context) error { return n.At(ctx, time.Now()) }

// At is Once by another clock than the machine's, for simulations.
func (n *Node) At(ctx context.Context, now time.Time) error {
	n.local = readPinFile(n.Folder)
	err := n.clock(now)
	if err == nil {
		err = n.look(ctx, now)
	}
	if healed := n.heal(ctx); err == nil {
		err = healed
	}
	if taken := n.take(ctx, now); err == nil { // what was seen before may have its turn now, whatever the store says
		err = taken
	}
	if err != nil && ctx.Err() == nil {
		n.counters.refused(reasonOf(err))
	}
	before := n.Status()
	n.note(err)
	if now := n.Status(); now.Chosen && !before.Chosen && now.Sequence > 0 && n.Changed != nil {
		n.Changed(n.current) // it is another one for the gate
	}
	return err
}

func (n *Node) clock(now time.Time) error {
	if now.Before(n.Built) {
		return refuse(Clock, "this machine says that it is %s, before this program was made: set its clock", now.UTC().Format(time.DateTime))
	}
	return nil
}

// look reads latest.json and pin.json, from the first store that has something true.
func (n *Node) look(ctx context.Context, now time.Time) error {
	var faults []error
	for _, s := range append([]Store{n.From}, n.Relays...) {
		err := errors.Join(n.lookAt(ctx, s, now), n.lookForPin(ctx, s, now))
		if err == nil {
			n.mu.Lock()
			n.status.Confirmed = now
			n.mu.Unlock()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		faults = append(faults, fmt.Errorf("%s: %w", s, err))
	}
	return worst(faults)
}
