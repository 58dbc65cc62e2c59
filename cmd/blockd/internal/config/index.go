package config

import (
	"fmt"
	"slices"

	"blockd/mail/digest"
)

// Index is [index]: the compiled lists, when their files are looked at, and the gate, which says
// what a list may not hold and how far it may change at once. A list that breaks a bound of the
// gate is refused whole, and what served before serves on.
type Index struct {
	// The file that all lists are compiled into. It is written anew beside the old one whenever a list has
	// changed, and then put in its place.
	Path string `toml:"path"`
	// A list is read when it has been left alone for this time.
	Quiet Duration `toml:"quiet" want:"10ms to 1m"`
	// How often all list files are looked at, in case the system's own notice of a change is missing
	// (network file systems).
	Poll Duration `toml:"poll" want:"1s to 24h"`
	// The memory for the entries while the lists are compiled. The rest goes to a temporary file beside the
	// index. "auto" is a quarter of what the machine or the control group allows, 448 MiB at most. More
	// than half of that is never taken.
	Memory Memory `toml:"memory" want:"auto or 1 MiB to 1 TiB"`
	// Digests by which addresses in lists can be asked for, for zones of kind "hash": "md5", "sha1",
	// "sha256". Each makes the index larger by about its size (docs/operation.md).
	Hashes []string `toml:"hashes"`
	// Domains that no entry may block as a whole, besides those of big mailbox providers (blockd config
	// --defaults prints them) and this server's own. Such an entry is refused; single addresses there may
	// be listed.
	Protected []string `toml:"protected"`
	// A list with more entries for protected domains is refused: it is one of providers, or poisoned.
	MaxProtected int `toml:"max_protected" want:"0 to 1000000"`
	// The share of a file's lines that may be refused; the rule begins at 100 lines, and lines that are
	// unsupported do not count.
	MaxBadRatio float64 `toml:"max_bad_ratio" want:"0 to 1"`
	// The share of its entries that a list must keep in one load; the rule begins at 100 entries. An
	// intended change passes once with blockd compile --accept.
	MaxShrink float64 `toml:"max_shrink" want:"0 to 1"`
	// The factor by which a list may grow in one load; the rule begins at 1,000 entries.
	MaxGrow float64 `toml:"max_grow" want:"1 to 1000000"`
	// Entries such as "shop" or "com.tr" block all names below; without it they are refused. "com" is
	// refused in either case: protected domains are below it.
	AllowPublicSuffix bool `toml:"allow_public_suffix"`
	// A changed file that is older is refused, such as a backup that was put back, and a file that serves
	// and gets older is reported. "0s" is any age. For a remote list: the time since its server has last
	// confirmed it.
	MaxAge Duration `toml:"max_age" want:"0s or 1m to 3650d"`
	// The number of remembered senders of messages that the next server has accepted, through restarts; 0
	// is none. A domain counts once a day, and a client network (/24 or /48) for three domains a day.
	Recent int `toml:"recent" want:"0 to 1000000"`
	// The share of these senders that a list may newly refuse in one load; the rule begins at 100 domains.
	// Beyond it the entries that would refuse them are held back (blockd lint --held); beyond a tenth the
	// list is refused.
	MaxRecentBlocked float64 `toml:"max_recent_blocked" want:"0 to 1"`
	// The share of the senders refused in the last 7 days that one load of a list may let in by new
	// exceptions; the rule begins at 20 senders. Blocks that go count nowhere.
	MaxFreed float64 `toml:"max_freed" want:"0 to 1"`
	// How many of the contents that a list had last are kept, that which serves included, for blockd diff and
	// blockd rollback (docs/undo.md).
	Keep int `toml:"keep" want:"1 to 1000"`
	// The room for all that is kept. The oldest goes first; what serves, or waits to be adopted, stays.
	KeepBytes Octets `toml:"keep_bytes" want:"1 MiB to 1 TiB"`
}

func (x Index) validate(f *Faults) {
	if x.Path == "" {
		f.add("index.path", "want the path of the index file")
	}
	f.domains("index.protected", x.Protected)
	for i, word := range x.Hashes {
		at := fmt.Sprintf("index.hashes[%d]", i)
		if _, err := digest.Named(word); err != nil {
			f.add(at, "%v", err)
		} else if slices.Contains(x.Hashes[:i], word) {
			f.add(at, "%q stands there twice", word)
		}
	}
}

// Digests are the words of hashes; without faults only.
func (x Index) Digests() (s digest.Set) {
	for _, word := range x.Hashes {
		a, _ := digest.Named(word)
		s |= digest.SetOf(a)
	}
	return s
}
