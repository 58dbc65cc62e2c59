package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"

	"github.com/minio/minio-go/v7"
)

// Bucket is a part of a bucket as a folder of files. It may be used from several goroutines at once.
type Bucket struct {
	*Source
	missing error
}

// OpenBucket judges a URL as Open does; it does not connect. The error of a file that is not there wraps missing.
func OpenBucket(dsn string, missing error) (*Bucket, error) {
	s, err := Open(Options{DSN: dsn})
	if err != nil {
		return nil, err
	}
	s.web.MaxConnsPerHost = 8
	return &Bucket{s, missing}, nil
}

// String says where it is, without the secret.
func (b *Bucket) String() string {
	return fmt.Sprintf("s3://%s/%s/%s", b.where.address, b.where.bucket, b.where.prefix)
}

func (b *Bucket) key(name string) string { return path.Join(b.where.prefix, name) }

// Get reads a file from an octet on. What it gives is bounded by nothing but the connection's time.
func (b *Bucket) Get(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	var o minio.GetObjectOptions
	if from > 0 {
		if err := o.SetRange(from, 0); err != nil {
			return nil, err
		}
	}
	body, _, _, err := b.store.GetObject(ctx, b.where.bucket, b.key(name), o)
	if err != nil {
		return nil, b.failed(ctx, "get", name, err)
	}
	return body, nil
}

// Put writes a file. changes: caches keep it for ten seconds, and else for ever.
func (b *Bucket) Put(ctx context.Context, name string, content io.ReadSeeker, size int64, changes bool) error {
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", CacheControl: "max-age=31536000, immutable", DisableMultipart: true}
	if changes {
		o.CacheControl = "max-age=10"
	}
	if path.Ext(name) == ".json" {
		o.ContentType = "application/json"
	}
	_, err := b.store.Client.PutObject(ctx, b.where.bucket, b.key(name), content, size, o)
	if err != nil {
		return b.failed(ctx, "put", name, err)
	}
	return nil
}

// Delete removes a file; one that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	err := b.store.RemoveObject(ctx, b.where.bucket, b.key(name), minio.RemoveObjectOptions{})
	if err = b.failed(ctx, "delete", name, err); err == nil || errors.Is(err, b.missing) {
		return nil
	}
	return err
}

func (b *Bucket) failed(ctx context.Context, doing, name string, err error) error {
	if err == nil {
		return nil
	}
	if answer := minio.ToErrorResponse(err); answer.Code == minio.NoSuchKey || answer.StatusCode == http.StatusNotFound && answer.Code != minio.NoSuchBucket {
		return fmt.Errorf("%s: %w", name, b.missing)
	}
	return b.fault(ctx, doing+" "+quoted(b.key(name)), err)
}
