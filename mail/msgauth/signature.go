package msgauth

import (
	"cmp"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxClock is how far a signer's clock may be ahead.
const maxClock = 10 * time.Minute

// sealTags are the tags of a DKIM-Signature field as they are needed (RFC 6376, section
// 3.5).
type sealTags struct {
	domain, selector, algorithm string
	identity                    string   // the domain of i=, canonical
	fields                      []string // h=, in lower case
	relaxedHeader, relaxedBody  bool
	bodyHash, signature         []byte
}

// required are the tags that a signature must have.
var required = []string{"v", "a", "b", "bh", "d", "h", "s"}

// parseSignature reads the value of a DKIM-Signature field. What can be read of it is
// returned with an error, too.
func parseSignature(value string, now time.Time) (s sealTags, err error) {
	tags, err := parseTags(value)
	s.domain, s.selector, s.algorithm = canonical(tags["d"]), tags["s"], tags["a"]
	if err != nil {
		return s, err
	}
	for _, name := range required {
		if tags[name] == "" {
			return s, fmt.Errorf("no tag %s=", name)
		}
	}
	for name := range strings.SplitSeq(strings.ToLower(tags["h"]), ":") {
		s.fields = append(s.fields, name)
	}
	s.identity = s.domain
	if i, ok := tags["i"]; ok {
		_, after, found := cutLast(decodeQuoted(i), '@')
		if s.identity = canonical(after); !found || s.identity != s.domain && !strings.HasSuffix(s.identity, "."+s.domain) {
			return s, errors.New("domain mismatch: i= is not of d=")
		}
	}
	header, body, _ := strings.Cut(cmp.Or(tags["c"], "simple"), "/")
	var known, knownBody bool
	s.relaxedHeader, known = canonicalizations[header]
	s.relaxedBody, knownBody = canonicalizations[cmp.Or(body, "simple")]
	_, limited := tags["l"]
	signed, errSigned := parseTime(tags, "t", now)
	expires, errExpires := parseTime(tags, "x", time.Unix(math.MaxInt64>>10, 0))
	var errHash, errSignature error
	s.bodyHash, errHash = decodeBase64(tags["bh"])
	s.signature, errSignature = decodeBase64(tags["b"])
	switch query, ok := tags["q"]; {
	case tags["v"] != "1":
		return s, errors.New("v= is not 1")
	case s.domain == "":
		return s, errors.New("d= is no domain")
	case Organisation(s.domain) == "":
		return s, errors.New("d= is a public suffix, or no registered domain")
	case !slices.Contains(s.fields, "from"):
		return s, errors.New("the From field is not signed")
	case ok && !slices.Contains(strings.Split(query, ":"), "dns/txt"):
		return s, errors.New("q= has no method that is known")
	case strings.HasSuffix(s.algorithm, "-sha1"):
		return s, errors.New("hash algorithm too weak: sha1")
	case s.algorithm != "rsa-sha256" && s.algorithm != "ed25519-sha256":
		return s, errors.New("a= is not known")
	case !known || !knownBody:
		return s, errors.New("c= is not known")
	case limited:
		return s, errors.New("a body length tag (l=): a part of the body may be unsigned")
	case errSigned != nil || errExpires != nil:
		return s, errors.New("a time that is no number")
	case signed.Sub(now) > maxClock:
		return s, errors.New("signed in the future")
	case now.After(expires):
		return s, errors.New("signature has expired")
	case errHash != nil || errSignature != nil:
		return s, errors.New("b= or bh= is no base64")
	}
	return s, nil
}

var canonicalizations = map[string]bool{"simple": false, "relaxed": true}

// cutLast cuts s at the last sep.
func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// parseTime reads a tag that counts seconds. One too large to count is as far away as
// can be.
func parseTime(tags map[string]string, name string, otherwise time.Time) (time.Time, error) {
	text, ok := tags[name]
	if !ok {
		return otherwise, nil
	}
	if text == "" || !isDigits(text) {
		return otherwise, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > math.MaxInt32*100 {
		n = math.MaxInt32 * 100 // the year 8774
	}
	return time.Unix(n, 0), nil
}

// decodeBase64 takes what is not filled up at its end, too (RFC 6376, section 2.10).
func decodeBase64(s string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
}

// decodeQuoted undoes DKIM's quoted-printable (RFC 6376, section 2.11). A sign of equality
// that escapes nothing is itself.
func decodeQuoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '=' && i+2 < len(s) {
			if octet, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(octet[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseTags reads a tag list (RFC 6376, section 3.2) with the blanks taken out of its
// values. Its error is that of a list that is none; the tags before it are returned, too.
func parseTags(text string) (map[string]string, error) {
	tags := map[string]string{}
	for tag := range strings.SplitSeq(text, ";") {
		name, value, ok := strings.Cut(tag, "=")
		if name = strings.Trim(name, " \t\r\n"); name == "" && !ok {
			continue // many write two semicolons
		}
		if _, twice := tags[name]; !ok || name == "" || twice {
			return tags, errors.New("the tags cannot be read")
		}
		tags[name] = strings.Join(strings.Fields(value), "")
	}
	return tags, nil
}

// maxKey is that of p= in a key's record, in octets of base64: an RSA key of 8,192 bits,
// twice what anybody must support (RFC 8301, section 3.2). One of the 48,000 bits that a
// record has room for takes 20 ms to verify by.
const maxKey = 1500

// publicKey is a record of a key.
type publicKey struct {
	key    crypto.PublicKey
	strict bool // i= must be d= (t=s)
}

var errKeySize = errors.New("a key that is too large")

// parseKey reads the record of a key for mail that is signed by algorithm (RFC 6376,
// section 3.6.1). errKeySize is a key that is too large.
func parseKey(text, algorithm string) (k publicKey, err error) {
	tags, err := parseTags(text)
	if err != nil {
		return k, err
	}
	kind, hash, _ := strings.Cut(algorithm, "-")
	flags := strings.Split(tags["t"], ":")
	k.strict = slices.Contains(flags, "s")
	services := strings.Split(cmp.Or(tags["s"], "*"), ":")
	hashes, limited := tags["h"]
	switch v, ok := tags["v"]; {
	case ok && v != "DKIM1":
		return k, errors.New("the key is of another version")
	case len(tags["p"]) > maxKey:
		return k, fmt.Errorf("%w: %d octets, more than %d", errKeySize, len(tags["p"]), maxKey)
	case tags["p"] == "":
		return k, errors.New("key revoked")
	case slices.Contains(flags, "y"):
		return k, errors.New("the key is in test mode (t=y)")
	case cmp.Or(tags["k"], "rsa") != kind:
		return k, errors.New("the key is for another algorithm")
	case limited && !slices.Contains(strings.Split(hashes, ":"), hash):
		return k, errors.New("the key is for another hash")
	case !slices.Contains(services, "*") && !slices.Contains(services, "email"):
		return k, errors.New("the key is not for mail")
	}
	octets, err := decodeBase64(tags["p"])
	if err != nil {
		return k, errors.New("the key is no base64")
	}
	if kind == "ed25519" {
		if len(octets) != ed25519.PublicKeySize {
			return k, errors.New("the key has another size than Ed25519's")
		}
		k.key = ed25519.PublicKey(octets)
		return k, nil
	}
	parsed, err := x509.ParsePKIXPublicKey(octets)
	if err != nil { // some publish this form (RFC erratum 3017)
		parsed, err = x509.ParsePKCS1PublicKey(octets)
	}
	key, ok := parsed.(*rsa.PublicKey)
	switch {
	case err != nil || !ok:
		return k, errors.New("the key cannot be read")
	case key.N.BitLen() < 1024:
		return k, fmt.Errorf("key is too short: %d bits, less than 1024", key.N.BitLen())
	}
	k.key = key
	return k, nil
}

// holds reports whether the key has made the signature of a hash.
func (k publicKey) holds(sum, signature []byte) bool {
	switch key := k.key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, sum, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum, signature) == nil
	}
	return false
}
