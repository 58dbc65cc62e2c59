package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"blockd/index"
	"blockd/internal/spelling"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/reply"
	"blockd/policy/verdict"
)

// List is [[list]], one table a list; all are served together. Between blocks the most specific entry
// decides.
type List struct {
	// The name in the refusal: letters, digits and . _ -, at most 64.
	Name string `toml:"name"`
	// A file or a glob; gzip is recognised. For a list with a url, the one file for its copy; with a source its
	// copy is in the folder PATH.d, or without a path in INDEX.mirror/NAME beside the index.
	Path string `toml:"path"`
	// What a line means: plain, hosts, adblock, postfix and others (docs/lists.md, 6), some with an
	// argument (csv:COLUMN, csv:COLUMN,SCORE>=N, json:PATH). "auto" guesses, and is refused if two formats
	// fit.
	Format string `toml:"format"`
	// What its entries do.
	Action string `toml:"action" want:"block|allow"`
	// Whether a bare domain covers the names below it; without it, what the format's own manual says.
	Subdomains *bool `toml:"subdomains,omitempty"`
	// Globs and regular expressions are entries (docs/lists.md, 2); without it such lines are refused.
	Patterns bool `toml:"patterns"`
	// Each entry has an owner, a mailbox or a domain, and counts for mail to him alone (docs/recipients.md). The format is
	// csv, json or entries, with the owner in each line, or path is a folder with one file for each owner.
	PerRecipient bool `toml:"per_recipient"`
	// What a recipient's owner allows does not lift what this list blocks.
	NoOverride bool `toml:"no_override"`
	// With "shadow", matches are logged and counted, and nothing is refused.
	Mode string `toml:"mode" want:"enforce|shadow"`
	// A note for the log, the history and blockd check, for entries without one of their own; at most 400
	// octets.
	Reason string `toml:"reason"`
	// Be ready even if the file has never been there.
	Optional bool `toml:"optional"`
	// A list that had entries may become empty.
	AllowEmpty bool `toml:"allow_empty"`
	// The share of senders that its blocks count for, by their registered domains; for the rest it is in shadow mode, but for
	// its exceptions (docs/lists.md, 4).
	Percent *float64 `toml:"percent,omitempty" want:"0.01 to 100"`
	// What a blocking entry leads to: 550, 451, the message is set aside (smtp.quarantine; at the milter,
	// the mail server holds it), or it is passed on with a header field that names the list.
	OnMatch string `toml:"on_match" want:"refuse|tempfail|quarantine|tag"`
	// The addresses that the list checks: "envelope", and in the header "from", "reply-to" and
	// "return-path", which the SMTP filter and the milter read.
	Match []string `toml:"match"`
	// The time that the answer to such a match is held back. At most a sixteenth of smtp.max_connections
	// wait so; beyond them answers come at once.
	Tarpit Duration `toml:"tarpit" want:"0s to 5m"`
	// A DISCARD entry drops the message at a door that can (a milter); else it counts as a block.
	Discard bool `toml:"discard"`
	// What the exceptions of a list that blocks lift: what the same list blocks, what every list blocks, or
	// nothing. Those of a list with action = "allow" reach all lists.
	Exceptions string `toml:"exceptions" want:"own|all|none"`
	// What refused clients read instead of the standard words, perhaps after codes ("554 5.7.1 …").
	// %sender, %list, %reason, %ref and %contact are filled in, %% is a percent sign. The text of an entry
	// of Postfix, Sendmail or Exim is used instead of it.
	Text string `toml:"text,omitempty"`
	// Instead of refusal.contact.
	Contact string `toml:"contact,omitempty"`
	// The list's page, an address that begins with https://, http:// or mailto:, for people who want to know about it, instead of what
	// its file says.
	Homepage string `toml:"homepage,omitempty"`
	// Where to complain about the list: an address as homepage has it.
	Complaints string `toml:"complaints,omitempty"`
	// The licence of the list, a name or a line, at most 200 octets.
	Licence string `toml:"licence,omitempty"`
	// The proof that its allow entries need, any one of "client", "auth", "spf", "dkim" (docs/auth.md);
	// without it they are believed.
	Require []string `toml:"require,omitempty"`
	// Protected domains that this list may block as a whole, each as the entry writes it, and networks of one's own,
	// clients in which it may block: ["mail.example", "10.0.0.0/8"].
	Force []string `toml:"force,omitempty"`
	// More domains that this list may not block as a whole.
	Protected []string `toml:"protected,omitempty"`
	// As in [index], for this list.
	MaxProtected *int `toml:"max_protected,omitempty" want:"0 to 1000000"`
	// As in [index], for this list.
	MaxBadRatio *float64 `toml:"max_bad_ratio,omitempty" want:"0 to 1"`
	// As in [index], for this list.
	MaxShrink *float64 `toml:"max_shrink,omitempty" want:"0 to 1"`
	// As in [index], for this list.
	MaxGrow *float64 `toml:"max_grow,omitempty" want:"1 to 1000000"`
	// As in [index], for this list.
	AllowPublicSuffix *bool `toml:"allow_public_suffix,omitempty"`
	// As in [index], for this list.
	MaxAge *Duration `toml:"max_age,omitempty" want:"0s or 1m to 3650d"`
	// As in [index], for this list.
	MaxRecentBlocked *float64 `toml:"max_recent_blocked,omitempty" want:"0 to 1"`
	// As in [index], for this list.
	MaxFreed *float64 `toml:"max_freed,omitempty" want:"0 to 1"`
	// "auto": a changed file serves by itself, if the gate lets it. "review": it is a proposal, which serves only
	// when blockd adopt LIST or the console lets it in (docs/undo.md).
	Adopt string `toml:"adopt" want:"auto|review"`
	// The address that the list is fetched from, https://HOST/FILE (docs/remote.md). User name and password
	// may stand in it.
	URL string `toml:"url,omitempty"`
	// How often its server is asked, give or take a tenth; 1h if it is not set.
	Every *Duration `toml:"every,omitempty" want:"1m to 31d"`
	// "sha256:" and the checksum of the file, or the place where it is published: an ending of the URL such
	// as ".sha256", a name beside it such as "SHA256SUMS", or a URL.
	Checksum string `toml:"checksum,omitempty"`
	// "minisign:" and the public key that signs the file; the signature is published beside it with the
	// ending ".minisig".
	Signature string `toml:"signature,omitempty"`
	// Let url be http://, where anyone on the way can change the list.
	InsecureHTTP bool `toml:"insecure_http,omitempty"`
	// What is said in [list.source].
	Source *Source `toml:"source,omitempty"`

	added bool // it stands in http.lists_file
}

