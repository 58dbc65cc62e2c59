package postgres

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/jackc/pgx/v5/pgproto3"
)

// maxStatus bounds what a server may tell of itself on a connection, in octets. It tells some 400.
const maxStatus = 1 << 20

// status reads the messages of a server, inside of TLS, and ends at too many of the one kind that the library keeps
// without being asked for it.
type status struct {
	io.Reader
	head []byte // of a message that has begun: its kind, and its length
	left int    // octets of this message that are still to come
	told int    // octets of ParameterStatus
}

func frontend(r io.Reader, w io.Writer) *pgproto3.Frontend {
	return pgproto3.NewFrontend(&status{Reader: r}, w)
}

func (s *status) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if skip := min(s.left, len(rest)); skip > 0 {
			rest, s.left = rest[skip:], s.left-skip
			continue
		}
		const headed, own = 5, 4 // octets, of which those of the length count
		take := min(headed-len(s.head), len(rest))
		s.head, rest = append(s.head, rest[:take]...), rest[take:]
		if len(s.head) < headed {
			break
		}
		s.left = max(int(binary.BigEndian.Uint32(s.head[1:]))-own, 0)
		if s.head[0] == 'S' {
			if s.told += headed + s.left; s.told > maxStatus {
				return 0, errors.New("what answers tells of itself without end; is this a PostgreSQL?")
			}
		}
		s.head = s.head[:0]
	}
	return n, err
}
