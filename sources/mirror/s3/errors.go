package s3

import (
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/minio/minio-go/v7"

	"blockd/sources/mirror"
)

func refused(format string, args ...any) error {
	return &mirror.Error{Class: mirror.ClassRefused, Err: fmt.Errorf(format, args...)}
}

// fault gives an error its class. It shows what the store says, and neither the secret nor a URL.
func (s *Source) fault(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ours, ok := errors.AsType[*mirror.Error](err); ok { // of a disk
		return ours
	}
	class, text := judge(err)
	return &mirror.Error{Class: class, Err: fmt.Errorf("%s: %s", doing, mirror.Said(text, s.where.secret))}
}

func judge(err error) (mirror.Class, string) {
	if failed, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return judgeAnswer(failed)
	}
	inURL, ours := errors.AsType[*url.Error](err)
	if ours {
		err = inURL.Err
	}
	waited, isNet := errors.AsType[net.Error](err)
	_, unknown := errors.AsType[*tls.CertificateVerificationError](err)
	_, rubbish := errors.AsType[*xml.SyntaxError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), isNet && waited.Timeout():
		return mirror.ClassTimeout, "no answer in time"
	case unknown:
		return mirror.ClassAuth, err.Error() + "; hint: tls_ca=FILE names the authority"
	case rubbish && !strings.Contains(err.Error(), "unexpected EOF"):
		return mirror.ClassRefused, "the answer cannot be read: " + err.Error()
	case strings.Contains(strings.ToLower(err.Error()), "checksum"):
		return mirror.ClassTruncated, err.Error()
	case !ours && (isNet || rubbish || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)):
		return mirror.ClassTruncated, "the connection was cut: " + err.Error()
	}
	return mirror.ClassUnreachable, err.Error()
}

// judgeAnswer is about what the store has answered.
func judgeAnswer(failed minio.ErrorResponse) (mirror.Class, string) {
	text := failed.Code + ": " + failed.Error()
	switch failed.Code {
	case "NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "IllegalLocationConstraintException", "InvalidRegion":
		return mirror.ClassSchema, text + "; hint: look at the bucket, and at region= of the URL"
	case "RequestTimeTooSkewed":
		return mirror.ClassAuth, text + "; hint: look at the clock of this machine"
	case "AuthorizationHeaderMalformed":
		return mirror.ClassAuth, text + "; hint: look at region= of the URL"
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AllAccessDisabled", "AccountProblem":
		return mirror.ClassAuth, text + "; hint: the key wants s3:ListBucket and s3:GetObject"
	case "SlowDown", "RequestTimeout":
		return mirror.ClassRefused, text
	}
	switch code := failed.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return mirror.ClassAuth, text
	case code == http.StatusNotFound, code/100 == 3:
		return mirror.ClassSchema, text
	case code == http.StatusTooManyRequests, code/100 == 5:
		return mirror.ClassRefused, text
	}
	return mirror.ClassQuery, text
}

// quoted is a key as a part of a line.
func quoted(key string) string {
	if len(key) > 200 {
		key = key[:200] + "…"
	}
	if strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' || r == '"' || r == unicode.ReplacementChar }) {
		return strconv.Quote(key)
	}
	return key
}
