package quarantine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"blockd/internal/testkit"
)

const received = "X-Blockd: list=bad ref=0yxdemazc5\r\nReceived: from there.example (192.0.2.1)\r\n\tby here.example (blockd) with ESMTP id x-1;\r\n\tMon, 23 Nov 2026 10:00:00 +0000\r\n"

// message is a file as blockd writes it.
func message(sender string, recipients []string, text string) string {
	return envelopeFields(sender, recipients) + received + text
}

// folder is a quarantine with files in new.
func folder(t *testing.T, files map[string]string) Folder {
	t.Helper()
	f := Folder(t.TempDir())
	for _, name := range []string{"tmp", "new", "cur"} {
		testkit.Must(t, os.Mkdir(filepath.Join(string(f), name), 0o700))
	}
	for name, text := range files {
		testkit.Write(t, filepath.Join(string(f), "new", name), text)
	}
	return f
}

// taken answers as a next server that refuses some recipients.
func taken(got *[]string, refused ...string) Deliver {
	return func(_ context.Context, m Mail) (all []Delivery, err error) {
		text, err := io.ReadAll(m.Message)
		if err != nil {
			return nil, err
		}
		if int64(len(text)) != m.Size {
			return nil, fmt.Errorf("%d octets, Size %d", len(text), m.Size)
		}
		if err := m.End(); err != nil {
			return nil, err
		}
		*got = append(*got, fmt.Sprintf("%s > %v: %s", m.Sender, m.Recipients, text))
		for _, r := range m.Recipients {
			all = append(all, Delivery{r, !slices.Contains(refused, r), "250 ok"})
		}
		return all, nil
	}
}

func ids(t *testing.T, f Folder) (all []string) {
	t.Helper()
	found := testkit.Value(f.List(t.Context(), Query{Limit: MaxFound}))(t)
	for _, m := range found.Messages {
		all = append(all, m.ID)
	}
	return all
}

func TestList(t *testing.T) {
	text := "From: =?utf-8?q?J=C3=B6rg?= <j@bulk.example>\r\nX-Blockd: list=forged ref=forged\r\nDelivered-To: forged@here.example\r\nSubject: =?iso-8859-1?q?=E4?=\x1b[2J\r\n folded\r\n\r\nhello\r\n"
	f := folder(t, map[string]string{
		"1700000001.M1P1Q1.host":      message("a@bulk.example", []string{"u@here.example", "v@here.example"}, text),
		"1700000003.M1P1Q2.host":      message("", []string{"w@here.example"}, "\r\nno header\r\n"),
		"1700000002.M1P1Q3.host":      "Subject: of another program\r\n\r\nx\r\n",
		"9.odd":                       message("b@bulk.example", []string{"u@here.example"}, ""),
		".hidden":                     "x",
		"1700000004.M1P1Q4.host:2,S":  message("c@bulk.example", []string{"u@here.example"}, "Subject: seen\r\n\r\n"),
		"1700000005.M1P1Q5.host:2,FS": "Return-Path: <\r\n",
	})
	testkit.Must(t, os.Rename(filepath.Join(string(f), "new", "1700000004.M1P1Q4.host:2,S"), filepath.Join(string(f), "cur", "1700000004.M1P1Q4.host:2,S")))
	want := []string{"1700000005.M1P1Q5.host", "1700000004.M1P1Q4.host", "1700000003.M1P1Q2.host", "1700000002.M1P1Q3.host", "1700000001.M1P1Q1.host", "9.odd"}
	testkit.EqualSlices(t, "messages", ids(t, f), want)
	found, err := f.List(t.Context(), Query{Sender: "BULK", Recipient: "u@", Limit: 2})
	testkit.Got(err, found.More, len(found.Messages), testkit.At(found.Messages, 1).ID)(t, "of bulk to u", nil, true, 2, "1700000001.M1P1Q1.host")
	if m := found.Messages[1]; m.Sender != "a@bulk.example" || len(m.Recipients) != 2 || m.From != "Jörg <j@bulk.example>" || m.Subject != "ä\x1b[2J folded" ||
		!slices.Equal(m.Lists, []string{"bad"}) || m.Ref != "0yxdemazc5" || m.Foreign || m.Unsure != nil || m.Kept.Unix() != 1700000001 {
		t.Errorf("message %+v", m)
	}
	found, err = f.List(t.Context(), Query{After: "1700000002.M1P1Q3.host", Limit: 9})
	testkit.Got(err, len(found.Messages), found.More)(t, "the next page", nil, 2, false)
	found, err = f.List(t.Context(), Query{List: "bad", Since: time.Unix(1700000002, 0), Before: time.Unix(1700000004, 0), Limit: 9})
	testkit.Got(err, len(found.Messages))(t, "by time", nil, 1)
	for i, foreign := range []bool{true, false, false, true, false, false} {
		found, _ = f.List(t.Context(), Query{Limit: 9})
		testkit.Equal(t, fmt.Sprintf("%s: foreign", found.Messages[i].ID), found.Messages[i].Foreign, foreign)
	}
	testkit.Equal(t, "of a folder that is not there", len(testkit.Value(Folder(filepath.Join(t.TempDir(), "none")).List(t.Context(), Query{Limit: 1}))(t).Messages), 0)
}

