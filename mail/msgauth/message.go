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
	Signatures []Signature // at most 20, from the top; those of Author's organisation before others
	TooMany    bool        // there are more, which were not looked at

	rest State // of what a bound of ours has kept from being looked at: Short of signatures of Author's, or of a header
}

// Signature is one DKIM-Signature field.
type Signature struct {
	Domain    string // d=, canonical; "" if it is no domain
	Selector  string // s=, as it stands there
	Algorithm string // a=
	Proof     State  // that Domain has signed, and may have
	Reason    string // why Proof is not Pass
}

// Message reads a message to its end and verifies its signatures. client is for whose sake
// it asks DNS, and may be zero.
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
		if errors.Is(err, errBeyond) {
			m.rest = Short
		}
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
	if !Aligned(m.Author, mailDomain) {
		return m.unread()
	}
	proof := m.rest
	for _, s := range m.Signatures {
		if Aligned(s.Domain, m.Author) {
			proof = proof.or(s.Proof)
		}
	}
	return proof
}

// unread is the proof in a message of another author: none, unless its header is larger
// than what is read, and the author not known.
func (m *Message) unread() State {
	if m.Author == "" {
		return m.rest
	}
	return No
}

// Aligned says whether SPF or DKIM proves the author's domain, and that is the
// organisation of mailDomain too.
func (m *Message) Aligned(mailDomain string, f SPF) State {
	if !Aligned(m.Author, mailDomain) {
		return m.unread()
	}
	proof := m.DKIM(mailDomain)
	if Aligned(f.Domain, m.Author) {
		proof = proof.or(f.Proof)
	}
	return proof
}

// unfailing gives what r has and then ends, whatever happened.
type unfailing struct {
	r   io.Reader
	err error // of r, but for its end
}

func (u *unfailing) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.err, err = err, io.EOF
	}
	return n, err
}
