// Package s3 reads a list from the objects of an S3 store: list files in any format of package lists, packed by gzip or not.
//
//	s3://[KEY:SECRET@]HOST[:PORT]/BUCKET/PREFIX?region=REGION&tls=true|false|skip-verify&tls_ca=FILE
//
// The objects of a list are the one with the key PREFIX and all below PREFIX/, or every object of the bucket without a PREFIX.
package s3

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"blockd/lists"
	"blockd/sources/mirror"
)

// Options say which objects are a list, and how to read them.
type Options struct {
	DSN      string         // a URL, with its secret
	Settings lists.Settings // Format, "" or "rows" = by what an object looks like; Action and Subdomains
	Folder   string         // for the object that is being read, which has no name there; "" = the system's for temporary files
	Timeout  time.Duration  // without an octet of an answer; 0 = 30 s
}

const (
	defaultTimeout = 30 * time.Second

	maxObjects = 10_000
	maxKeys    = 100_000 // that are listed, those included that only begin like the prefix
	maxObject  = 4 << 30 // octets, as of any list

	// patience is for an object beside what it takes at slowest, octets a second. A store that gives less hangs.
	patience = time.Minute
	slowest  = 64 << 10

	// attempts at objects that are replaced while they are read.
	attempts = 3

	maxID = 64 // octets of mirror.Row.ID that are kept
)

// Source is a part of a bucket. It keeps connections while it is used.
type Source struct {
	where    *location
	store    minio.Core
	web      *web
	settings lists.Settings
	folder   string
}

