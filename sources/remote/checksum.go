package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// checksum is Source.Checksum, parsed. The zero checksum accepts any file.
type checksum struct {
	sum string   // that the file must have, in lower case hex
	url *url.URL // or where it is published
}

func (c checksum) expected() bool { return c != checksum{} }

func parseChecksum(text string, list *url.URL) (checksum, error) {
	where, ok := strings.CutPrefix(text, "sha256:")
	digest := digestLine.FindStringSubmatch(where)
	switch {
	case text == "":
		return checksum{}, nil
	case !ok || where == "":
		return checksum{}, errors.New(`want "sha256:" and 64 hex digits, an ending such as ".sha256", a file name, or a URL`)
	case digest != nil && digest[1] == where:
		return checksum{sum: strings.ToLower(where)}, nil
	case strings.HasPrefix(where, ".") && !strings.Contains(where, "/"):
		return checksum{url: besideURL(list, where)}, nil
	}
	reference, err := parseURL(where)
	if err != nil {
		return checksum{}, err
	}
	return checksum{url: list.ResolveReference(reference)}, nil
}

// verify reports why sum is not the checksum of s. The published checksum is fetched
// after the list. If the publisher replaces both in between, they never agree by
// mistake; the next fetch finds both new.
func (f *Fetcher) verify(ctx context.Context, s *source, sum string) error {
	want := s.sum.sum
	if s.sum.url != nil {
		var err error
		if want, err = f.published(ctx, s); err != nil {
			return err
		}
	}
	if want != "" && sum != want {
		return fault(Checksum, "the file's sha256 is %s, published is %s", sum, want)
	}
	return nil
}

// besideURL is that of a file whose name is the list's and an ending.
func besideURL(list *url.URL, ending string) *url.URL {
	beside := *list
	beside.Path += ending
	beside.RawPath += ending // if list has none this is none either: it does not fit Path
	return &beside
}

// beside fetches a file that tells about s, of so many octets at most; what is its name for people.
func (f *Fetcher) beside(ctx context.Context, s *source, u *url.URL, c Class, what string, most int) ([]byte, error) {
	resp, err := f.get(ctx, s, u, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, badStatus(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err == nil && len(text) > most {
		err = fault(c, "%s is larger than %d octets", what, most)
	}
	return text, err
}

// maxChecksums bounds a file of checksums: some 10,000 lines.
const maxChecksums = 1 << 20

// published fetches the checksum of s.
func (f *Fetcher) published(ctx context.Context, s *source) (sum string, err error) {
	text, err := f.beside(ctx, s, s.sum.url, Checksum, "the file of checksums", maxChecksums)
	if err != nil {
		return "", err
	}
	if sum, err = findSum(string(text), path.Base(s.url.Path)); err != nil {
		return "", fault(Checksum, "%w", err)
	}
	return sum, nil
}

// digestLine is a line of sha256sum(1), "HEX  NAME" or "HEX *NAME", without
// --tag or with it, "SHA256 (NAME) = HEX"; or a digest alone.
var digestLine = regexp.MustCompile(`^\\?([0-9a-fA-F]{64})(?:\s+\*?(.*))?$|^SHA256 ?\((.*)\) ?= ?([0-9a-fA-F]{64})$`)

// findSum finds the digest of the file of that name, in any folder. In a file of one
// digest the name does not matter: publishers rename files after they have summed
// them, and the digest of another file cannot agree by accident. findSum skips other
// lines, such as those of a signature around the digests.
func findSum(text, name string) (string, error) {
	all, named := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(text) {
		if m := digestLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			sum := strings.ToLower(m[1] + m[4])
			all[sum] = true
			if path.Base(m[2]+m[3]) == name {
				named[sum] = true
			}
		}
	}
	if len(named) == 0 && len(all) == 1 {
		named = all
	}
	for sum := range named {
		if len(named) == 1 {
			return sum, nil
		}
	}
	return "", fmt.Errorf("the file of checksums has %d sha256 for %q", len(named), name)
}
