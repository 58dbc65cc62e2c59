package msgauth

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// maxSignatures are verified, those of the author's organisation first; each may cost a
// query.
const maxSignatures = 20

// seal is a signature that is looked at.
type seal struct {
	sealTags
	place int // of its field
	fault error
	proof State // what to say of fault

	key publicKey
}

// signatures verifies those of h over body, which it reads to the end, and which does not
// fail.
func (r *Resolver) signatures(ctx context.Context, network netip.Prefix, m *Message, h *header, body io.Reader) {
	seals := h.seals(m)
	var forms [2]*bodyHash // simple and relaxed, if a signature has them
	var group sync.WaitGroup
	for i := range seals {
		if s := &seals[i]; s.fault == nil {
			if forms[s.form()] == nil {
				forms[s.form()] = newBodyHash(s.relaxedBody)
			}
			group.Go(func() { s.key, s.proof, s.fault = r.key(ctx, network, s.sealTags) })
		}
	}
	sums := hashBody(forms, body)
	group.Wait()
	for i := range seals {
		s := &seals[i]
		if s.fault == nil {
			s.fault = s.verify(h, sums[s.form()])
		}
		found := Signature{Domain: s.domain, Selector: s.selector, Algorithm: s.algorithm, Proof: Pass}
		if s.fault != nil {
			found.Proof, found.Reason = s.proof, s.fault.Error()
		}
		m.Signatures = append(m.Signatures, found)
	}
}

// seals are the signatures to look at, from the top.
func (h *header) seals(m *Message) (seals []seal) {
	own, all := 0, 0 // the author's, and all
	now := time.Now()
	for i, f := range h.fields {
		if f.name != "dkim-signature" {
			continue
		}
		s := seal{place: i}
		s.sealTags, s.fault = parseSignature(f.value, now)
		all++
		if Aligned(s.domain, m.Author) {
			own++
		}
		seals = append(seals, s)
	}
	m.TooMany = all > maxSignatures
	if !m.TooMany {
		return seals
	}
	if own > maxSignatures {
		m.rest = Short
	}
	others := max(0, maxSignatures-own)
	own = min(own, maxSignatures)
	kept := seals[:0]
	for _, s := range seals {
		left := &others
		if Aligned(s.domain, m.Author) {
			left = &own
		}
		if *left > 0 {
			*left--
			kept = append(kept, s)
		}
	}
	return kept
}

// form is 0 where the body is hashed in simple form, else 1.
func (s *seal) form() int {
	if s.relaxedBody {
		return 1
	}
	return 0
}

// hashBody reads body to its end and returns its hash in each of the forms that are not nil.
func hashBody(forms [2]*bodyHash, body io.Reader) (sums [2][]byte) {
	var writers []io.Writer
	for _, f := range forms {
		if f != nil {
			writers = append(writers, f)
		}
	}
	io.Copy(io.MultiWriter(writers...), body)
	for i, f := range forms {
		if f != nil {
			sums[i] = f.sum()
		}
	}
	return sums
}

func (s *seal) verify(h *header, bodySum []byte) error {
	switch {
	case s.key.strict && s.identity != s.domain:
		return errors.New("i= is below d=, which the key forbids (t=s)")
	case !bytes.Equal(bodySum, s.bodyHash):
		return errors.New("body hash did not verify")
	case !s.key.holds(h.headerHash(s.sealTags, s.place), s.signature):
		return errors.New("signature did not verify")
	}
	return nil
}

// key fetches the key of a signature. A text beside it that is no key does not matter; of
// several keys none is taken (RFC 6376, section 3.6.2.2, leaves it open).
func (r *Resolver) key(ctx context.Context, network netip.Prefix, s sealTags) (k publicKey, proof State, err error) {
	name := canonical(s.selector + "._domainkey." + s.domain)
	if name == "" {
		return k, No, errors.New("no name that can be asked for")
	}
	a := r.lookup(ctx, network, name, dns.TypeTXT)
	if a.outcome != records {
		return k, a.state(), errors.New("no key for signature: " + a.fault)
	}
	text, found := a.records[0].text, 0
	for _, rec := range a.records {
		if tags, _ := parseTags(rec.text); hasKey(tags) {
			text, found = rec.text, found+1
		}
	}
	if found > 1 {
		return k, No, errors.New("multiple TXT records found for key")
	}
	k, err = parseKey(text, s.algorithm)
	if errors.Is(err, errKeySize) {
		return k, Short, err
	}
	return k, No, err
}

// hasKey reports whether a text is a key: one of another version is none (RFC 6376, section 3.6.1).
func hasKey(tags map[string]string) bool {
	v, versioned := tags["v"]
	_, ok := tags["p"]
	return ok && (!versioned || v == "DKIM1")
}