func TestRelease(t *testing.T) {
	text := "Delivered-To: forged@here.example\r\nSubject: x\r\n\r\n.body\r\n"
	one, two := "1700000001.M1P1Q1.host", "1700000002.M1P1Q2.host"
	f := folder(t, map[string]string{one: message("a@bulk.example", []string{"u@here.example"}, text), two: message("", []string{"u@here.example", "v@here.example", "w@here.example"}, text), "3.x": "foreign\r\n"})
	var got []string
	r, err := f.Release(t.Context(), "1700000001", "helpdesk\r\nBcc: x", false, taken(&got))
	testkit.MustGot(err, r.Left, r.ID, len(got))(t, fmt.Sprintf("released %q", got), nil, false, one, 1)
	sent, rest, _ := strings.Cut(got[0], "\r\n")
	testkit.Begins(t, "sent", sent, "a@bulk.example > [u@here.example]: X-Blockd-Released: ")
	testkit.Got(strings.HasSuffix(sent, " by helpdesk__Bcc:_x"), rest)(t, "sent", true, received+text)
	testkit.Fails(f.Release(t.Context(), one, "", false, taken(&got)))(t, "a second time", ErrNotThere)
	// One recipient is refused: the message stays for it alone.
	r = testkit.Value(f.Release(t.Context(), two, "", false, taken(&got, "v@here.example")))(t)
	testkit.Got(r.Left, len(r.Deliveries))(t, "refused for one", true, 3)
	got = nil
	if r, err = f.Release(t.Context(), two, "", false, taken(&got)); err != nil || r.Left || len(got) != 1 || !strings.HasPrefix(got[0], " > [v@here.example]: ") || !strings.HasSuffix(got[0], received+text) {
		t.Errorf("for the one that was left: %+v, %v, %q", r, err, got)
	}
	testkit.Fails(f.Release(t.Context(), "3.x", "", false, taken(&got)))(t, "a foreign file", ErrForeign)
	testkit.EqualSlices(t, "left", ids(t, f), []string{"3.x"})
}

// TestReleaseOnce holds that a release that was cut off is not repeated by itself, and that one that failed for sure is.
func TestReleaseOnce(t *testing.T) {
	id := "1700000001.M1P1Q1.host"
	f := folder(t, map[string]string{id: message("a@bulk.example", []string{"u@here.example"}, "\r\n")})
	away := errors.New("connection refused")
	testkit.Fails(f.Release(t.Context(), id, "", false, func(context.Context, Mail) ([]Delivery, error) { return nil, away }))(t, "a server that is away", away)
	refused := func(_ context.Context, m Mail) ([]Delivery, error) {
		return []Delivery{{"u@here.example", false, "554 no"}}, m.End()
	}
	if r, err := f.Release(t.Context(), id, "", false, refused); err != nil || !r.Left {
		t.Errorf("refused: %+v, %v", r, err)
	}
	lost := func(_ context.Context, m Mail) ([]Delivery, error) { return nil, errors.Join(m.End(), ErrUnsure) }
	if r, err := f.Release(t.Context(), id, "", false, lost); !errors.Is(err, ErrUnsure) || !r.Left {
		t.Errorf("cut off: %+v, %v", r, err)
	}
	var got []string
	if _, err := f.Release(t.Context(), id, "", false, taken(&got)); !errors.Is(err, ErrUnsure) || len(got) > 0 {
		t.Errorf("after that: %v, sent %q", err, got)
	}
	found := testkit.Value(f.List(t.Context(), Query{Limit: 1}))(t)
	testkit.Equal(t, "listed as", found.Messages[0].Unsure != nil, true)
	testkit.Value(f.Release(t.Context(), id, "", true, refused))(t)
	testkit.Fails(f.Release(t.Context(), id, "", false, taken(&got)))(t, "refused now, but perhaps taken before", ErrUnsure)
	r := testkit.Value(f.Release(t.Context(), id, "", true, taken(&got)))(t)
	testkit.Got(r.Left, len(got))(t, "again", false, 1)
	notes := testkit.Value(os.ReadDir(filepath.Join(string(f), notes)))(t)
	testkit.Equal(t, fmt.Sprintf("notes left: %v", notes), len(notes), 0)
}

