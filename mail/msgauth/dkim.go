package msgauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/miekg/dns"
)

const (
	maxSignatures = 5 // that are verified; each may cost a query and a hash of the body

	// maxNamed is how many header fields a signature may name; honest ones have some
	// 40. The library looks through the whole header for each: 120,000 of them, which
	// have room in it, took 1.3 s.
	maxNamed = 250

	// maxClock is how far a signer's clock may be ahead.
	maxClock = 10 * time.Minute

	// maxKey is that of p= in a key's record, in octets of base64: an RSA key of
	// 8,192 bits, twice what anybody must support (RFC 8301, section 3.2). One of
	// the 48,000 bits that a record has room for takes 20 ms to verify by.
	maxKey = 1500
)

// signatures verifies the first signatures of h over body.
func (r *Resolver) signatures(ctx context.Context, network netip.Prefix, m *Message, h *header, body io.Reader) {
	all := h.values("dkim-signature")
	if len(all) == 0 {
		return
	}
	m.TooMany = len(all) > maxSignatures
	for _, value := range all[:min(len(all), maxSignatures)] {
		if strings.Count(tagsOf(value)["h"], ":") >= maxNamed {
			m.Fault = fmt.Sprintf("a signature names over %d fields", maxNamed)
			return
		}
	}
	k := keys{ctx: ctx, resolver: r, network: network, strict: map[string]bool{}}
	found, err := dkim.VerifyWithOptions(io.MultiReader(bytes.NewReader(h.raw), body),
		&dkim.VerifyOptions{LookupTXT: k.lookup, MaxVerifications: maxSignatures})
	if err != nil && !errors.Is(err, dkim.ErrTooManySignatures) { // which comes with results
		m.Fault = err.Error()
		return
	}
	for i, v := range found {
		tags := tagsOf(all[i])
		s := Signature{Domain: canonical(v.Domain), Selector: tags["s"], Algorithm: tags["a"]}
		s.Proof, s.Reason = k.judge(v, s)
		m.Signatures = append(m.Signatures, s)
	}
}

// judge is the library's word, less what it lets pass.
func (k *keys) judge(v *dkim.Verification, s Signature) (State, string) {
	switch {
	case dkim.IsTempFail(v.Err):
		return Unknown, strings.TrimPrefix(v.Err.Error(), "dkim: ")
	case v.Err != nil:
		return No, strings.TrimPrefix(v.Err.Error(), "dkim: ")
	case s.Domain == "":
		return No, "d= is no domain"
	case Organisation(s.Domain) == "":
		return No, "d= is a public suffix, or no registered domain"
	case time.Until(v.Time) > maxClock:
		return No, "signed in the future"
	case k.strict[keyName(s.Selector, s.Domain)] && canonical(afterAt(v.Identifier)) != s.Domain:
		return No, "i= is below d=, which the key forbids (t=s)"
	}
	return Pass, ""
}

func afterAt(s string) string { return s[strings.LastIndexByte(s, '@')+1:] }

// keyName is where a key is published, "" if there is no such name.
func keyName(selector, domain string) string {
	if domain = canonical(domain); domain == "" {
		return ""
	}
	return canonical(selector + "._domainkey." + domain)
}

// keys fetches the keys of one message's signatures. The library asks for several
// of them at one time.
type keys struct {
	ctx      context.Context
	resolver *Resolver
	network  netip.Prefix

	mu     sync.Mutex
	strict map[string]bool // names whose record has t=s
}

// lookup returns the key record of a name that the library has put together. What
// it refuses here, the library passes on as a failure of the signature.
func (k *keys) lookup(name string) ([]string, error) {
	selector, domain, _ := strings.Cut(name, "._domainkey.")
	key := keyName(selector, domain)
	if key == "" {
		return nil, errors.New("no name that can be asked for")
	}
	a := k.resolver.lookup(k.ctx, k.network, key, dns.TypeTXT)
	if a.outcome != records {
		return nil, keyError{a.fault, a.outcome == failed}
	}
	texts := make([]string, len(a.records))
	for i, rec := range a.records {
		texts[i] = rec.text
		if err := k.flags(key, rec.text); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// keyError is a net.Error, by which the library tells what may be well later. It
// does not hold the name, which is the sender's own text and not for a log.
type keyError struct {
	fault string
	later bool
}

func (e keyError) Error() string   { return e.fault }
func (e keyError) Temporary() bool { return e.later }
func (e keyError) Timeout() bool   { return false }

// flags heeds what of a key's record the library reads and does not act on.
func (k *keys) flags(name, text string) error {
	tags := tagsOf(text)
	if n := len(tags["p"]); n > maxKey {
		return fmt.Errorf("a key of %d octets, more than %d", n, maxKey)
	}
	for flag := range strings.SplitSeq(tags["t"], ":") {
		switch flag {
		case "y":
			return errors.New("the key is in test mode (t=y)")
		case "s":
			k.mu.Lock()
			k.strict[name] = true
			k.mu.Unlock()
		}
	}
	return nil
}

// tagsOf reads a tag list (RFC 6376, section 3.2) with the blanks taken out of its
// values; of a tag that comes twice, the first. The library has its own reader,
// which refuses what is malformed.
func tagsOf(text string) map[string]string {
	tags := map[string]string{}
	for tag := range strings.SplitSeq(text, ";") {
		name, value, ok := strings.Cut(tag, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			continue
		}
		if _, twice := tags[name]; !twice {
			tags[name] = strings.Join(strings.Fields(value), "")
		}
	}
	return tags
}
