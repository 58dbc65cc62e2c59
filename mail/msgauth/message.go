package msgauth

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/netip"
)

// Message is what its own bytes prove about a message.
type Message struct {
	Author     string      // the domain of the one address in its one From field, canonical; else ""
	Fault      string      // why Author is "", or why no signature was looked at
	Signatures []Signature // the first five, from the top
	TooMany    bool        // there are more, which were not looked at
}

// Signature is one DKIM-Signature field.
type Signature struct {
	Domain    string // d=, canonical; "" if it is no domain
	Selector  string // s=, as it stands there
	Algorithm string // a=
	Proof     State  // that Domain has signed, and may have
	Reason    string // why Proof is not Pass
}

// Message reads a message to its end and verifies its signatures. client bounds
// how many look-ups its network may have under way and may be zero.
//
// r must hold the whole message as it came, with CRLF line ends and without the
// final dot. An error of r is returned, and there is no fact then; everything else
// that goes wrong is in the facts.
func (r *Resolver) Message(ctx context.Context, client netip.Addr, message io.Reader) (Message, error) {
	ctx, cancel := r.budget(ctx)
	defer cancel()
	body := &unfailing{r: message}
	buffered := bufio.NewReader(body)
	h, err := readHeader(buffered)
	var m Message
	if err == nil {
		if m.Author, err = h.author(); err != nil {
			m.Fault = err.Error() // signatures are shown all the same
		}
		r.signatures(ctx, networkOf(client), &m, &h, buffered)
	} else {
		m.Fault = err.Error()
	}
	if errors.Is(body.err, errBlank) {
		return Message{Fault: errBlank.Error()}, nil
	}
	if body.err != nil {
		return Message{}, body.err // what was taken for the end was none
	}
	return m, nil
}

// DKIM says whether a signature proves that who wrote from mailDomain wrote the
// message: d= must have the organisation of the author's domain, which stands in
// the message, and that one the organisation of mailDomain, which is what lists
// are asked about.
func (m *Message) DKIM(mailDomain string) State {
	proof := No
	if !Aligned(m.Author, mailDomain) {
		return No
	}
	for _, s := range m.Signatures {
		if Aligned(s.Domain, m.Author) {
			proof = proof.or(s.Proof)
		}
	}
	return proof
}

// Aligned says whether SPF or DKIM proves the author's domain, and that is the
// organisation of mailDomain too.
func (m *Message) Aligned(mailDomain string, f SPF) State {
	if !Aligned(m.Author, mailDomain) {
		return No
	}
	proof := m.DKIM(mailDomain)
	if Aligned(f.Domain, m.Author) {
		proof = proof.or(f.Proof)
	}
	return proof
}

// maxBlank bounds the line ends in a run of blank lines, in octets: the library keeps
// them aside for each signature, and for those of simple canonicalization copies all of
// them for each 4 KiB that come. 10 MiB took it minutes. Lines of blanks are blank lines
// too, as relaxed canonicalization has it.
const maxBlank = 64 << 10

// errBlank is the error of a message with a longer one.
var errBlank = errors.New("a run of too many blank lines")

// unfailing gives what r has and then ends, whatever happened: the DKIM library
// leaves a goroutine for each signature behind when a body breaks off by an error.
type unfailing struct {
	r     io.Reader
	blank int   // octets of CR and LF at the end of what was read, blanks between them
	err   error // of r, but for its end; or errBlank
}

func (u *unfailing) Read(p []byte) (int, error) {
	if u.err != nil {
		return 0, io.EOF
	}
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.err, err = err, io.EOF
	}
	for _, c := range p[:n] {
		switch c {
		case ' ', '\t':
		case '\r', '\n':
			if u.blank++; u.blank > maxBlank {
				u.err = errBlank
				return 0, io.EOF
			}
		default:
			u.blank = 0
		}
	}
	return n, err
}
