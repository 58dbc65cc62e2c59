package remote

import (
	"context"
	"net/url"
	"os"

	"blockd/internal/minisign"
)

// signature is Source.Signature, parsed: a public key of minisign, and where
// the signature is published. The zero signature accepts any file.
type signature struct {
	key minisign.PublicKey
	url *url.URL
}

func (s signature) expected() bool { return s.url != nil }

func parseSignature(text string, list *url.URL) (signature, error) {
	if text == "" {
		return signature{}, nil
	}
	key, err := minisign.ParsePublicKey(text)
	if err != nil {
		return signature{}, err
	}
	return signature{key, besideURL(list, minisign.Suffix)}, nil
}

// verifySignature reports why the file at path, a draft of s, is not what the
// owner of the key has signed. Like a checksum, the signature is fetched
// after the list.
func (f *Fetcher) verifySignature(ctx context.Context, s *source, path string) error {
	if !s.sig.expected() {
		return nil
	}
	text, err := f.beside(ctx, s, s.sig.url, Signature, "the signature file", minisign.MaxSignature)
	if err != nil {
		return err
	}
	signed, err := s.sig.key.Signature(text)
	if err != nil {
		return fault(Signature, "%w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := signed.Check(file); err == minisign.ErrContent {
		return fault(Signature, "%w", err)
	} else if err != nil {
		return err
	}
	return nil
}
