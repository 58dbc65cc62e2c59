package lists_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/zeebo/xxh3"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
)

func none(*lists.Item) error { return nil }

// refused reads path and returns the class by which it was refused.
func refused(t *testing.T, path string, s lists.Settings) lists.Class {
	t.Helper()
	sum, err := lists.ReadFile(t.Context(), path, s, none)
	fe, ok := errors.AsType[*lists.FileError](err)
	if !ok {
		t.Fatalf("ReadFile(%s) = %+v, %v; want a *FileError", path, sum, err)
	}
	if fe.Path != path || sum.Verdict != lists.Refused || !strings.HasPrefix(sum.Why, string(fe.Class)+": ") ||
		strings.ContainsAny(err.Error(), "\n\x00") || fe.Class == lists.Changed != errors.Is(err, lists.ErrChanged) {
		t.Errorf("ReadFile(%s) = %+v, %v", path, sum, err)
	}
	return fe.Class
}

// TestOpenRefusesAtOnce would hang, not fail, if an open blocked.
func TestOpenRefusesAtOnce(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		testkit.Must(t, err)
	}
	must(os.WriteFile(at("list"), []byte("bulk.test\n"), 0o600))
	must(os.Symlink("list", at("link")))
	must(os.Symlink("link", at("link-to-link")))
	must(os.Symlink("gone", at("dangling")))
	must(os.Symlink("loop", at("loop")))
	must(os.Symlink(dir, at("link-to-folder")))
	must(syscall.Mkfifo(at("fifo"), 0o600))
	must(os.Symlink("fifo", at("link-to-fifo")))
	must(os.WriteFile(at("secret"), []byte("bulk.test\n"), 0))
	sock, err := net.Listen("unix", at("socket"))
	must(err)
	defer sock.Close()

	tests := []struct {
		name string
		want lists.Class
	}{
		{"link", ""}, {"link-to-link", ""},
		{"gone", lists.Missing}, {"dangling", lists.Missing}, {"list/below", lists.Missing},
		{"loop", lists.Symlink},
		{"", lists.Directory}, {"link-to-folder", lists.Directory},
		{"fifo", lists.NotAFile}, {"link-to-fifo", lists.NotAFile}, {"socket", lists.NotAFile},
		{"../../../../../../../../dev/null", lists.NotAFile},
	}
	if os.Geteuid() != 0 {
		tests = append(tests, struct {
			name string
			want lists.Class
		}{"secret", lists.Permission})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want != "" {
				testkit.Equal(t, "refused as", refused(t, at(tt.name), lists.Settings{}), tt.want)
				_, err := lists.HashFile(t.Context(), at(tt.name))
				if fe, ok := errors.AsType[*lists.FileError](err); !ok || fe.Class != tt.want {
					t.Errorf("HashFile: %v, want %s", err, tt.want)
				}
				return
			}
			if sum, err := lists.ReadFile(t.Context(), at(tt.name), lists.Settings{}, none); err != nil || sum.Entries != 1 {
				t.Errorf("%+v, %v", sum, err)
			}
		})
	}
}

func TestFileThatChangesWhileItIsRead(t *testing.T) {
	big := strings.Repeat("bulk.test\n", 50_000) // more than is read ahead
	for _, tt := range []struct {
		name   string
		change func(path string) error
	}{
		{"appended to", func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("late.test\n")
			return err
		}},
		{"truncated", func(path string) error { return os.Truncate(path, 20) }},
		{"other content, same size", func(path string) error {
			if err := os.WriteFile(path, []byte(strings.Repeat("shop.test\n", 50_000)), 0o600); err != nil {
				return err
			}
			return os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute))
		}},
		{"truncated, same time", func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.Truncate(path, 20); err != nil {
				return err
			}
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		}},
		{"replaced", func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+".new", []byte(big), 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(path+".new", info.ModTime(), info.ModTime()); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}},
		{"removed", os.Remove},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.File(t, "list", big)
			changed := false
			sum, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: "plain"}, func(*lists.Item) error {
				if changed {
					return nil
				}
				changed = true
				return tt.change(path)
			})
			if !errors.Is(err, lists.ErrChanged) || sum.Verdict != lists.Refused || !strings.HasPrefix(sum.Why, "changed: ") {
				t.Errorf("%+v, %v; want ErrChanged", sum, err)
			}
		})
	}
}