// TestReleaseByMany holds that of many who release and remove at once one alone has the message.
func TestReleaseByMany(t *testing.T) {
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("17000000%02d.M1P1Q1.host", i)] = message("a@bulk.example", []string{"u@here.example", "v@here.example"}, "\r\n")
	}
	f := folder(t, files)
	var sent [20][2]atomic.Int32
	var removed atomic.Int32
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			for i := range 20 {
				id := fmt.Sprintf("17000000%02d", i)
				if n == 5 && i%4 == 0 {
					if done, err := f.Remove(id); err == nil {
						removed.Add(int32(done.Messages))
					}
					continue
				}
				_, err := f.Release(t.Context(), id, "", false, func(_ context.Context, m Mail) (answers []Delivery, err error) {
					for j, r := range m.Recipients {
						ok := len(m.Recipients) == 1 || j == 0 // the second at the next turn
						if ok {
							sent[i][strings.Index("uv", r[:1])].Add(1)
						}
						answers = append(answers, Delivery{r, ok, ""})
					}
					return answers, m.End()
				})
				if err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNotThere) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range sent {
		for j := range sent[i] {
			if n := sent[i][j].Load(); n > 1 {
				t.Errorf("message %d was sent %d times to recipient %d", i, n, j)
			}
		}
	}
}

func TestPurge(t *testing.T) {
	f := folder(t, map[string]string{"1700000001.a": message("", []string{"u@here.example"}, "\r\n"), "1700000002.b": "foreign\r\n", "1700000003.c": message("", []string{"u@here.example"}, "\r\n"), "1700000004.d": "x"})
	held := testkit.Value(f.hold("1700000002"))(t)
	testkit.Must(t, f.remember("1600000000.gone", time.Now()))
	done := testkit.Value(f.Purge(t.Context(), time.Unix(1700000003, 0)))(t)
	testkit.Equal(t, "purged", [...]int{done.Messages, done.Busy}, [...]int{1, 1})
	testkit.AtLeast(t, "purged", done.Octets, 1)
	left := testkit.Value(os.ReadDir(filepath.Join(string(f), notes)))(t)
	testkit.Equal(t, fmt.Sprintf("notes of a message that is gone: %v", left), len(left), 0)
	testkit.Fails(f.Remove("1700000002"))(t, "one that is held", ErrBusy)
	held.Close()
	testkit.Fails(f.Remove("17000000"))(t, "an ID that is short", ErrAmbiguous)
	for _, id := range []string{"", "../new/1700000003.c", "/etc/passwd", "170000000x"} {
		testkit.Fails(f.Remove(id))(t, id, ErrNotThere)
	}
	testkit.EqualSlices(t, "left", ids(t, f), []string{"1700000004.d", "1700000003.c", "1700000002.b"})
}

