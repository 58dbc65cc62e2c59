package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"blockd/lists"
)

const (
	// maxLatest and maxManifest bound what is read of these files, in octets.
	maxLatest   = 64 << 10
	maxManifest = 8 << 20

	version = 1

	shardCount = lists.EntryShards

	maxLists      = 1000
	maxStages     = 16
	maxDeltas     = 24      // of a shard
	maxShard      = 1 << 30 // octets, packed or not
	maxEntries    = 1_000_000_000
	maxSequence   = 1<<53 - 1       // what every JSON reader keeps exactly
	maxTime       = 253_402_300_799 // the end of the year 9999
	maxText       = 200
	objectEnding  = ".zst"
	formatEntries = "entries"
)

// Manifest says what a sequence of a channel holds. It is immutable, and its octets are signed.
type Manifest struct {
	Blockd    int     `json:"blockd"` // of the form: 1
	Channel   string  `json:"channel"`
	Sequence  int64   `json:"sequence"`
	Created   int64   `json:"created"`  // Unix seconds, as all times here
	Expires   int64   `json:"expires"`  // nobody begins with it from then on
	Previous  int64   `json:"previous"` // the sequence before; 0 = there is none
	Stages    []Stage `json:"stages"`
	Lists     []List  `json:"lists"`
	Ask       []Asked `json:"ask"`
	Publisher Maker   `json:"publisher"`
}

// Stage is from when on which share of nodes takes a sequence. The last one is of all.
type Stage struct {
	Share int   `json:"share"` // percent
	From  int64 `json:"from"`
}

// List is a list of a manifest, in the words of [[list]].
type List struct {
	Name       string  `json:"name"`
	Action     string  `json:"action"`
	OnMatch    string  `json:"on_match"`
	Mode       string  `json:"mode"`
	Format     string  `json:"format"` // "entries"
	Subdomains *bool   `json:"subdomains"`
	Patterns   bool    `json:"patterns"` // always false: the format has none
	Entries    int64   `json:"entries"`
	Shards     []Shard `json:"shards"` // shardCount

	// What a list of the publisher says besides, in the words of [[list]]; left out where it says nothing of it.
	Exceptions string   `json:"exceptions,omitempty"`
	Match      []string `json:"match,omitempty"`
	Require    []string `json:"require,omitempty"`
	Discard    bool     `json:"discard,omitempty"`
	Tarpit     int64    `json:"tarpit,omitempty"` // milliseconds
	Text       string   `json:"text,omitempty"`
	Contact    string   `json:"contact,omitempty"`

	PerRecipient bool `json:"per_recipient,omitempty"` // each entry has an owner
	NoOverride   bool `json:"no_override,omitempty"`
}

// settings are a list without its entries.
func (l List) settings() string {
	l.Entries, l.Shards = 0, nil
	return string(encode(l))
}

// Shard is one file of a list.
type Shard struct {
	Plain   string  `json:"plain"`   // SHA-256 of the file
	Octets  int64   `json:"octets"`  // of the file
	Entries int64   `json:"entries"` // in it
	Object  string  `json:"object"`  // the file, packed, or that of Base
	Size    int64   `json:"size"`    // of Object
	Deltas  []Delta `json:"deltas"`  // that against the last sequence first; never null

	// Base says that Object is an earlier file of the shard, and one of Deltas makes this one of it.
	Base *Base `json:"base,omitempty"`
}

// Base is an earlier file of a shard.
type Base struct {
	Plain  string `json:"plain"`
	Octets int64  `json:"octets"`
}

// fromBase is the delta from Base, which a valid shard has.
func (s *Shard) fromBase() Delta {
	for _, d := range s.Deltas {
		if d.From == s.Base.Plain {
			return d
		}
	}
	return Delta{}
}

// Delta is what makes the shard of another one.
type Delta struct {
	From   string `json:"from"` // its Plain
	Object string `json:"object"`
	Size   int64  `json:"size"`
}

// Asked is the filter of a list that stays in its store.
type Asked struct {
	Name   string `json:"name"`
	Filter Filter `json:"filter"`
}

// Filter is the file of a filter, packed.
type Filter struct {
	Object string `json:"object"`
	Key    string `json:"key"` // SHA-256 of the file
	Octets int64  `json:"octets"`
	Size   int64  `json:"size"`
}

