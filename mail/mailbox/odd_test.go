package mailbox

import (
	"slices"
	"strings"
	"testing"
)

// RFC 5321, section 4.1.1.4: blanks behind a command are to be tolerated.
func TestBlanksBehindACommandAreNoArgument(t *testing.T) {
	r := rawSession(t, start(t, Settings{}))
	r.want("220")
	r.send("EHLO c\r\nNOOP \r\nRSET  \r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<b@here.example>\r\ndata \r\n")
	for _, reply := range []string{"250", "250", "250", "250", "250", "354"} {
		r.want(reply)
	}
	r.send("NOOP \r\n.\r\nQUIT \r\n")
	r.want("250")
	r.want("221")
}

// An empty quoted string is a local-part.
func TestEmptyLocalPartIsDelivered(t *testing.T) {
	m := start(t, Settings{})
	r := rawSession(t, m)
	r.want("220")
	r.send("EHLO c\r\nMAIL FROM:<\"\"@b.example> BODY=8BITMIME\r\nRCPT TO:<@relay.example:\"\"@here.example>\r\nDATA\r\nx\r\n.\r\n")
	for _, reply := range []string{"250", "250", "250", "354", "250"} {
		r.want(reply)
	}
	want := "Return-Path: <\"\"@b.example>\r\nDelivered-To: @relay.example:\"\"@here.example\r\nx\r\n"
	if _, got := files(t, m, "new"); !slices.Equal(got, []string{want}) {
		t.Errorf("new/ holds %q, want %q", got, want)
	}
}

// A host name of legal length would make a file name of illegal length.
func TestLongHostNameIsCutInFileNames(t *testing.T) {
	m := start(t, Settings{Hostname: strings.Repeat("long-label.", 22) + "example"})
	if _, err := send(client(t, m), "a@b.example", []string{"b@here.example"}, "x\r\n"); err != nil {
		t.Fatal(err)
	}
	if names, _ := files(t, m, "new"); len(names) != 1 || !strings.Contains(names[0], ".long-label.") {
		t.Errorf("new/ holds %q, want one name with the host's beginning", names)
	}
}
