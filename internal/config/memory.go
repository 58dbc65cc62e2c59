package config

import (
	"bytes"
	"fmt"

	"blockd/internal/term"
	"blockd/machine"
)

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