// Maker is who has made a manifest.
type Maker struct {
	Version string `json:"version"`
	Gate    Gate   `json:"gate"`
}

// Gate is what the publisher's gate had to say against the lists that it published.
type Gate struct {
	Recent    int `json:"recent"`    // entries held back because they would refuse recent senders
	Protected int `json:"protected"` // lines refused because they would refuse a protected domain as a whole
}

// Latest is the newest sequence of a channel: small, since it is read each minute.
type Latest struct {
	Blockd   int     `json:"blockd"`
	Channel  string  `json:"channel"`
	Sequence int64   `json:"sequence"`
	Created  int64   `json:"created"`
	Expires  int64   `json:"expires"`
	Stages   []Stage `json:"stages"`
	Manifest string  `json:"manifest"` // SHA-256 of manifests/SEQUENCE.json
	Size     int64   `json:"size"`     // of that file
}

// Pin stops a channel at a sequence: the brake of a fleet.
type Pin struct {
	Sequence int64 `json:"sequence"`
	Until    int64 `json:"until"`
}

// Latest is what latest.json says of a manifest with these octets.
func (m *Manifest) Latest(octets []byte) Latest {
	return Latest{m.Blockd, m.Channel, m.Sequence, m.Created, m.Expires, m.Stages, sumOf(octets), int64(len(octets))}
}

// encode is the one way to write v: without blanks, in the order of the fields.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // only texts, numbers and lists of them
	}
	return b.Bytes()
}

// decode reads what encode writes, and nothing else: a member that this version does not know may mean that less is to be refused.
func decode(text []byte, most int, v any) error {
	if len(text) > most {
		return fmt.Errorf("%d octets, at most %d", len(text), most)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("no JSON of this version: %w", err)
	}
	if !bytes.Equal(encode(v), text) {
		return errors.New("not written as blockd writes it")
	}
	return nil
}