func TestTornFileThatChangedIsChanged(t *testing.T) {
	path := testkit.File(t, "list", `["a.test", "b.test`) // a writer in the middle of its work
	_, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: "json"}, func(*lists.Item) error {
		return os.WriteFile(path, []byte(`["a.test", "b.test"]`), 0o600)
	})
	testkit.IsError(t, "a torn file", err, lists.ErrChanged)
}

func TestErrorsOfTheCallerComeBackAsTheyAre(t *testing.T) {
	stop := errors.New("enough")
	for _, tt := range []struct{ format, text string }{
		{"plain", "a.test\nb.test\n"}, {"postfix", "a.test OK\nb.test OK\n"}, {"hosts", "a.test\nb.test\n"}, {"adblock", "a.test\nb.test\n"},
		{"csv", "a.test,\nb.test,\n"}, {"json", `["a.test","b.test"]`}, {"json", `{"block":["a.test"],"x":1,"deny":["b.test"]}`}, {"json:k", `[{"k":"a.test"},{"k":"b.test"}]`},
	} {
		n := 0
		_, err := lists.ReadFile(t.Context(), testkit.File(t, "list", tt.text), lists.Settings{Format: tt.format}, func(*lists.Item) error {
			n++
			return stop
		})
		if err != stop || n != 1 {
			t.Errorf("%s: %v after %d items, want %v after 1", tt.format, err, n, stop)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	big := testkit.File(t, "list", strings.Repeat("bulk.test\n", 100_000))
	sum, err := lists.ReadFile(ctx, big, lists.Settings{}, func(*lists.Item) error { cancel(); return nil })
	if err != context.Canceled || sum.Verdict != lists.Refused {
		t.Errorf("%v, %+v; want %v", err, sum, context.Canceled)
	}
	if _, err := lists.HashFile(ctx, big); err != context.Canceled {
		t.Errorf("HashFile: %v, want %v", err, context.Canceled)
	}
}

func TestHashIsOfTheStoredOctets(t *testing.T) {
	for _, stored := range []string{"", "bulk.test\n", pack(t, "bulk.test\n"), "\xff\xfeb\x00.\x00t\x00"} {
		path := testkit.File(t, "list", stored)
		sum := testkit.Value(lists.ReadFile(t.Context(), path, lists.Settings{}, none))(t)
		hash, err := lists.HashFile(t.Context(), path)
		if want := xxh3.Hash128([]byte(stored)).Bytes(); err != nil || sum.Hash != want || hash != want || sum.Size != int64(len(stored)) {
			t.Errorf("%q: ReadFile %x (%d octets), HashFile %x, %v; want %x", stored, sum.Hash, sum.Size, hash, err, want)
		}
	}
}

// pack gzips each text as a member of its own.
func pack(t testing.TB, texts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, text := range texts {
		w := gzip.NewWriter(&b)
		testkit.Value(w.Write([]byte(text)))(t)
		testkit.Must(t, w.Close())
	}
	return b.String()
}

func TestGzip(t *testing.T) {
	whole := pack(t, "a.test\nb.te", "st\n")
	for _, tt := range []struct {
		name, stored string
		want         lists.Class
	}{
		{"several members are one stream", whole, ""},
		{"empty", pack(t, ""), ""},
		{"truncated in the data", whole[:len(whole)-12], lists.Truncated},
		{"truncated in the trailer", whole[:len(whole)-1], lists.Truncated},
		{"truncated in the header", whole[:5], lists.Truncated},
		{"wrong checksum", pack(t, "a.test\n")[:len(pack(t, "a.test\n"))-8] + "\x00\x00\x00\x00\x07\x00\x00\x00", lists.Gzip},
		{"wrong length", pack(t, "a.test\n")[:len(pack(t, "a.test\n"))-1] + "\x01", lists.Gzip},
		{"trailing garbage", whole + "garbage that is long enough", lists.Gzip},
		{"short trailing garbage", whole + "\x00", lists.Gzip},
		{"wrong method", "\x1f\x8b\x07" + whole[3:], lists.Gzip},
		{"damaged block", whole[:10] + "\xff\xff\xff" + whole[13:], lists.Gzip},
		{"gzip inside gzip", pack(t, whole), lists.Binary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.File(t, "list", tt.stored)
			if tt.want != "" {
				if got := refused(t, path, lists.Settings{Format: "plain"}); got != tt.want && !(tt.name == "short trailing garbage" && got == lists.Truncated) {
					t.Errorf("refused as %s, want %s", got, tt.want)
				}
			} else if sum, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: "plain"}, none); err != nil || sum.Entries > 2 {
				t.Errorf("%+v, %v", sum, err)
			}
		})
	}
}

