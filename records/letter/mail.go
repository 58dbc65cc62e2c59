package letter

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"mime/quotedprintable"
	"strconv"
	"strings"
	"time"
)

// Header is what stands above a letter besides its subject.
type Header struct {
	From string // an address
	To   []string
	ID   string // of the letter, see ID
	Date time.Time
}

// ID is the id of the letter about the period that begins at since. It is the same for each try to send it, so that a mailbox that
// keeps no doubles shows one that came twice, once.
func ID(host string, since time.Time) string {
	sum := sha256.Sum256([]byte(host + " " + strconv.FormatInt(since.UnixNano(), 10)))
	return since.UTC().Format("20060102T150405Z") + "." + hex.EncodeToString(sum[:8])
}

// Message is the letter as mail (RFC 5322), with CRLF. It is ASCII whatever is in it, and no text of a stranger is in its header. It
// says that it was made by a program (RFC 3834), so that nobody answers it by one.
func (l *Letter) Message(h Header, zone *time.Location) []byte {
	var b bytes.Buffer
	field := func(name, value string) { b.WriteString(name + ": " + oneLine(value) + "\r\n") }
	field("From", "blockd <"+h.From+">")
	field("To", strings.Join(h.To, ",\r\n "))
	field("Subject", mime.QEncoding.Encode("utf-8", l.Subject()))
	field("Date", h.Date.In(zone).Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	field("Message-ID", "<blockd.report."+h.ID+"@"+l.Host+">")
	field("Auto-Submitted", "auto-generated")
	field("X-Auto-Response-Suppress", "All")
	field("Precedence", "bulk")
	field("X-Blockd-Report", l.Since.UTC().Format(time.RFC3339)+" "+l.Until.UTC().Format(time.RFC3339))
	field("MIME-Version", "1.0")
	field("Content-Type", "text/plain; charset=utf-8")
	field("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	body := quotedprintable.NewWriter(&b)
	body.Write([]byte(strings.ReplaceAll(l.Text(zone), "\n", "\r\n"))) // into memory: it cannot fail
	body.Close()
	return b.Bytes()
}

// oneLine is the value of a field: what could begin another line, but for a folded one of ours, is no part of it. Values are the
// configuration's, and checked there; this holds whatever they are.
func oneLine(value string) string {
	const fold = ",\r\n "
	parts := strings.Split(value, fold)
	for i, p := range parts {
		parts[i] = strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '?'
			}
			return r
		}, p)
	}
	return strings.Join(parts, fold)
}