// ParseManifest reads a manifest, and judges all bounds of it. No error shows more than 200 octets of it.
func ParseManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := decode(text, maxManifest, m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// ParseLatest reads latest.json.
func ParseLatest(text []byte) (*Latest, error) {
	l := &Latest{}
	err := decode(text, maxLatest, l)
	if err == nil {
		err = validateHead(l.Blockd, l.Channel, l.Sequence, l.Created, l.Expires, l.Stages)
	}
	if err == nil && (!isSum(l.Manifest) || l.Size < 1 || l.Size > maxManifest) {
		err = errors.New("want the SHA-256 and the size of a manifest")
	}
	if err != nil {
		return nil, fmt.Errorf("latest: %w", err)
	}
	return l, nil
}

// ParsePin reads pin.json.
func ParsePin(text []byte) (*Pin, error) {
	p := &Pin{}
	err := decode(text, maxLatest, p)
	if err == nil && (p.Sequence < 1 || p.Sequence > maxSequence || p.Until < 1 || p.Until > maxTime) {
		err = errors.New("want a sequence and a time")
	}
	if err != nil {
		return nil, fmt.Errorf("pin: %w", err)
	}
	return p, nil
}

var (
	channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	listName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// IsChannel reports whether a text may name a channel.
func IsChannel(text string) bool { return channelName.MatchString(text) }

func validateHead(blockd int, channel string, sequence, created, expires int64, stages []Stage) error {
	switch {
	case blockd != version:
		return fmt.Errorf("form %d, and this version of blockd knows form %d", blockd, version)
	case !IsChannel(channel):
		return fmt.Errorf("channel %q", cut(channel))
	case sequence < 1 || sequence > maxSequence:
		return fmt.Errorf("sequence %d", sequence)
	case created < 1 || expires > maxTime || expires <= created:
		return fmt.Errorf("created %d, expires %d", created, expires)
	case len(stages) < 1 || len(stages) > maxStages || stages[len(stages)-1].Share != 100:
		return fmt.Errorf("want 1 to %d stages, the last with a share of 100", maxStages)
	}
	for i, s := range stages {
		if s.Share < 1 || s.Share > 100 || s.From < 1 || s.From > maxTime || i > 0 && (s.Share <= stages[i-1].Share || s.From < stages[i-1].From) {
			return fmt.Errorf("stage %d: want shares that grow, and times in order", i+1)
		}
	}
	return nil
}

func (m *Manifest) validate() error {
	if err := validateHead(m.Blockd, m.Channel, m.Sequence, m.Created, m.Expires, m.Stages); err != nil {
		return err
	}
	if m.Previous < 0 || m.Previous >= m.Sequence {
		return fmt.Errorf("previous %d of sequence %d", m.Previous, m.Sequence)
	}
	if m.Lists == nil || m.Ask == nil || len(m.Lists)+len(m.Ask) > maxLists {
		return fmt.Errorf("want lists and ask, at most %d together", maxLists)
	}
	names := map[string]bool{}
	for i := range m.Lists {
		l := &m.Lists[i]
		if !listName.MatchString(l.Name) || names[l.Name] {
			return fmt.Errorf("list %d: name %q", i+1, cut(l.Name))
		}
		names[l.Name] = true
		if err := l.validate(); err != nil {
			return fmt.Errorf("list %s: %w", l.Name, err)
		}
	}
	for i, a := range m.Ask {
		if !listName.MatchString(a.Name) || names[a.Name] {
			return fmt.Errorf("asked list %d: name %q", i+1, cut(a.Name))
		}
		names[a.Name] = true
		if f := a.Filter; !isObject(f.Object) || !isSum(f.Key) || !isSize(f.Octets) || !isSize(f.Size) {
			return fmt.Errorf("asked list %s: its filter", a.Name)
		}
	}
	if len(m.Publisher.Version) > maxText || m.Publisher.Gate.Recent < 0 || m.Publisher.Gate.Protected < 0 {
		return errors.New("publisher")
	}
	return nil
}

func (l *List) validate() error {
	switch {
	case l.Action != "block" && l.Action != "allow":
		return fmt.Errorf("action %q", cut(l.Action))
	case !slices.Contains([]string{"refuse", "tempfail", "quarantine", "tag"}, l.OnMatch):
		return fmt.Errorf("on_match %q", cut(l.OnMatch))
	case l.Action == "allow" && l.OnMatch != "refuse":
		return errors.New("on_match of a list that allows")
	case l.Mode != "enforce" && l.Mode != "shadow":
		return fmt.Errorf("mode %q", cut(l.Mode))
	case l.Format != formatEntries:
		return fmt.Errorf("format %q", cut(l.Format))
	case l.Patterns:
		return errors.New("patterns, which the format entries has not")
	case len(l.Shards) != shardCount:
		return fmt.Errorf("%d shards, want %d", len(l.Shards), shardCount)
	}
	sum := int64(0)
	for i, s := range l.Shards {
		if !isSum(s.Plain) || !isObject(s.Object) || !isSize(s.Octets) || !isSize(s.Size) || s.Entries < 0 || s.Entries > s.Octets || s.Deltas == nil || len(s.Deltas) > maxDeltas {
			return fmt.Errorf("shard %d", i)
		}
		for _, d := range s.Deltas {
			if !isSum(d.From) || d.From == s.Plain || !isObject(d.Object) || !isSize(d.Size) {
				return fmt.Errorf("shard %d: a delta", i)
			}
		}
		if s.Base != nil && (!isSum(s.Base.Plain) || !isSize(s.Base.Octets) || s.fromBase() == Delta{}) {
			return fmt.Errorf("shard %d: its base", i)
		}
		sum += s.Entries
	}
	if l.Entries != sum || sum > maxEntries {
		return fmt.Errorf("%d entries, and its shards have %d", l.Entries, sum)
	}
	return nil
}

func isSize(n int64) bool { return n >= 1 && n <= maxShard }

// isSum reports whether a text is a SHA-256 as this package writes it.
func isSum(text string) bool {
	if len(text) != 64 {
		return false
	}
	raw, err := hex.DecodeString(text)
	return err == nil && hex.EncodeToString(raw) == text
}

// isObject reports whether a text is the name of an object.
func isObject(text string) bool {
	sum, ok := strings.CutSuffix(text, objectEnding)
	return ok && isSum(sum)
}

// cut bounds a text of others that is shown.
func cut(text string) string { return text[:min(len(text), maxText)] }

// entries is the number of them in all lists.
func (m *Manifest) entries() (n int64) {
	for _, l := range m.Lists {
		n += l.Entries
	}
	return n
}