func TestExpansionIsBounded(t *testing.T) {
	race.Skip(t)
	var bomb bytes.Buffer
	w := testkit.Value(gzip.NewWriterLevel(&bomb, gzip.BestCompression))(t)
	block := []byte(strings.Repeat("#"+strings.Repeat("x", 1022)+"\n", 1<<10))
	for range 65 { // MiB: just over what is free
		w.Write(block)
	}
	w.Close()
	path := testkit.File(t, "list", bomb.String())
	if got := refused(t, path, lists.Settings{Format: "plain"}); got != lists.TooBig {
		t.Errorf("a bomb of %d octets is refused as %s", bomb.Len(), got)
	}
	for _, stored := range []string{strings.Repeat("a.test\n", 10), pack(t, strings.Repeat("a.test\n", 10))} {
		path := testkit.File(t, "list", stored)
		if got := refused(t, path, lists.Settings{Format: "plain", MaxBytes: 69}); got != lists.TooBig {
			t.Errorf("70 octets of at most 69: refused as %s", got)
		}
		if _, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: "plain", MaxBytes: 70}, none); err != nil {
			t.Errorf("70 octets of at most 70: %v", err)
		}
	}
}

// utf16Text encodes text with a byte order mark.
func utf16Text(order binary.AppendByteOrder, text string) string {
	b := order.AppendUint16(nil, 0xfeff)
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

func TestEncodings(t *testing.T) {
	const text = "# \U0001F600\r\nb\u00fccher.test\r\npromo@bulk.test\r\n"
	want := []string{"skip comment", "domain xn--bcher-kva.test tree block", "addr promo@bulk.test exact block"}
	for _, tt := range []struct{ name, stored string }{
		{"UTF-8", text},
		{"UTF-8 with a mark", "\ufeff" + text},
		{"UTF-16, little end first", utf16Text(binary.LittleEndian, text)},
		{"UTF-16, big end first", utf16Text(binary.BigEndian, text)},
		{"UTF-16 in gzip", pack(t, utf16Text(binary.LittleEndian, text))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, taken(t, tt.stored, lists.Settings{Format: "plain"}), want)
		})
	}
	half := "\xff\xfe" + "a\x00.\x00t\x00\n\x00" + "x\x00\x00\xd8.\x00t\x00\n\x00" + "\x00\xd8\n\x00" + "z\x00.\x00t\x00"
	got := taken(t, half, lists.Settings{Format: "plain"})
	equal(t, got, []string{"domain a.t tree block", "err bad-utf8", "err bad-utf8", "domain z.t tree block"})
}

func TestWhatIsNoTextIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, stored string
		want         lists.Class
	}{
		{"page", "<!DOCTYPE html>\n<p>not found", lists.HTML},
		{"page behind blanks and a mark", "\ufeff \r\n<HTML lang=en>", lists.HTML},
		{"page that begins with a comment", "<!-- 404 -->", lists.HTML},
		{"XML", "<?xml version='1.0'?>", lists.HTML},
		{"cut page", "<html", lists.HTML},
		{"address that begins like a page", "<html@bulk.test>\n", ""},
		{"zip", "PK\x03\x04 and more", lists.Binary},
		{"zstd", "\x28\xb5\x2f\xfd and more", lists.Binary},
		{"ELF", "\x7fELF and more", lists.Binary},
		{"PDF", "%PDF-1.7\n", lists.Binary},
		{"controls", strings.Repeat("bulk.tes\x01\n", 100) + "\x02\x03", lists.Binary},
		{"a few controls", strings.Repeat("bulk.test\n", 100) + "\x02\x03\n", ""},
		{"UTF-16 without a mark", utf16Text(binary.LittleEndian, "bulk.test\n")[2:], lists.Encoding},
		{"UTF-16 without a mark, big end first", utf16Text(binary.BigEndian, "bulk.test\n")[2:], lists.Encoding},
		{"UTF-16 with an odd octet", utf16Text(binary.LittleEndian, "bulk.test\n") + "x", lists.Encoding},
		{"UTF-32", "\xff\xfe\x00\x00b\x00\x00\x00", lists.Encoding},
		{"NULs", strings.Repeat("\x00", 100), lists.Binary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.File(t, "list", tt.stored)
			if tt.want == "" {
				if sum, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: "plain"}, none); err != nil || sum.Entries == 0 {
					t.Errorf("%+v, %v", sum, err)
				}
			} else if got := refused(t, path, lists.Settings{Format: "plain"}); got != tt.want {
				t.Errorf("refused as %s, want %s", got, tt.want)
			}
		})
	}
}

