package mailbox

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// A message is what stands before the first CRLF.CRLF, its dots unstuffed. It is
// delivered just so or, if a CR or LF stands alone in it, not at all. What
// follows are commands, never text.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"", "x", ".", "..", "\r\n.", "a\r\n.\r\nMAIL FROM:<x@y>", "a\rb", "a\nb", "\n.\n", "\r\r\n.\r\n", "a\r",
		".\r", "..\r\n", "\x00\xff", "RCPT TO:<postmaster>", "\r\n.\rx\r\n", strings.Repeat("y", 4095) + "\r\n.z", strings.Repeat("y", 4094) + "\r"} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	m := testkit.Value(New(Settings{Dir: dir, Hostname: "h"}, quiet()))(f)
	queued := regexp.MustCompile(`(?m)^250 2\.0\.0 Ok: queued as (\S+)\r$`)
	f.Fuzz(func(t *testing.T, data []byte) {
		conn := testkit.Value(m.Dial(t.Context()))(t)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		go func() {
			io.WriteString(conn, "EHLO c\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n")
			conn.Write(data)
			io.WriteString(conn, "\r\n.\r\nQUIT\r\n")
		}()
		replies, _ := io.ReadAll(conn) // an early end of the session resets it

		text, _, _ := bytes.Cut(append([]byte("\r\n"), append(data, "\r\n.\r\n"...)...), []byte("\r\n.\r\n"))
		text = append(text, "\r\n"...)
		strict := !bytes.ContainsAny(bytes.ReplaceAll(text, []byte("\r\n"), nil), "\r\n")
		want := bytes.ReplaceAll(text, []byte("\r\n."), []byte("\r\n"))[len("\r\n"):]

		ids := queued.FindAllSubmatch(replies, -1)
		if !strict {
			if len(ids) > 0 || !bytes.Contains(replies, []byte("\r\n550 5.5.2 ")) {
				t.Errorf("bare CR or LF in %q: replies %q", data, replies)
			}
			return
		}
		if len(ids) == 0 {
			t.Fatalf("%q: not delivered, replies %q", data, replies)
		}
		path := filepath.Join(dir, "new", string(ids[0][1])+".h")
		got := testkit.Read(t, path)
		got = bytes.TrimPrefix(got, []byte("Return-Path: <a@b>\r\nDelivered-To: c@d\r\n"))
		if !bytes.Equal(got, want) {
			t.Errorf("%q: delivered %q, want %q", data, got, want)
		}
		os.Remove(path)
	})
}

// What stands in a header is a piece of the line, and one line itself.
func FuzzRawPath(f *testing.F) {
	for _, s := range []string{"FROM:<a@b>", "from: <> SIZE=1", `FROM:<"a>\"b"@c> X`, "FROM:<a\r@b>", "FROM:a@b", `FROM:<"\`, "TO:<a@b>", "FROM:<"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		path, params := rawPath(args, "FROM:")
		if path == "" {
			return
		}
		if !strings.HasPrefix(path, "<") || !strings.HasSuffix(path, ">") || !bytes.HasSuffix(args, []byte(path+params)) {
			t.Errorf("rawPath(%q) = %q, %q", args, path, params)
		}
		if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("rawPath(%q) = %q, with a control character", args, path)
		}
	})
}
