package lists

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// decode drops a UTF-8 byte order mark and turns UTF-16 with one into UTF-8.
// Every other octet passes as it is: broken UTF-8 is a matter of single lines.
func decode(r io.Reader) (io.Reader, error) {
	br := bufio.NewReaderSize(r, peekSize)
	mark, err := br.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case string(mark) == "\xff\xfe\x00\x00", string(mark) == "\x00\x00\xfe\xff":
		return nil, refusal(Encoding, "UTF-32; a list is UTF-8")
	case len(mark) >= 3 && string(mark[:3]) == "\xef\xbb\xbf":
		_, err = br.Discard(3)
	case len(mark) >= 2 && string(mark[:2]) == "\xff\xfe":
		_, err = br.Discard(2)
		return &utf16Reader{r: br, order: binary.LittleEndian}, err
	case len(mark) >= 2 && string(mark[:2]) == "\xfe\xff":
		_, err = br.Discard(2)
		return &utf16Reader{r: br, order: binary.BigEndian}, err
	default:
		err = nil
	}
	return br, err
}

// Text is the text of a file that other programs have written, in UTF-8 and without a byte order mark: see decode.
func Text(octets []byte) ([]byte, error) {
	text, err := decode(bytes.NewReader(octets))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(text)
}

// utf16Reader turns UTF-16 into UTF-8. A surrogate without its other half comes
// out as the three octets it would have in UTF-8, which are no UTF-8: so it spoils
// its own line, as a broken octet does in a UTF-8 file, and no other.
type utf16Reader struct {
	r     *bufio.Reader
	order binary.ByteOrder
	unit  uint16 // read ahead, if ahead
	ahead bool
	out   [utf8.UTFMax]byte // a character that did not fit into p
	left  []byte            // its rest
}

func (u *utf16Reader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(u.left) == 0 {
			if err := u.fill(); err != nil {
				if n > 0 && err == io.EOF {
					return n, nil
				}
				return n, err
			}
		}
		k := copy(p[n:], u.left)
		u.left = u.left[k:]
		n += k
	}
	return n, nil
}

// fill puts the next character into left.
func (u *utf16Reader) fill() error {
	first, err := u.next()
	if err != nil {
		return err
	}
	if !utf16.IsSurrogate(rune(first)) {
		u.left = utf8.AppendRune(u.out[:0], rune(first))
		return nil
	}
	if second, err := u.next(); err == nil {
		if r := utf16.DecodeRune(rune(first), rune(second)); r != utf8.RuneError {
			u.left = utf8.AppendRune(u.out[:0], r)
			return nil
		}
		u.unit, u.ahead = second, true
	} else if err != io.EOF {
		return err
	}
	u.left = append(u.out[:0], 0xe0|byte(first>>12), 0x80|byte(first>>6)&0x3f, 0x80|byte(first)&0x3f)
	return nil
}

func (u *utf16Reader) next() (uint16, error) {
	if u.ahead {
		u.ahead = false
		return u.unit, nil
	}
	var b [2]byte
	if _, err := io.ReadFull(u.r, b[:]); err == io.ErrUnexpectedEOF {
		return 0, refusal(Encoding, "UTF-16 with an odd number of octets")
	} else if err != nil {
		return 0, err
	}
	return u.order.Uint16(b[:]), nil
}