func TestLineEnds(t *testing.T) {
	want := []string{"domain a.test tree block", "domain b.test tree block"}
	for _, text := range []string{"a.test\nb.test\n", "a.test\nb.test", "a.test\r\nb.test\r\n", "a.test\r\nb.test\n", "a.test\rb.test\r", "a.test\rb.test"} {
		got, sum, err := items(t, text, lists.Settings{Format: "plain"})
		if err != nil || sum.Lines != 2 {
			t.Errorf("%q: %d lines, %v", text, sum.Lines, err)
		}
		equal(t, got, want)
	}
	// The only LF stands far behind the first CR: every CR is a fault then.
	text := strings.Repeat("a", 80_000) + "\rb.test" + strings.Repeat("\rc.test", 10_000) + "\nlast.test"
	equal(t, taken(t, text, lists.Settings{Format: "plain"}), []string{"err too-long", "domain last.test tree block"})
}

func TestFileVerdicts(t *testing.T) {
	for _, tt := range []struct{ name, format, text, want string }{
		{"nothing", "plain", "", "loaded plain 0 0 0 0 empty"},
		{"nothing, guessed", "auto", "", "loaded plain 0 0 0 0 empty"},
		{"comments", "auto", "# a\n\n; b\n", "loaded plain 3 0 0 0 empty"},
		{"errors and entries", "plain", "a..test\nb.test\n", "loaded plain 2 1 1 0 "},
		{"only errors", "plain", "a..test\n# x\n", "refused plain 2 0 1 0 only-errors: 1 refused lines and no entry; wrong format?"},
		{"skipped lines", "hosts", "# x\n127.0.0.1 localhost\n127.0.0.1 localhost bulk.test\n", "loaded hosts 3 1 0 1 "},
		{"argument", "csv:2", "x,bulk.test\n", "loaded csv:2 1 1 0 0 "},
		{"unknown format", "bind", "x", `refused  0 0 0 0 format: unknown format "bind", want one of plain, hosts, adblock, dnsmasq, unbound, postfix, sendmail, spamassassin, rspamd, rbldnsd, rpz, csv, json, drop, entries, lsearch, auto`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, s, _ := items(t, tt.text, lists.Settings{Format: tt.format})
			got := fmt.Sprintf("%s %s %d %d %d %d %s", s.Verdict, s.Format, s.Lines, s.Entries, s.Errors, s.Skipped, s.Why)
			testkit.Equal(t, "class", got, tt.want)
		})
	}
}

func TestFileErrorIsOneLine(t *testing.T) {
	for _, tt := range []struct {
		err  lists.FileError
		want string
	}{
		{lists.FileError{Path: "l.txt", Class: lists.Missing, Err: fs.ErrNotExist}, "l.txt: missing: file does not exist"},
		{lists.FileError{Path: "l.txt", Line: 7, Class: lists.JSON, Err: errors.New("torn")}, "l.txt:7: json: torn"},
		{lists.FileError{Path: "a\nb", Class: lists.Gzip, Err: errors.New("x")}, `"a\nb": gzip: x`},
	} {
		testkit.Equal(t, "tt.err.Error()", tt.err.Error(), tt.want)
	}
}