// defaultList is what a [[list]] has that says nothing of it.
func defaultList() List {
	return List{Format: "auto", Action: "block", Mode: "enforce", OnMatch: "refuse", Match: []string{"envelope"}, Exceptions: "own", Adopt: "auto"}
}

// listName is what a name may be: it stands in replies, logs and metrics.
var listName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ListNameOf names a list after its file: "lists/disposable.txt.gz" is "disposable".
func ListNameOf(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".gz")
	name = strings.TrimSuffix(name, filepath.Ext(name))
	name = strings.Map(func(r rune) rune {
		if listName.MatchString("a" + string(r)) {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name, "._-")
	return cmp.Or(name[:min(len(name), 64)], "list")
}

func (l List) validate(f *Faults, key string, names map[string]bool) {
	switch {
	case l.Name == "":
		f.add(key+".name", "is missing; senders read it in the refusal")
	case !listName.MatchString(l.Name):
		f.add(key+".name", "want letters, digits and . _ - (at most 64), have %q", l.Name)
	case names[l.Name] && l.added:
		f.add(key+".name", "%q is the name of another list, above or in the configuration", l.Name)
	case names[l.Name]:
		f.add(key+".name", "%q is the name of a list above", l.Name)
	}
	names[l.Name] = true
	if l.Source != nil {
		// Its copy has a place of its own, see validateSource.
	} else if l.Path == "" && l.URL != "" {
		f.add(key+".path", "is missing; want the file that is to hold the copy")
	} else if l.Path == "" {
		f.add(key+".path", "is missing; want a file or a glob")
	} else if _, err := filepath.Match(l.Path, ""); err != nil {
		f.add(key+".path", "want a file or a glob, have %q: %v", l.Path, err)
	}
	if l.Source != nil {
		// Rows have no format, see validateSource.
	} else if err := CheckFormat(l.Format); err != nil {
		f.add(key+".format", "%v", err)
	}
	if len(l.Reason) > 400 || strings.ContainsFunc(l.Reason, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.add(key+".reason", "want one line of at most 400 octets")
	}
	for _, link := range []struct{ key, text string }{{"homepage", l.Homepage}, {"complaints", l.Complaints}} {
		if lists.AboutLink(link.text) != link.text {
			f.add(key+"."+link.key, "want an address that begins with https://, http:// or mailto:, of at most %d octets, have %q", lists.MaxAboutLink, link.text)
		}
	}
	if lists.CleanAbout(l.Licence, lists.MaxAboutText) != l.Licence {
		f.add(key+".licence", "want one line of at most %d octets", lists.MaxAboutText)
	}
	l.validateRule(f, key)
	l.validateGate(f, key)
}

// CheckFormat says what is wrong with a format as users write it.
func CheckFormat(text string) error {
	err := lists.ParseFormat(text)
	if err == nil {
		return nil
	}
	var names []string
	for _, f := range lists.Formats() {
		names = append(names, f.Name)
	}
	name, _, _ := strings.Cut(text, ":")
	if slices.Contains(names, name) {
		return err
	}
	return fmt.Errorf("%w%s", err, spelling.Hint(name, "", names))
}

// validateRule checks what the matches of a list lead to.
func (l List) validateRule(f *Faults, key string) {
	if err := reply.CheckText(l.Text); err != nil {
		f.add(key+".text", "%v", err)
	}
	switch code := lists.ParseAnswer(l.Text).Code; {
	case code/100 == 4 && l.OnMatch == "refuse" && l.Action != "allow":
		f.add(key+".text", `a code of %d does not refuse for good; want one of 5xx, or on_match = "tempfail"`, code)
	case code/100 == 5 && l.OnMatch == "tempfail":
		f.add(key+".text", `a code of %d does not defer; want one of 4xx, or on_match = "refuse"`, code)
	}
	if err := reply.CheckContact(l.Contact, l.Name); err != nil {
		f.add(key+".contact", "%v", err)
	}
	l.validateMatch(f, key)
	l.validateRequire(f, key)
	if l.Action != "allow" {
		return
	}
	if l.Exceptions == "none" {
		f.add(key+".exceptions", `"none" leaves nothing of a list with action = "allow": take the list out, or set mode = "shadow"`)
	}
	const never = `has no effect with action = "allow": nothing of this list is refused`
	if l.OnMatch != "refuse" {
		f.add(key+".on_match", never)
	}
	if l.Percent != nil {
		f.add(key+".percent", never)
	}
	if l.Tarpit != 0 {
		f.add(key+".tarpit", never)
	}
	if l.Discard {
		f.add(key+".discard", never)
	}
	if l.Text != "" {
		f.add(key+".text", never)
	}
	if l.Contact != "" {
		f.add(key+".contact", never)
	}
}

// Reach is how far those of the list reach; a list without faults only.
func (l List) Reach() index.Exceptions {
	e, _ := index.ParseExceptions(l.Exceptions)
	return e
}

// validateMatch checks which addresses a list is asked about.
func (l List) validateMatch(f *Faults, key string) {
	if _, err := verdict.ParseSources(l.Match); err != nil {
		f.add(key+".match", "%v", err)
	} else if len(l.Match) == 0 {
		f.add(key+".match", `is empty: the list would never be asked; want one or more of "%s"`, strings.Join(verdict.SourceWords(), `", "`))
	}
	for i, word := range l.Match {
		if slices.Contains(l.Match[:i], word) {
			f.add(fmt.Sprintf("%s.match[%d]", key, i), "%q stands there twice", word)
		}
	}
}

// sources are the words of match as package policy has them; a list without
// faults only.
func (l List) sources() verdict.Sources {
	s, _ := verdict.ParseSources(l.Match)
	return s
}

// validateRequire checks what the allow entries of a list need. A list that blocks
// may have exceptions of its own, and requires proof for those.
func (l List) validateRequire(f *Faults, key string) {
	if l.Require != nil && len(l.Require) == 0 {
		f.add(key+".require", `is empty: nothing would make its exceptions count; want one or more of "client", "auth", "spf", "dkim", or leave it out`)
	}
	for i, word := range l.Require {
		at := fmt.Sprintf("%s.require[%d]", key, i)
		if _, err := verdict.ParseProofs([]string{word}); err != nil {
			f.add(at, "%v", err)
		} else if slices.Contains(l.Require[:i], word) {
			f.add(at, "%q stands there twice", word)
		}
	}
}

// Proofs are the words of require as package policy has them; a list without
// faults only.
func (l List) Proofs() verdict.Proof {
	p, _ := verdict.ParseProofs(l.Require)
	return p
}

func (l List) validateGate(f *Faults, key string) {
	f.domains(key+".protected", l.Protected)
	for i, text := range l.Force {
		if _, ok := lists.ParseNetwork(text); ok {
			continue
		}
		if _, err := addr.DomainKey(text); err != nil {
			f.add(fmt.Sprintf("%s.force[%d]", key, i), "want a domain, have %v", err)
		}
	}
}

func (l List) mode() index.Mode {
	if l.Mode == "shadow" {
		return index.Shadow
	}
	return index.Enforce
}
