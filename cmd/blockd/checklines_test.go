package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/race"
	"blockd/policy"
	"blockd/policy/printout"
)

// testPipeline is a pipeline over an index that blocks bad.example.
func testPipeline(t testing.TB, workers int) (pipeline, *index.Index) {
	t.Helper()
	list := indexes.Source(t, "bad", "bad.example\n")
	ix := indexes.BuildAt(t, strings.TrimSuffix(list.Path, ".txt")+".bdx", list)
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return pipeline{
		newAnswerer: func() answerer { return &printout.Asker{Checker: checker} },
		promote:     func(ctx context.Context) { ix.Promote(ctx) },
		workers:     workers,
	}, ix
}

func TestAnswersStandInTheOrderOfTheLines(t *testing.T) {
	const n = 60_000 // many blocks
	var in, want strings.Builder
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		if rng.IntN(3) == 0 {
			fmt.Fprintf(&in, "x%d@mx.bad.example\n", i)
			fmt.Fprintf(&want, "x%d@mx.bad.example\tblocked\tbad:1\tbad.example\t\n", i)
		} else {
			fmt.Fprintf(&in, "x%d@clear.example\r\n", i)
			fmt.Fprintf(&want, "x%d@clear.example\tclear\t\t\t\n", i)
		}
	}
	for _, workers := range []int{1, 2, 7} {
		p, _ := testPipeline(t, workers)
		for name, r := range map[string]io.Reader{
			"as it comes": strings.NewReader(in.String()), "in halves": iotest.HalfReader(strings.NewReader(in.String())),
		} {
			var out bytes.Buffer
			if blocked, err := p.run(t.Context(), r, &out); err != nil || !blocked || out.String() != want.String() {
				t.Errorf("%d workers, input %s: blocked %v, %v, %d bytes of answers, want %d", workers, name, blocked, err, out.Len(), want.Len())
			}
		}
	}
}

func TestLinesAreCutAlike(t *testing.T) {
	race.Skip(t)
	long := strings.Repeat("a", maxSender)
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"one line", "a\n", "a\n"},
		{"no line end at the end", "a\nb", "a\nb\n"},
		{"empty lines", "\n\na\n", "\n\na\n"},
		{"a line of the limit", long[1:] + "\nb\n", long[1:] + "\nb\n"},
		{"one octet more", long + "\nb\n", long + "\nb\n"},
		{"much longer", strings.Repeat(long, 20) + "\nb\n", long + "\nb\n"},
		{"much longer, without an end", "b\n" + strings.Repeat(long, 20), "b\n" + long + "\n"},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "octet by octet": iotest.OneByteReader,
			"with the end": iotest.DataErrReader,
		} {
			var got strings.Builder
			err := eachBlock(wrap(strings.NewReader(tt.in)), func(lines []byte) error {
				for line := range bytes.Lines(lines) {
					text := bytes.TrimSuffix(line, []byte("\n"))
					got.Write(append(text[:min(len(text), maxSender):min(len(text), maxSender)], '\n'))
				}
				return nil
			})
			if err != nil || got.String() != tt.want {
				t.Errorf("%s, %s: %v, %d octets, want %d", tt.name, how, err, got.Len(), len(tt.want))
			}
		}
	}
	testkit.IsError(t, "a read error comes out as", eachBlock(iotest.ErrReader(io.ErrClosedPipe), nil), io.ErrClosedPipe)
}

func TestPipelineEndsEarly(t *testing.T) {
	p, ix := testPipeline(t, 2)
	endless := func() io.Reader { return endlessReader("x@bad.example\n") }
	testkit.Fails(p.run(t.Context(), endless(), brokenWriter{}))(t, "nobody reads the answers", io.ErrClosedPipe)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent, _ := io.Pipe()
	testkit.Fails(p.run(ctx, silent, io.Discard))(t, "an ended context, and a silent input", context.Canceled)
	name := ix.Lists()[0].Source.Path
	testkit.Must(t, os.Truncate(strings.TrimSuffix(name, ".txt")+".bdx", 8192))
	var out bytes.Buffer
	if _, err := p.run(t.Context(), endless(), &out); !errors.Is(err, index.ErrRead) || !strings.Contains(out.String(), "\tunknown\t") ||
		strings.Count(out.String(), "\n") > 1 {
		t.Errorf("an index that was cut off: %v, %.200q", err, out.String())
	}
}

type endlessReader string

func (r endlessReader) Read(b []byte) (n int, err error) {
	for len(b)-n >= len(r) {
		n += copy(b[n:], r)
	}
	return n, nil
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