func TestAuto(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"hosts", "# x\n127.0.0.1 localhost\n0.0.0.0 a.test\n0.0.0.0 b.test # y\n", `auto: hosts, 3 of 3 lines are "0.0.0.0 NAME"`},
		{"hosts, first 200 lines", strings.Repeat("# c\n0.0.0.0 a.test\n", 300), `auto: hosts, 200 of 200 lines are "0.0.0.0 NAME"`},
		{"hosts with 1 in 20 odd", strings.Repeat("0.0.0.0 a.test\n", 19) + "no..name\n", `auto: hosts, 19 of 20 lines are "0.0.0.0 NAME"`},
		{"hosts with more", strings.Repeat("0.0.0.0 a.test\n", 18) + "no..name\n", "ambiguous: only 18 of the first 19 lines fit hosts; declare its format"},
		{"adblock", "! Title\n||a.test^\n@@||b.test^\na.test##.ad\n", `auto: adblock, 3 of 3 lines are rules like "||NAME^"`},
		{"postfix", "a.test REJECT\n.b.test 550 no\nc.test\tOK\n", `auto: postfix, 3 of 3 lines are "NAME ACTION"`},
		{"postfix with continuations", "a.test REJECT x\n  y\n  z\nb.test OK\n", `auto: postfix, 4 of 4 lines are "NAME ACTION"`},
		{"plain", "a.test\npromo@b.test\n198.51.100.7\n198.51.100.0/25\n", "auto: plain, 4 of 4 lines are addresses, names or networks"},
		{"plain with other forms", "!press@a.test\n=b.test\noffers@\n", "auto: plain, 3 of 3 lines are addresses, names or networks"},
		{"adblock by its header", "[Adblock Plus 2.0]\na.test\nb.test\n", `auto: adblock, 3 of 3 lines are rules like "||NAME^"`},
		{"exceptions with a blank", "a.test\n! b.test\n", "auto: plain, 1 of 1 lines are addresses, names or networks"},
		{"comments of adblock over bare names", "! Title: x\na.test\nb.test\n", `ambiguous: lines with "!" and a blank are comments in adblock and exceptions in plain; declare its format`},
		{"nothing but such lines", "! b.test\n", `ambiguous: lines with "!" and a blank are comments in adblock and exceptions in plain; declare its format`},
		{"json array", "[\n\"a.test\"\n]", `auto: json, begins with "["`},
		{"json of one long line", `["` + strings.Repeat(`a.test","`, 10_000) + `b.test"]`, `auto: json, begins with "["`},
		{"json object", `{"block":["a.test"]}`, `auto: json, begins with "{"`},
		{"address in brackets", "[2001:db8::1]\na.test\n", "auto: plain, 2 of 2 lines are addresses, names or networks"},
		{"leading dots", "a.test\n.b.test\n", "ambiguous: names with a leading dot mean different things in plain, postfix and rbldnsd; declare its format"},
		{"two marks", "0.0.0.0 a.test\n||b.test^\n", "ambiguous: has marks of hosts and adblock; declare its format"},
		{"hosts and a foreign mark", "0.0.0.0 a.test\naddress=/b.test/0.0.0.0\n", "ambiguous: has marks of hosts and dnsmasq; declare its format"},
		{"counts behind names", "a.test 451\nb.test 2\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"csv", "address,reason\na@b.test,x\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"words", "hello\nworld\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"public suffixes", "com\nco.uk\nnet\n", "auto: plain, 3 of 3 lines are addresses, names or networks"},
		{"names without a dot behind a sink", "127.0.0.1 alfa\n127.0.1.1 alfa\n0.0.0.0 ads.test\n", `auto: hosts, 3 of 3 lines are "0.0.0.0 NAME"`},
		{"names of the machine", "127.0.0.1 localhost\n", "empty: guessed as hosts, by which no line is an entry (1 skipped); declare its format"},
		{"regular expressions", "/a/\n/b/\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"dnsmasq", "# x\ncache-size=1\nserver=/a.test/\n", `auto: dnsmasq, 2 of 2 lines are options like "address=/NAME/0.0.0.0"`},
		{"unbound", "server:\nlocal-zone: \"a.test\" refuse\n", "auto: unbound, 2 of 2 lines are options of unbound"},
		{"spamassassin", "# x\nblacklist_from *@a.test\n", "auto: spamassassin, 1 of 1 lines are directives of SpamAssassin"},
		{"spamassassin by what it takes back", "describe X y\nunblocklist-from *@a.test\nwelcomelist_from *@b.test\n", "auto: spamassassin, 3 of 3 lines are directives of SpamAssassin"},
		{"spamassassin auth", "def_welcomelist_auth *@a.test\n", "auto: spamassassin, 1 of 1 lines are directives of SpamAssassin"},
		{"rpz", "$TTL 300\na.test IN CNAME .\n", "auto: rpz, 2 of 2 lines are records of a policy zone"},
		{"rpz by its SOA", "@ IN SOA localhost. root.localhost. (\n1 2 3 4 5 )\na.test A 192.0.2.1\n", "auto: rpz, 3 of 3 lines are records of a policy zone"},
		{"rbldnsd", ":127.0.0.2:x\n.a.test\n!198-51.b.test\n", "auto: rbldnsd, 3 of 3 lines are entries of rbldnsd"},
		{"rbldnsd of clients", ":127.0.0.2:x\n198.51.100.4-9\n!198.51.100.7 ; x\n", "auto: rbldnsd:ip4set, 3 of 3 lines are entries of rbldnsd"},
		{"rbldnsd of both", ":127.0.0.2:x\n198.51.100.4\na.test\n", "ambiguous: only 2 of the first 3 lines fit rbldnsd; declare its format"},
		{"rbldnsd sections", "$DATASET dnset x\na.test\n$DATASET ip4set x\n198.51.100.7\n", "auto: rbldnsd:combined, 4 of 4 lines are entries of rbldnsd"},
		{"sendmail", "From:a.test REJECT\nTo:b.test OK\n", `auto: sendmail, 2 of 2 lines are "TAG:KEY ACTION"`},
		{"sendmail with lines of postfix", "From:a.test REJECT\nb.test REJECT\n", "ambiguous: has marks of sendmail and postfix; declare its format"},
		{"pasted header is plain", "From: a@b.test\n", "auto: plain, 1 of 1 lines are addresses, names or networks"},
		{"drop", "; Spamhaus DROP\n198.51.100.0/25 ; SBL1\n", "auto: drop, 1 of 1 lines are networks of a DROP list"},
		{"drop as JSON lines", "{\"cidr\":\"198.51.100.0/25\",\"sblid\":\"SBL1\"}\n", "auto: drop, 1 of 1 lines are networks of a DROP list"},
		{"drop whose count is not in the first lines", strings.Repeat("{\"cidr\":\"198.51.100.0/25\"}\n", 250) + "{\"type\":\"metadata\",\"records\":250}\n", "auto: drop, 200 of 200 lines are networks of a DROP list"},
		{"drop whose count comes first", "{\"type\":\"metadata\",\"records\":250}\n" + strings.Repeat("{\"cidr\":\"198.51.100.0/25\"}\n", 250), "auto: drop, 200 of 200 lines are networks of a DROP list"},
		{"lsearch is never guessed", "a@a.test: x\nb.test: y\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"rspamd is never guessed", "a.test 2.0\nb.test SYM:1\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"binary", "\x7fELF", "binary: this is a program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, sum, err := items(t, tt.text, lists.Settings{})
			if sum.Why != tt.want || (err == nil) != (strings.HasPrefix(tt.want, "auto: ") || strings.HasPrefix(tt.want, "empty")) {
				t.Errorf("got  %s (%v)\nwant %s", sum.Why, err, tt.want)
			}
		})
	}
}

