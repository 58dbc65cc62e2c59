package postfix

import "bytes"

// maxLine bounds a request of a tcp table, in octets: a key of 2,048 octets may be encoded in
// three times as many.
const maxLine = 8 << 10

// tcpTable speaks tcp_table(5) on one connection: a line "get KEY", and a line in reply.
type tcpTable struct{ *table }

func (t *tcpTable) measure(buf []byte, seen int) (int, error) {
	n := seen + bytes.IndexByte(buf[seen:], '\n') + 1
	if n == seen {
		n = 0
	}
	if n > maxLine || n == 0 && len(buf) >= maxLine {
		return 0, errTooLong
	}
	return n, nil
}

func (t *tcpTable) answer(out, request []byte) ([]byte, error) {
	encoded, ok := bytes.CutPrefix(request[:len(request)-1], []byte("get "))
	if !ok {
		return appendReply(out, "400", "want get and a key"), nil
	}
	key, ok := decodeKey(encoded)
	if !ok {
		return appendReply(out, "400", "want a key in which blanks and % are encoded"), nil
	}
	switch result, found, failed := t.lookup(WholeDecision, key); {
	case failed:
		return appendReply(out, "400", result), nil
	case found:
		return appendReply(out, "200", result), nil
	}
	return appendReply(out, "500", "not found"), nil
}

func (t *tcpTable) apologize(out []byte) []byte {
	if t.tempfails() {
		return appendReply(out, "400", "not checked: try again later")
	}
	return appendReply(out, "500", "not checked")
}

// appendReply appends a reply line, with text encoded as tcp_table(5) says. The longest reply
// is far below the 4,096 octets that Postfix accepts.
func appendReply(out []byte, code, text string) []byte {
	const hex = "0123456789ABCDEF"
	out = append(append(out, code...), ' ')
	for i := range len(text) {
		if c := text[i]; c == '%' || c <= ' ' || c > '~' {
			out = append(out, '%', hex[c>>4], hex[c&15])
		} else {
			out = append(out, c)
		}
	}
	return append(out, '\n')
}

// decodeKey decodes a key. It returns false for a key that no encoder writes: an empty one,
// one with a blank, or one with a % that two hexadecimal digits do not follow.
func decodeKey(encoded []byte) (string, bool) {
	key := make([]byte, 0, len(encoded))
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		switch {
		case c <= ' ' || c == 0x7F:
			return "", false
		case c == '%':
			if i+2 >= len(encoded) {
				return "", false
			}
			high, ok := unhex(encoded[i+1])
			low, ok2 := unhex(encoded[i+2])
			if !ok || !ok2 {
				return "", false
			}
			c, i = high<<4|low, i+2
		}
		key = append(key, c)
	}
	return string(key), len(key) > 0
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10, true
	}
	return 0, false
}
