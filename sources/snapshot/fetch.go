package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"blockd/internal/minisign"
)

const (
	atOnce = 8 // objects that are fetched at a time

	// settling is how often a file and its signature are read once more that do not belong together: the publisher replaces one after the
	// other.
	settling     = 3
	settlingRest = time.Second
)

// Reason is the class of a refusal, as a label of a metric.
type Reason string

// The reasons. Away is no refusal.
const (
	Away      Reason = "away"      // the store gives nothing
	Signature Reason = "signature" // none of the keys has signed this, for this place
	Form      Reason = "form"      // it is signed, and cannot be read
	Replayed  Reason = "replayed"  // it is older than what was accepted
	Expired   Reason = "expired"   // it has ended
	Clock     Reason = "clock"     // this machine's clock is before the date of this program
	Object    Reason = "object"    // an object is not what the manifest says
	Disk      Reason = "disk"      // this machine cannot keep it
)

// Error is why something was not taken.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return string(e.Reason) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func refuse(r Reason, format string, args ...any) error {
	return &Error{r, fmt.Errorf(format, args...)}
}

// reasonOf is the class of an error; Away for those of stores, which have none.
func reasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return Away
}

// get reads a whole file that has at most so many octets.
func get(ctx context.Context, s Store, name string, most int64) ([]byte, error) {
	in, err := s.Get(ctx, name, 0)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(text)) > most {
		return nil, refuse(Form, "%s: more than %d octets", name, most)
	}
	return text, nil
}

// signed is a file with its signature.
type signed struct{ text, signature []byte }

// getSigned reads a file and its signature. read judges both; if the signature is at fault they are read once more.
func (n *Node) getSigned(ctx context.Context, s Store, name string, most int64, read func(signed) error) (f signed, err error) {
	for tries := 1; ; tries++ {
		if f.text, err = get(ctx, s, name, most); err != nil {
			return f, err
		}
		if f.signature, err = get(ctx, s, name+minisign.Suffix, minisign.MaxSignature); err != nil {
			return f, err
		}
		n.counters.fetched(kindManifest, int64(len(f.text)+len(f.signature)))
		if err = read(f); reasonOf(err) != Signature || tries == settling {
			return f, err
		}
		if !sleep(ctx, settlingRest) {
			return f, ctx.Err()
		}
	}
}

// check judges the signature before anything of the text is read.
func (f signed) check(keys []minisign.PublicKey, want func([]byte) (string, error)) error {
	comment, err := minisign.Verify(keys, f.text, f.signature)
	if err != nil {
		return &Error{Signature, err}
	}
	expected, err := want(f.text)
	if err != nil {
		return &Error{Form, err}
	}
	if comment != expected {
		return refuse(Signature, "it is signed as %q, want %q", cut(comment), expected)
	}
	return nil
}

// stores are where objects may be had: relays first, since these are near.
func (n *Node) stores() []Store { return append(append([]Store{}, n.Relays...), n.From) }

// fetch brings an object, and returns the path of a file that is what its name says. What came before a break is kept. It may be called by
// several goroutines, also for one object.
func (n *Node) fetch(ctx context.Context, object string, size int64, kind string) (path string, err error) {
	got, err, _ := n.fetches.Do(object, func() (any, error) { return n.fetchOnce(ctx, object, size, kind) })
	if err != nil {
		return "", err
	}
	return got.(string), nil
}

func (n *Node) fetchOnce(ctx context.Context, object string, size int64, kind string) (path string, err error) {
	kept := filepath.Join(n.Folder, objectsName, object)
	if sum, got, err := sumOfFile(kept); err == nil && got == size && sum+objectEnding == object {
		return kept, nil
	}
	path = filepath.Join(n.Folder, fetchName, object)
	var faults []error
	for _, s := range n.stores() {
		err := n.fetchFrom(ctx, s, path, object, size, kind)
		if again := (*notThis)(nil); errors.As(err, &again) && again.resumed { // the part before may be of a store that lies
			err = n.fetchFrom(ctx, s, path, object, size, kind)
		}
		if err == nil && n.Serves {
			if err := os.Rename(path, kept); err != nil {
				return "", &Error{Disk, err}
			}
			return kept, nil
		}
		if err == nil {
			return path, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		faults = append(faults, fmt.Errorf("%s: %w", s, err))
	}
	return "", worst(faults)
}

// worst is the error that says most: a refusal before a store that is away.
func worst(faults []error) error {
	for _, err := range faults {
		if reasonOf(err) != Away {
			return err
		}
	}
	return faults[len(faults)-1]
}

func (n *Node) fetchFrom(ctx context.Context, s Store, path, object string, size int64, kind string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return &Error{Disk, err}
	}
	defer f.Close()
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return &Error{Disk, err}
	}
	if at > size {
		at = 0
	}
	if at < size {
		if err := n.append(ctx, s, f, object, at, size, kind); err != nil {
			return err
		}
	}
	sum, got, err := sumOfFile(path)
	if err != nil {
		return &Error{Disk, err}
	}
	if got != size || sum+objectEnding != object {
		if err := os.Remove(path); err != nil {
			return &Error{Disk, err}
		}
		return &Error{Object, &notThis{object, at > 0}}
	}
	return nil
}

// notThis says that octets are not those of the name. resumed: some of them were there before.
type notThis struct {
	object  string
	resumed bool
}

func (e *notThis) Error() string { return e.object + ": its SHA-256 is another one" }

// append adds the octets of an object from at on.
func (n *Node) append(ctx context.Context, s Store, f *os.File, object string, at, size int64, kind string) error {
	in, err := s.Get(ctx, objectName(object), at)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := f.Truncate(at); err != nil {
		return &Error{Disk, err}
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return &Error{Disk, err}
	}
	out := &diskWriter{f: f}
	got, err := io.Copy(out, io.LimitReader(in, size-at))
	n.counters.fetched(kind, got)
	switch {
	case out.err != nil:
		return &Error{Disk, out.err}
	case err != nil:
		return err
	case got < size-at:
		return refuse(Object, "%s: cut after %d of %d octets", object, at+got, size)
	}
	return nil
}

// diskWriter tells what goes wrong with a file from what goes wrong with a store.
type diskWriter struct {
	f   *os.File
	err error
}

func (d *diskWriter) Write(p []byte) (int, error) {
	n, err := d.f.Write(p)
	d.err = err
	return n, err
}

// sleep waits; false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
