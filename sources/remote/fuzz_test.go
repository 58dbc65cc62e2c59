package remote

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"blockd/internal/testkit"
)

// Whatever octets a server sends, the copy is what it was, or it is the whole
// body of a 200 that a plain reader of HTTP finds in them.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, answer []byte) {
		x := newFixture(t, Source{URL: "http://127.0.0.1/spam.txt", MaxBytes: 4096})
		x.write("old.example\n")
		x.raw(answers(string(answer)))
		err := x.Fetch(t.Context())
		have, readErr := os.ReadFile(x.path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		x.tidy()
		if err != nil {
			if !errors.As(err, new(*Error)) || len(err.Error()) > maxText+100 || strings.ContainsAny(err.Error(), "\r\n\x1b") {
				t.Errorf("refused, but with %q", err)
			}
			testkit.Equal(t, fmt.Sprintf("refused with %v, and yet the copy", err), string(have), "old.example\n")
			return
		}
		if want, ok := bodyOf(answer); !ok || !bytes.Equal(have, want) {
			t.Errorf("the copy is %q; a plain reader finds %q, %t", have, want, ok)
		}
	})
}

// bodyOf is the whole body of the answer, if it has one.
func bodyOf(answer []byte) ([]byte, bool) {
	in := bufio.NewReader(bytes.NewReader(answer))
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: "GET"})
		if err != nil {
			return nil, false
		}
		if resp.StatusCode/100 == 1 {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		return body, err == nil && resp.StatusCode == 200
	}
}

// A receipt, whoever wrote it, makes a condition only for the copy that it names,
// and only of what may stand in a header field.
func FuzzReceipt(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		x := newFixture(t, Source{URL: "https://lists.example/spam.txt"})
		s := x.sources[0]
		x.write(list)
		text = bytes.ReplaceAll(text, []byte("SOURCE"), []byte(s.key()))
		text = bytes.ReplaceAll(text, []byte("SUM"), []byte(sumOf(list)))
		testkit.Must(t, os.Mkdir(filepath.Dir(receiptPath(x.path)), 0o700))
		testkit.Write(t, receiptPath(x.path), text)
		sum, r, err := s.recall()
		if err != nil || sum != sumOf(list) {
			t.Fatalf("recall() = %s, %v", sum, err)
		}
		conditions := r.conditions(time.Now())
		for name, values := range conditions {
			if len(values) != 1 || !httpguts.ValidHeaderFieldValue(values[0]) || len(values[0]) > maxValidator {
				t.Errorf("%s: %q", name, values)
			}
		}
		var plain receipt
		if err := json.Unmarshal(text, &plain); conditions != nil && (err != nil || plain.Source != s.key() || plain.SHA256 != sumOf(list)) {
			t.Errorf("a condition from %q", text)
		}
	})
}

// What is found is in the text as 64 hex digits of their own, and finding it
// again in what sha256sum would print of it gives the same.
func FuzzFindSum(f *testing.F) {
	f.Fuzz(func(t *testing.T, text, name string) {
		sum, err := findSum(text, name)
		if err != nil {
			return
		}
		if _, err := hex.DecodeString(sum); err != nil || len(sum) != 64 || sum != strings.ToLower(sum) {
			t.Fatalf("findSum() = %q", sum)
		}
		if !regexp.MustCompile(`(?i)(^|[^0-9a-z])` + sum + `($|[^0-9a-z])`).MatchString(text) {
			t.Errorf("%s is not in %q", sum, text)
		}
		testkit.Equal(t, "again", testkit.Value(findSum(sum+"  "+name+"\n", name))(t), sum)
	})
}