func TestShow(t *testing.T) {
	mixed := "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: multipart/alternative; boundary=c\r\n\r\n" +
		"--c\r\nContent-Type: text/html\r\n\r\n<b>html</b>\r\n--c\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: base64\r\n\r\nZ3L832U=\r\n--c--\r\n" +
		"--b\r\nContent-Type: application/x-msdownload; name=\"=?utf-8?q?b=C3=B6se.exe?=\"\r\n\r\nMZ\r\n--b--\r\n"
	nested := strings.Repeat("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n", 1000)
	for name, tt := range map[string]struct{ text, body, parts string }{
		"plain":        {"Subject: x\r\n\r\nhello\r\n", "hello\r\n", "[{text/plain }]"},
		"parts":        {mixed, "grüße", "[{text/html } {text/plain } {application/x-msdownload böse.exe}]"},
		"html":         {"Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<script>=C3=A4</script>\r\n", "<script>ä</script>\r\n", "[{text/html }]"},
		"no header":    {"\r\nhello\r\n", "hello\r\n", "[{text/plain }]"},
		"nested":       {nested, "", "[]"},
		"wrong base64": {"Content-Transfer-Encoding: base64\r\n\r\naGVsbG8=!!!\r\n", "hello", "[{text/plain }]"},
	} {
		f := folder(t, map[string]string{"1.x": message("a@bulk.example", []string{"u@here.example"}, tt.text)})
		got := testkit.Value(f.Show("1."))(t)
		testkit.Got(got.Body, got.Cut, got.Sender)(t, name, tt.body, false, "a@bulk.example")
		testkit.Begins(t, name, got.Header, "X-Blockd: ")
		testkit.Equal(t, fmt.Sprintf("%s: parts", name), fmt.Sprint(got.Parts), tt.parts)
	}
	f := folder(t, map[string]string{"1.x": message("a@bulk.example", []string{"u@here.example"}, "x: y\r\n\r\n"+strings.Repeat("x", 1<<20))})
	got := testkit.Value(f.Show("1.x"))(t)
	testkit.Got(got.Cut, len(got.Body))(t, "a long one: cut, octets", true, maxBody)
}

func FuzzShow(f *testing.F) {
	f.Add([]byte(message("a@bulk.example", []string{"u@here.example"}, "Subject: x\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b--\r\n")))
	f.Add([]byte("Return-Path: <>\r\nDelivered-To: \r\n"))
	dir := Folder(f.TempDir())
	testkit.Must(f, os.Mkdir(filepath.Join(string(dir), "new"), 0o700))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(string(dir), "new", "1.x")
		testkit.Must(t, os.WriteFile(path, text, 0o600))
		shown := testkit.Value(dir.Show("1.x"))(t)
		if len(shown.Body) > 3*maxBody || len(shown.Parts) > maxParts {
			t.Errorf("%d octets, %d parts", len(shown.Body), len(shown.Parts))
		}
		r, err := dir.Release(t.Context(), "1.x", "", false, func(_ context.Context, m Mail) ([]Delivery, error) {
			for _, path := range append(m.Recipients, m.Sender) {
				if strings.ContainsAny(path, "\r\n") {
					t.Errorf("%q would be two commands", path)
				}
			}
			return nil, io.EOF
		})
		if err == nil || !r.Left && r.ID != "" {
			t.Errorf("released: %+v, %v", r, err)
		}
	})
}

// A message goes to the recipients that are left, octet for octet, and is gone when none is.
func TestTakeOut(t *testing.T) {
	id, text := "1700000001.M1P1Q1.host", "To: u@here.example\r\n\r\nDelivered-To: u@here.example\r\n\x00\r"
	f := folder(t, map[string]string{id: message("a@bulk.example", []string{"u@here.example", "v@here.example", "u@here.example"}, text)})
	is := func(who string) func(string) bool { return func(r string) bool { return r == who } }
	testkit.Must(t, f.TakeOut(id, is("w@here.example")))
	testkit.Must(t, f.TakeOut(id, is("u@here.example")))
	now := testkit.Value(os.ReadFile(filepath.Join(string(f), "new", id)))(t)
	testkit.Equal(t, "what is left", string(now), message("a@bulk.example", []string{"v@here.example"}, text))
	var got []string
	if r, err := f.Release(t.Context(), id, "", false, taken(&got, "v@here.example")); err != nil || !r.Left || len(r.Deliveries) != 1 {
		t.Errorf("%+v, %v", r, err) // and nobody holds it
	}
	testkit.Must(t, f.TakeOut(id, is("v@here.example")))
	testkit.IsError(t, "once more", f.TakeOut(id, is("v@here.example")), ErrNotThere)
	for _, name := range []string{"tmp", "new", "cur"} {
		left := testkit.Value(os.ReadDir(filepath.Join(string(f), name)))(t)
		testkit.Equal(t, fmt.Sprintf("%s has %v", name, left), len(left), 0)
	}
	foreign := folder(t, map[string]string{id: "Subject: x\r\n\r\n"})
	testkit.IsError(t, "a foreign one", foreign.TakeOut(id, is("u@here.example")), ErrForeign)
	testkit.EqualSlices(t, "foreign ones", ids(t, foreign), []string{id})
}
