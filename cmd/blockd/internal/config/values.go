package config

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"blockd/internal/machine"
	"blockd/internal/term"
)

// Duration is a time.Duration that is written as text: "500ms", "1m30s", "30d".
// A day has 24 hours.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`want a duration such as "500ms", "1m30s" or "30d", have %q`, text)
	}
	*d = Duration(parsed)
	return nil
}

const day = 24 * time.Hour

// ParseDuration is time.ParseDuration with days in front: "7d", "1d12h".
func ParseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	const most = 36_500 // a hundred years, far from where a Duration ends
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil || n > most {
		return 0, strconv.ErrRange
	}
	var more time.Duration
	if rest != "" {
		if more, err = time.ParseDuration(rest); err != nil || rest[0] == '-' || rest[0] == '+' || more > most*day {
			return 0, strconv.ErrSyntax
		}
	}
	return time.Duration(n)*day + more, nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is term.Duration.
func (d Duration) String() string { return term.Duration(time.Duration(d)) }

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

// Memory is index.memory: octets, or 0 for "auto".
type Memory Octets

// The bounds of "auto". A build takes up to 100 MiB beside its records (ten million
// addresses with 96 MiB for records: 188 MiB in all), a daemon some 40 MiB and its
// filter; with a quarter for records all of it fits into 384 MiB. Ten million
// addresses of 36 octets need no temporary file at 448 MiB.
const (
	minAutoMemory = 16 << 20
	maxAutoMemory = 448 << 20
)

// Within is how much memory a build may hold records in where the process has limit,
// and a warning where that is less than what is configured.
func (m Memory) Within(limit machine.Limit) (share int64, warning string) {
	if m == 0 {
		return min(max(limit.Octets/4, minAutoMemory), maxAutoMemory), ""
	}
	if half := max(limit.Octets/2, minAutoMemory); int64(m) > half {
		return half, fmt.Sprintf("index.memory = %q is more than half of the %s that %s allows: %s are used, and a temporary file",
			m.String(), term.Octets(limit.Octets), limit.From, term.Octets(half))
	}
	return int64(m), ""
}

func (m Memory) String() string {
	if m == 0 {
		return Auto
	}
	return Octets(m).String()
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Memory) UnmarshalText(text []byte) error {
	if *m = 0; bytes.Equal(text, []byte(Auto)) {
		return nil
	}
	if err := (*Octets)(m).UnmarshalText(text); err != nil {
		return err
	}
	if *m == 0 {
		return fmt.Errorf(`want "auto" or at least 1 MiB, have %q`, text)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (m Memory) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
