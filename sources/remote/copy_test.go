package remote

import (
	"bufio"
	"bytes"
	"context"
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
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"blockd/internal/testkit"
)

func TestTheCopyIsAnOrdinaryFileAndTheRestIsHidden(t *testing.T) {
	_, server := publish(t, list, `"1"`)
	folder := filepath.Join(t.TempDir(), "not", "there", "yet")
	x := newFixture(t, Source{URL: server.URL, Path: filepath.Join(folder, "spam.txt")})
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	x.fetch()
	if info, _ := x.stat(); info.Mode() != 0o640 {
		t.Errorf("mode %s, want 0644 less the umask", info.Mode())
	}
	info := testkit.Value(os.Stat(filepath.Dir(receiptPath(x.path))))(t)
	testkit.Equal(t, "the folder of the receipt", info.Mode(), 0o700|os.ModeDir)
	shown := testkit.Value(filepath.Glob(folder + "/[^.]*"))(t)
	testkit.Equal(t, "the folder shows", len(shown), 1)
}

func TestWhatCannotBeACopyIsLeftAlone(t *testing.T) {
	_, server := publish(t, list, "")
	tests := []struct {
		name string
		make func(path string) error
		text string
	}{
		{"a folder", func(path string) error { return os.Mkdir(path, 0o755) }, "no regular file"},
		{"a FIFO", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "no regular file"},
		{"a device", func(path string) error { return os.Symlink("/dev/zero", path) }, "no regular file"},
		{"a loop of symlinks", func(path string) error { return os.Symlink(path, path) }, "too many levels"},
		{"a path below a file", func(path string) error { return os.WriteFile(filepath.Dir(path), nil, 0o600) }, "not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			if strings.Contains(tt.name, "below") {
				folder = filepath.Join(folder, "file")
			}
			x := newFixture(t, Source{URL: server.URL, Path: filepath.Join(folder, "spam.txt")})
			testkit.Must(t, tt.make(x.path))
			x.isError(x.Fetch(t.Context()), Disk, tt.text)
			x.counted(0, 0, 1, 0)
			x.tidy()
		})
	}
}

func TestACopyThatIsTooLargeIsReplacedUnread(t *testing.T) {
	p, server := publish(t, list, `"1"`)
	x := newFixture(t, Source{URL: server.URL, MaxBytes: 1000})
	x.fetch()
	if err := os.Truncate(x.path, 1<<40); err != nil {
		t.Skip("the file system has no large sparse files:", err)
	}
	x.fetch()
	x.holds(list)
	testkit.Equal(t, "requests without a condition", p.whole.Load(), 2)
}

