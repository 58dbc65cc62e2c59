package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Octets is an amount of memory. It is written as text, "448 MiB", or as a number
// of octets.
type Octets int64

// units of Octets: each is 1,024 times the one before it.
var octetUnits = [...]string{"KiB", "MiB", "GiB", "TiB"}

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Octets) UnmarshalText(text []byte) error {
	number, shift := strings.TrimSpace(string(text)), 0
	for i, unit := range octetUnits {
		if n, ok := strings.CutSuffix(number, unit); ok {
			number, shift = strings.TrimRight(n, " "), 10*(i+1)
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || n > math.MaxInt64>>shift {
		return fmt.Errorf(`want octets such as 469762048, "448 MiB" or "2 GiB", have %q`, text)
	}
	*o = Octets(n << shift)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (o Octets) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// String has the largest unit of which o is a whole number.
func (o Octets) String() string {
	unit := ""
	for _, next := range octetUnits {
		if o == 0 || o%(1<<10) != 0 {
			break
		}
		o, unit = o>>10, " "+next
	}
	return strconv.FormatInt(int64(o), 10) + unit
}
