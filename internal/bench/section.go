package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// section is what a command puts into performance.md, between two comments that say
// which run is written there.
type section struct {
	mark   string // "bench smtp -n 1000"
	target string // of make, which writes it
	text   string
	plot   []byte // an SVG beside the document; nil = none
	image  string // its file
}

// publish prints the text, and puts it and the plot into the documents where
// performance.md has a place for such a run.
func (s section) publish(docs string, stdout io.Writer) error {
	if _, err := io.WriteString(stdout, s.text); err != nil {
		return err
	}
	path := filepath.Join(docs, "performance.md")
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	document, ok := replaceBetween(document, s.begin(), s.end(), s.text)
	if !ok {
		fmt.Fprintf(stdout, "\n%s stays as it is: it has no %q before %q\n", path, s.begin(), s.end())
		return nil
	}
	if s.plot != nil {
		if err := os.WriteFile(filepath.Join(docs, s.image), s.plot, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, document, 0o644)
}

func (s section) begin() string {
	return fmt.Sprintf("<!-- %s: written by make %s -->", s.mark, s.target)
}

func (s section) end() string { return fmt.Sprintf("<!-- %s: end -->", s.mark) }

// replaceBetween puts text between the lines begin and end.
func replaceBetween(document []byte, begin, end, text string) ([]byte, bool) {
	before, rest, ok := bytes.Cut(document, []byte(begin+"\n"))
	if !ok {
		return document, false
	}
	_, after, ok := bytes.Cut(rest, []byte(end+"\n"))
	if !ok {
		return document, false
	}
	var b bytes.Buffer
	b.Write(before)
	fmt.Fprintf(&b, "%s\n\n%s\n%s\n", begin, text, end)
	b.Write(after)
	return b.Bytes(), true
}