// The disk ends while the file comes: a limit of the process stands for it.
func TestAFullDiskLeavesTheOldCopy(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	_, server := publish(t, strings.Repeat(list, 1_000_000), "")
	x := newFixture(t, Source{URL: server.URL})
	x.write("old.example\n")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Skip(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: limit.Max}); err != nil {
		t.Skip(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	x.refuses(Disk, "file too large")
	x.holds("old.example\n")
}

func TestAValidatorThatCannotBeSentIsForgotten(t *testing.T) {
	for _, bad := range []string{"a\r\nX-Injected: yes", "\x00", "\x7f", strings.Repeat("x", maxValidator+1)} {
		testkit.Equal(t, fmt.Sprintf("validator(%q)", bad), validator(bad), "")
	}
	// From a receipt that somebody has written.
	p, server := publish(t, list, `"1"`)
	x := newFixture(t, Source{URL: server.URL})
	x.fetch()
	text := testkit.Read(t, receiptPath(x.path))
	testkit.Write(t, receiptPath(x.path), strings.Replace(string(text), `\"1\"`, `1\r\nX-Injected: yes`, 1))
	x.fetch()
	x.holds(list)
	testkit.Equal(t, "requests", p.requests.Load(), 2)
}

func TestDraftsOfACrashAreRemoved(t *testing.T) {
	_, server := publish(t, list, "")
	x := newFixture(t, Source{URL: server.URL})
	folder := filepath.Join(filepath.Dir(x.path), HiddenFolder)
	testkit.Must(t, os.Mkdir(folder, 0o700))
	for name, age := range map[string]time.Duration{
		"OLD" + draftMark:   2 * time.Hour,
		"YOUNG" + draftMark: 0, // another daemon is writing it
		"other.json":        2 * time.Hour,
	} {
		path := testkit.Write(t, filepath.Join(folder, name), "")
		at := time.Now().Add(-age)
		testkit.Must(t, os.Chtimes(path, at, at))
	}
	stop := testkit.Running(t, func(ctx context.Context) { x.Run(ctx) })
	for x.log.String() == "" {
		<-time.After(time.Millisecond)
	}
	stop()
	entries := testkit.Value(os.ReadDir(folder))(t)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := fmt.Sprint([]string{"YOUNG" + draftMark, "other.json", "spam.txt.json"})
	testkit.Equal(t, "the folder has", fmt.Sprint(names), want)
}

// Two daemons keep one copy of a list that changes all the time. Who reads sees
// one of its states, and when it has come to rest, both have the last one.
func TestTwoFetchersOfOneCopyAreHarmless(t *testing.T) {
	state := func(n int) string { return strings.Repeat(fmt.Sprintf("n%d.example\n", n), 5000) }
	valid := map[string]bool{}
	for n := range 100 {
		valid[state(n)] = true
	}
	p, server := publish(t, state(0), `"0"`)
	s := Source{URL: server.URL}
	x := newFixture(t, s)
	y := x.again(s)
	x.fetch()
	var wg sync.WaitGroup
	for _, f := range []*fixture{x, y} {
		wg.Go(func() {
			for n := range 50 {
				p.set(state(n), fmt.Sprintf(`"%d"`, n))
				testkit.Should(t, f.Fetch(t.Context()))
				if text, err := os.ReadFile(x.path); err != nil || !valid[string(text)] {
					t.Errorf("the copy is no state of the list: %d octets, %v", len(text), err)
				}
			}
		})
	}
	wg.Wait()
	p.set(state(99), `"99"`)
	x.fetch()
	y.fetch()
	x.holds(state(99))
	x.tidy()
}

func TestFaultsOfTheSettings(t *testing.T) {
	good := Source{Name: "spam", URL: "https://lists.example/spam.txt", Path: "spam.txt"}
	tests := []struct {
		name   string
		change func(*Source)
		want   string // "": none
	}{
		{"nothing wrong", func(*Source) {}, ""},
		{"no URL", func(s *Source) { s.URL = "" }, "url: want https://HOST/FILE"},
		{"a file", func(s *Source) { s.URL = "file:///etc/passwd" }, "url: want https://HOST/FILE"},
		{"no host", func(s *Source) { s.URL = "https:///spam.txt" }, "url: want https://HOST/FILE"},
		{"capitals", func(s *Source) { s.URL = "HTTPS://Lists.Example/spam.txt" }, ""},
		{"plain http", func(s *Source) { s.URL = "http://lists.example/" }, "url: anybody on the way can change what comes over http://; want https://"},
		{"plain http, allowed", func(s *Source) { s.URL, s.Insecure = "http://lists.example/", true }, ""},
		{"plain http on this machine", func(s *Source) { s.URL = "http://127.9.9.9:8080/" }, ""},
		{"plain http on this machine, IPv6", func(s *Source) { s.URL = "http://[::1]/" }, ""},
		{"plain http on this machine, mapped", func(s *Source) { s.URL = "http://[::ffff:127.0.0.1]/" }, ""},
		{"plain http on localhost", func(s *Source) { s.URL = "http://localhost/" }, ""},
		{"a name that begins like this machine", func(s *Source) { s.URL = "http://127.0.0.1.lists.example/" }, "url: anybody on the way can change what comes over http://; want https://"},
		{"no path", func(s *Source) { s.Path = "" }, "path: is missing; want the file that is to hold the copy"},
		{"too often", func(s *Source) { s.Every = time.Second }, "every: want 1m0s to 744h0m0s, have 1s"},
		{"never", func(s *Source) { s.Every = 1 << 62 }, "every: want 1m0s to 744h0m0s, have 1281023h53m38.427387904s"},
		{"backwards", func(s *Source) { s.Timeout = -1 }, "limits: timeout and size cannot be negative"},
		{"a checksum of another kind", func(s *Source) { s.Checksum = "md5:.md5" }, `checksum: want "sha256:" and 64 hex digits, an ending such as ".sha256", a file name, or a URL`},
		{"a checksum of nothing", func(s *Source) { s.Checksum = "sha256:" }, `checksum: want "sha256:" and 64 hex digits, an ending such as ".sha256", a file name, or a URL`},
		{"a checksum over plain http", func(s *Source) { s.Checksum = "sha256:http://lists.example/sums" }, "checksum: anybody on the way can change what comes over http://; want https://"},
		{"all at once", func(s *Source) { s.URL, s.Path, s.Every = "", "", 1 }, "every: want 1m0s to 744h0m0s, have 1ns\n" +
			"path: is missing; want the file that is to hold the copy\nurl: want https://HOST/FILE"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good
			tt.change(&s)
			got := ""
			if err := s.Validate(); err != nil {
				got = err.Error()
			}
			testkit.Equal(t, "Validate", got, tt.want)
		})
	}
	for _, twin := range []Source{{Name: "spam", Path: "other"}, {Name: "other", Path: "./spam.txt"}} {
		twin.URL = good.URL
		_, err := New(Settings{Sources: []Source{good, twin}}, nil, nil)
		testkit.Got(err)(t, "New() with a twin", "…list "+twin.Name+": the name or the path…")
	}
}

func TestFetchReportsEverySource(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/good" {
			io.WriteString(w, list)
			return
		}
		http.NotFound(w, r)
	})
	folder := t.TempDir()
	x := newFixture(t, Source{URL: server.URL}, func(s *Settings) {
		s.Sources = nil
		for _, name := range []string{"bad", "good", "worse"} {
			s.Sources = append(s.Sources, Source{Name: name, URL: server.URL + "/" + name, Path: filepath.Join(folder, name)})
		}
	})
	err := x.Fetch(t.Context())
	want := "list bad: status: the server answers 404 Not Found\nlist worse: status: the server answers 404 Not Found"
	testkit.Equal(t, "Fetch()", fmt.Sprint(err), want)
	testkit.Equal(t, "the good list", string(testkit.Value(os.ReadFile(filepath.Join(folder, "good")))(t)), list)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	testkit.Equal(t, "Fetch()", x.Fetch(ctx), context.Canceled)
}

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
