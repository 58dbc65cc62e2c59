package filter

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// Funnel appends the octets that a Java program hashes for a value, which is given as text.
type Funnel func(dst []byte, text string) ([]byte, error)

// funnels are those of Guava's class Funnels.
var funnels = []struct {
	name   string
	funnel Funnel
}{
	{"utf8", func(dst []byte, text string) ([]byte, error) { return append(dst, text...), nil }}, // stringFunnel(UTF_8)
	{"utf16", unencodedChars}, // unencodedCharsFunnel
	{"int", func(dst []byte, text string) ([]byte, error) { // integerFunnel
		n, err := parseNumber(text, 32)
		return binary.LittleEndian.AppendUint32(dst, uint32(n)), err
	}},
	{"long", func(dst []byte, text string) ([]byte, error) { // longFunnel
		n, err := parseNumber(text, 64)
		return binary.LittleEndian.AppendUint64(dst, uint64(n)), err
	}},
}

// Funnels are the names that ParseFunnel takes.
func Funnels() (names []string) {
	for _, f := range funnels {
		names = append(names, f.name)
	}
	return names
}

// ParseFunnel returns the funnel with that name.
func ParseFunnel(name string) (Funnel, error) {
	for _, f := range funnels {
		if f.name == name {
			return f.funnel, nil
		}
	}
	return nil, fmt.Errorf("no funnel %q; want one of %s", name, strings.Join(Funnels(), ", "))
}

// unencodedChars gives the UTF-16 units of a Java string, low octet first.
func unencodedChars(dst []byte, text string) ([]byte, error) {
	var units [2]uint16
	for _, r := range text {
		for _, unit := range utf16.AppendRune(units[:0], r) {
			dst = binary.LittleEndian.AppendUint16(dst, unit)
		}
	}
	return dst, nil
}

func parseNumber(text string, bits int) (int64, error) {
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("want an integer of %d bits, have %q", bits, text)
	}
	return n, nil
}
