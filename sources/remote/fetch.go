package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// fetch asks for s once and brings its copy up to date. It returns the size of a
// new copy. An error that is no *Error is the disk's.
func (f *Fetcher) fetch(ctx context.Context, s *source) (bytes int64, changed bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fault(Timeout, "not done within %s", s.Timeout))
	defer cancel()
	copied, receipt, err := s.recall()
	if err != nil {
		return 0, false, err
	}
	began := time.Now()
	conditions := receipt.conditions(began)
	resp, err := f.get(ctx, s, s.url, conditions)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK:
		d, err := s.download(resp)
		if err != nil {
			return 0, false, err
		}
		defer d.discard()
		if err := f.verify(ctx, s, d.sum); err != nil {
			return 0, false, err
		}
		if err := f.verifySignature(ctx, s, d.file.Name()); err != nil {
			return 0, false, err
		}
		if changed = d.sum != copied; changed {
			if err := s.accept(ctx, d); err != nil {
				return 0, false, err
			}
		}
		bytes, receipt = d.size, s.newReceipt(resp.Header, d.sum, began)
	case resp.StatusCode != http.StatusNotModified:
		return 0, false, badStatus(resp)
	case conditions == nil:
		return 0, false, fault(Status, "304 Not Modified, though nothing was said of a copy")
	}
	receipt.Checked = began
	return bytes, changed, s.remember(receipt)
}

// accept makes d the copy, if Check has nothing against it.
func (s *source) accept(ctx context.Context, d *draft) error {
	if s.Check != nil {
		if err := s.Check(ctx, d.file.Name()); err != nil {
			return explain(ctx, Refused, err)
		}
	}
	return d.publish(s.Path)
}

// download writes the body of resp to a draft as it comes, octet for octet. It refuses
// a body that is no list, or that cannot be seen to be whole, as early as possible.
func (s *source) download(resp *http.Response) (*draft, error) {
	// Identity was asked for. gzip is kept as it is, since lists may be packed, and
	// since servers say so of a .gz file; nothing else would be understood.
	if packed := strings.ToLower(resp.Header.Get("Content-Encoding")); packed != "" &&
		!slices.Contains([]string{"identity", "gzip", "x-gzip"}, packed) {
		return nil, fault(Encoding, "the server has packed the file as %q unasked", packed)
	}
	if resp.ContentLength > s.MaxBytes {
		return nil, s.tooBig()
	}
	// A body that neither has a length nor comes in chunks ends with the connection
	// (RFC 9112, section 6.3, rule 8), so that half of it looks like all of it.
	if resp.ContentLength < 0 && resp.ProtoMajor < 2 && !slices.Contains(resp.TransferEncoding, "chunked") && !s.sum.expected() && !s.sig.expected() {
		return nil, fault(Truncated, "the answer has neither a length nor an end, so a cut would go unseen; only with a checksum or a signature it can be taken")
	}
	body := bufio.NewReader(resp.Body)
	head, err := body.Peek(512) // what http.DetectContentType looks at
	if err != nil && err != io.EOF {
		return nil, err
	}
	if isMarkup(head) {
		return nil, fault(HTML, "the answer is a web page or XML, not a list")
	}
	d, err := newDraft(s.Path)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	d.size, err = io.Copy(io.MultiWriter(d.file, hash), io.LimitReader(body, s.MaxBytes+1))
	if err == nil && d.size > s.MaxBytes {
		err = s.tooBig()
	}
	if err != nil {
		d.discard()
		return nil, err
	}
	d.sum = hex.EncodeToString(hash.Sum(nil))
	return d, nil
}

func (s *source) tooBig() error {
	return fault(TooBig, "the file is larger than %d octets", s.MaxBytes)
}

// isMarkup judges by the content alone: servers call lists text/html, and error
// pages text/plain. An entry such as "<b@bulk.example>" is no markup.
func isMarkup(head []byte) bool {
	kind := http.DetectContentType(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")))
	return strings.HasPrefix(kind, "text/html") || strings.HasPrefix(kind, "text/xml")
}

// badStatus is the fault of an answer that is no file. The server's own words for
// the status are left out.
func badStatus(resp *http.Response) error {
	e := fault(Status, "the server answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	e.retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	return e
}