func TestParseFormat(t *testing.T) {
	for _, text := range []string{"", "auto", "plain", "hosts", "adblock", "postfix", "csv", "csv:3", "csv:sender", "json", "json:members", "json:a:b", "rbldnsd", "rbldnsd:dnset", "rbldnsd:ip4set", "rbldnsd:combined"} {
		testkit.IsError(t, fmt.Sprintf("ParseFormat(%q)", text), lists.ParseFormat(text), nil)
	}
	for text, want := range map[string]string{
		"Plain":     `unknown format "Plain", want one of plain, hosts, adblock, dnsmasq, unbound, postfix, sendmail, spamassassin, rspamd, rbldnsd, rpz, csv, json, drop, entries, lsearch, auto`,
		"plain:x":   `format "plain:x": plain takes no argument`,
		"auto:x":    `unknown format "auto:x", want one of plain, hosts, adblock, dnsmasq, unbound, postfix, sendmail, spamassassin, rspamd, rbldnsd, rpz, csv, json, drop, entries, lsearch, auto`,
		"csv:":      `format "csv:": nothing behind the colon`,
		"csv:0":     `format "csv:0": a column is 1 to 10000, or the name of a header`,
		"rbldnsd:x": `format "rbldnsd:x": a dataset is one of dnset, ip4set, ip4trie, ip4tset, ip6trie, ip6tset, generic and combined`,
		"rpz:x":     `format "rpz:x": rpz takes no argument`,
		"csv:10001": `format "csv:10001": a column is 1 to 10000, or the name of a header`,
	} {
		testkit.Equal(t, text, fmt.Sprint(lists.ParseFormat(text)), want)
	}
	for _, f := range lists.Formats() {
		if err := lists.ParseFormat(f.Name); err != nil || f.What == "" {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