// Open judges the options; it does not connect. The error names the key, and never shows the URL.
func Open(o Options) (*Source, error) {
	where, err := parseURL(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	format := o.Settings.Format
	if format == "rows" {
		format = ""
	}
	if err := lists.ParseFormat(format); err != nil {
		return nil, fmt.Errorf("format: %w", err)
	}
	s := &Source{where: where, folder: o.Folder, settings: lists.Settings{Format: format, Action: o.Settings.Action, Subdomains: o.Settings.Subdomains}}
	s.web = newWeb(where, cmp.Or(o.Timeout, defaultTimeout))
	client, err := minio.New(where.address, &minio.Options{Creds: where.credentials(), Secure: where.tls, Region: where.region, Transport: s.web, MaxRetries: 1})
	if err != nil {
		return nil, errors.New("dsn: want s3://HOST/BUCKET/PREFIX: " + mirror.Said(err.Error(), where.secret))
	}
	s.store = minio.Core{Client: client}
	return s, nil
}

// Close ends the connections.
func (s *Source) Close() error {
	s.web.CloseIdleConnections()
	return nil
}

// Fingerprint names the store, the bucket, the prefix, and the format of the objects. It makes no connection.
func (s *Source) Fingerprint(context.Context) (string, error) {
	return fmt.Sprintf("s3 %s %q %q format %q", s.where.address, s.where.bucket, s.where.prefix, s.settings.Format), nil
}

// Wait ends with the context: a store does not announce its changes.
func (s *Source) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Changes yields nothing while the objects are those of the mark: one question. Else the error is ErrTooOld.
func (s *Source) Changes(ctx context.Context, since mirror.Mark, _ func(mirror.Change) error) (mirror.Mark, error) {
	objects, err := s.list(ctx)
	if err != nil {
		return "", err
	}
	if markOf(objects) != since {
		return "", mirror.ErrTooOld
	}
	return since, nil
}

// errReplaced says that an object is no longer the one that was listed.
var errReplaced = errors.New("an object was replaced while it was read")

// All reads every object. Each is fetched whole before its first row is yielded. The objects are those of one moment: if
// the store lists others at the end, the read has failed.
func (s *Source) All(ctx context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
	spool, err := s.spool()
	if err != nil {
		return "", &mirror.Error{Class: mirror.ClassDisk, Err: err}
	}
	defer spool.Close()
	yielded := false
	for n := 1; ; n++ {
		mark, err := s.all(ctx, spool, func(row mirror.Row) error {
			yielded = true
			return yield(row)
		})
		if !errors.Is(err, errReplaced) {
			return mark, err
		}
		if yielded || n == attempts {
			return "", &mirror.Error{Class: mirror.ClassRefused, Err: err}
		}
	}
}

func (s *Source) all(ctx context.Context, spool *os.File, yield func(mirror.Row) error) (mirror.Mark, error) {
	objects, err := s.list(ctx)
	if err != nil {
		return "", err
	}
	for _, o := range objects {
		if err := s.fetch(ctx, o, spool); err != nil {
			return "", err
		}
		if err := s.read(ctx, o, spool, yield); err != nil {
			return "", err
		}
	}
	mark := markOf(objects)
	if objects, err = s.list(ctx); err == nil && markOf(objects) != mark {
		err = errReplaced
	}
	return mark, err
}

// spool makes the file for one object. It has no name, so it goes with the process.
func (s *Source) spool() (*os.File, error) {
	f, err := os.CreateTemp(s.folder, ".sort.s3.") // package mirror removes what a crash leaves of such files
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.CreateTemp("", "blockd.s3.") // there is no copy yet
	}
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// object is one of the objects, as it was listed.
type object struct {
	key, etag string
	size      int64
}

// markOf is a digest of all objects.
func markOf(objects []object) mirror.Mark {
	h := sha256.New()
	for _, o := range objects {
		fmt.Fprintf(h, "%q %q %d\n", o.key, o.etag, o.size)
	}
	return mirror.Mark(fmt.Sprintf("%d %s", len(objects), hex.EncodeToString(h.Sum(nil))))
}

// list asks which objects there are, in the order of their keys.
func (s *Source) list(ctx context.Context) (objects []object, err error) {
	owner, keys := false, 0
	for o := range s.store.ListObjectsIter(ctx, s.where.bucket, minio.ListObjectsOptions{Prefix: s.where.prefix, Recursive: true, FetchOwner: &owner}) {
		if o.Err != nil {
			return nil, s.fault(ctx, "list", o.Err)
		}
		if keys++; keys > maxKeys {
			return nil, refused("more than %d keys begin with %q", maxKeys, s.where.prefix)
		}
		switch {
		case !s.where.covers(o.Key), o.Size == 0 && strings.HasSuffix(o.Key, "/"): // which stands for a folder
			continue
		case o.ETag == "":
			return nil, refused("the store gives no ETag of %q", o.Key)
		case o.Size < 0 || o.Size > maxObject:
			return nil, refused("%q has %d octets, at most %d are read", o.Key, o.Size, int64(maxObject))
		case len(objects) == maxObjects:
			return nil, refused("more than %d objects", maxObjects)
		}
		objects = append(objects, object{o.Key, o.ETag, o.Size})
	}
	if ctx.Err() != nil { // which ends the list without a word
		return nil, ctx.Err()
	}
	slices.SortFunc(objects, func(a, b object) int { return strings.Compare(a.key, b.key) })
	for i := 1; i < len(objects); i++ {
		if objects[i].key == objects[i-1].key {
			return nil, refused("the store lists %q twice", objects[i].key)
		}
	}
	return objects, nil
}

// fetch puts an object into spool. What the store gives must have the tag and the length that it was listed with, and the checksum that the
// store gives, if it gives one.
func (s *Source) fetch(ctx context.Context, o object, spool *os.File) error {
	bounded, cancel := context.WithTimeout(ctx, patience+time.Duration(o.size/slowest)*time.Second)
	defer cancel()
	options := minio.GetObjectOptions{Checksum: true}
	if err := options.SetMatchETag(o.etag); err != nil {
		return refused("%q: %v", o.key, err)
	}
	body, info, _, err := s.store.GetObject(bounded, s.where.bucket, o.key, options)
	if err != nil {
		if failed := minio.ToErrorResponse(err); failed.Code == minio.PreconditionFailed || failed.Code == minio.NoSuchKey {
			return errReplaced
		}
		return s.fault(ctx, "get "+quoted(o.key), err)
	}
	defer body.Close()
	if info.ETag != o.etag || info.Size != o.size {
		return errReplaced
	}
	if err := empty(spool); err != nil {
		return &mirror.Error{Class: mirror.ClassDisk, Err: err}
	}
	n, err := io.Copy(disk{spool}, io.LimitReader(body, o.size+1))
	switch {
	case err != nil:
		return s.fault(ctx, fmt.Sprintf("get %s, after %d of %d octets", quoted(o.key), n, o.size), err)
	case n != o.size:
		return &mirror.Error{Class: mirror.ClassTruncated, Err: fmt.Errorf("get %s: %d octets, listed with %d", quoted(o.key), n, o.size)}
	}
	return nil
}

func empty(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// disk tells what goes wrong with a file from what goes wrong with a connection.
type disk struct{ f *os.File }

func (d disk) Write(p []byte) (int, error) {
	n, err := d.f.Write(p)
	if err != nil {
		err = &mirror.Error{Class: mirror.ClassDisk, Err: err}
	}
	return n, err
}

// read yields what the lines of an object say.
func (s *Source) read(ctx context.Context, o object, spool *os.File, yield func(mirror.Row) error) error {
	var id []byte
	_, err := lists.Read(ctx, spool, o.size, o.key, s.settings, func(it *lists.Item) error {
		if it.Kind == lists.Skip {
			return nil
		}
		id = fmt.Appendf(id[:0], "%s:%d", o.key, it.Line)
		return yield(mirror.Row{Item: it, ID: string(id[max(0, len(id)-maxID):])})
	})
	if refusal, ok := errors.AsType[*lists.FileError](err); ok {
		class := mirror.ClassEncoding
		if refusal.Class == lists.Truncated {
			class = mirror.ClassTruncated
		}
		return &mirror.Error{Class: class, Err: errors.New(mirror.Said(refusal.Error(), s.where.secret))}
	}
	return err
}

// Plan says how the objects are read, after a look at which there are.
func (s *Source) Plan(ctx context.Context) (string, error) {
	objects, err := s.list(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "list bucket %s of %s%s, prefix %q\n", s.where.bucket, s.where.address, s.where.security(), s.where.prefix)
	sum := int64(0)
	for _, o := range objects {
		sum += o.size
	}
	fmt.Fprintf(&b, "get %d objects of %d octets in all, as format %s\n", len(objects), sum, cmp.Or(s.settings.Format, "auto"))
	const shown = 10
	for _, o := range objects[:min(shown, len(objects))] {
		fmt.Fprintf(&b, "  %s  %d octets  ETag %s\n", quoted(o.key), o.size, quoted(o.etag))
	}
	if len(objects) > shown {
		fmt.Fprintf(&b, "  and %d more\n", len(objects)-shown)
	}
	b.WriteString("changes: when key, ETag or size of an object differ, all objects are read again\n")
	return b.String(), nil
}
