package postfix

import (
	"bytes"
	"strconv"
)

// The limits of a netstring.
const (
	maxDigits    = 5
	maxNetstring = 8 << 10 // octets between ":" and ","
)

// socketmap speaks socketmap_table(5) on one connection.
type socketmap struct{ *table }

// measure reads the frame of a netstring, "LENGTH:octets,". LENGTH has at most maxDigits
// digits.
func (m *socketmap) measure(buf []byte, _ int) (int, error) {
	digits := bytes.IndexByte(buf[:min(len(buf), maxDigits+1)], ':')
	if digits < 0 && len(buf) <= maxDigits {
		digits = len(buf) // so far
	} else if digits <= 0 {
		return 0, errMalformed
	}
	length := 0
	for i, c := range buf[:digits] {
		if c < '0' || c > '9' || i > 0 && buf[0] == '0' {
			return 0, errMalformed
		}
		length = 10*length + int(c-'0')
	}
	end := digits + 1 + length // the place of the comma
	switch {
	case length > maxNetstring:
		return 0, errTooLong
	case digits == len(buf) || end >= len(buf):
		return 0, nil
	case buf[end] != ',':
		return 0, errMalformed
	}
	return end + 1, nil
}

func (m *socketmap) answer(out, request []byte) ([]byte, error) {
	_, text, _ := bytes.Cut(request[:len(request)-1], []byte{':'})
	name, key, ok := bytes.Cut(text, []byte{' '})
	if !ok {
		return appendNetstring(out, "PERM want a map's name, a blank and a key"), nil
	}
	if !m.has(string(name)) {
		return appendNetstring(out, "PERM unknown map"), nil
	}
	switch result, found, failed := m.lookup(string(name), string(key)); {
	case failed:
		return appendNetstring(out, "TEMP "+result), nil
	case found:
		return appendNetstring(out, "OK "+result), nil
	}
	return appendNetstring(out, notFound), nil
}

// notFound ends with a blank, as socketmap_table(5) wants it.
const notFound = "NOTFOUND "

func (m *socketmap) apologize(out []byte) []byte {
	if m.tempfails() {
		return appendNetstring(out, "TEMP not checked: try again later")
	}
	return appendNetstring(out, notFound)
}

func appendNetstring(out []byte, text string) []byte {
	out = strconv.AppendInt(out, int64(len(text)), 10)
	out = append(out, ':')
	out = append(out, text...)
	return append(out, ',')
}
