package milter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"blockd/internal/testkit"
)

// golden reads a stream as a whole. It says how much of it may be returned, and whether the
// rest is refused. Clients without an address are mended in stream, as TestMend has it.
func golden(stream []byte) (good int, refused bool) {
	for first := true; ; first = false {
		rest := stream[good:]
		if len(rest) < 4 {
			return good, false
		}
		length := int(binary.BigEndian.Uint32(rest))
		if length < 1 || length > 1<<20 {
			return good, true
		}
		if len(rest) < 5 {
			return good, false
		}
		command := rest[4]
		bound, known := map[byte]int{
			'L': 1 << 20, 'B': 1 << 20, 'E': 1 << 20, 'D': 64 << 10, 'C': 64 << 10, 'H': 64 << 10, 'M': 64 << 10,
			'R': 64 << 10, 'T': 64 << 10, 'N': 64 << 10, 'A': 64 << 10, 'K': 64 << 10, 'Q': 64 << 10, 'U': 64 << 10,
		}[command]
		if first {
			bound, known = 4<<10, command == 'O'
		}
		if !known || length > bound {
			return good, true
		}
		if len(rest) < 4+length {
			return good, false
		}
		data := rest[5 : 4+length]
		texts := bytes.Split(data, []byte{0})
		switch command {
		case 'O':
			refused = len(data) < 12
		case 'M', 'R':
			refused = len(texts) < 2
		case 'C':
			refused = len(texts) < 2 || len(texts) == 2 && len(texts[1]) == 0
		case 'D':
			refused = len(texts)-1 > 512
		}
		if refused {
			return good, true
		}
		if command == 'C' {
			mend(data)
		}
		good += 4 + length
	}
}

// FuzzPackets: in whatever pieces a stream comes, exactly its whole, checked packets are
// returned, and memory follows what has arrived.
func FuzzPackets(f *testing.F) {
	packet := func(command byte, data string) []byte {
		return append(append(binary.BigEndian.AppendUint32(nil, uint32(1+len(data))), command), data...)
	}
	first := packet('O', "\x00\x00\x00\x06\x00\x00\x01\xff\x00\x1f\xff\xff")
	f.Add([]byte{0, 0, 0, 0}, uint8(1))
	f.Add(first, uint8(5))
	f.Add(bytes.Join([][]byte{first, packet('C', "a\x004\x00\x191.2.3.4\x00"), packet('M', "<a@b>\x00"), packet('R', "<a@b>"), packet('Q', "")}, nil), uint8(7))
	f.Add(append(bytes.Clone(first), 0x20, 0, 0, 0, 'B'), uint8(3))
	f.Add(append(bytes.Clone(first), packet('L', string(make([]byte, 9000)))...), uint8(200))
	f.Add(packet('M', "<a@b>\x00"), uint8(2))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		wanted := bytes.Clone(stream)
		good, refused := golden(wanted)
		var p packets
		var out []byte
		for rest := stream; ; {
			done, err := p.examine()
			if err != nil {
				if !errors.Is(err, errPacket) {
					t.Fatalf("not errPacket: %v", err)
				}
				if !refused || len(out) != good {
					t.Fatalf("refused behind %d octets: %v; want %d, refused %v", len(out), err, good, refused)
				}
				return
			}
			if done {
				buf := make([]byte, int(piece)+1)
				for p.whole > 0 {
					out = append(out, buf[:p.next(buf)]...)
				}
				continue
			}
			if len(rest) == 0 {
				break
			}
			room := p.room()
			n := copy(room[:min(len(room), int(piece)+1)], rest)
			p.tail += n
			rest = rest[n:]
			if most := 2*(p.tail-p.head) + bufferSize; len(p.buf) > most {
				t.Fatalf("a buffer of %d octets for %d that are there", len(p.buf), p.tail-p.head)
			}
		}
		if refused || !bytes.Equal(out, wanted[:good]) {
			t.Fatalf("handed out %d octets, want %d and refused %v", len(out), good, refused)
		}
	})
}

// The committed corpus holds a packet of each command.
func TestCorpusHasEveryCommand(t *testing.T) {
	for _, command := range "OCHMRTLNBEAKQUD" {
		testkit.Value(os.Stat("testdata/fuzz/FuzzPackets/command-" + string(command)))(t)
	}
}

// A client whose address is none is an unknown one; every other packet stays as it is.
func TestMend(t *testing.T) {
	for data, want := range map[string]byte{
		"unknown\x004\x00\x00unknown\x00": 'U', "unknown\x006\x00\x00unknown\x00": 'U', "h\x004\x00\x19192.0.2.1\x00": '4', "h\x004\x00\x19::ffff:192.0.2.1\x00": '4',
		"h\x004\x00\x192001:db8::1\x00": 'U', "h\x006\x00\x19IPv6:2001:db8::1\x00": '6', "h\x006\x00\x19[2001:db8::1]\x00": '6', "h\x006\x00\x19fe80::1%eth0\x00": 'U',
		"h\x00L\x00\x00/run/x\x00": 'L', "h\x00U": 'U', "h\x004": '4', "h\x004\x00": '4', "h\x004\x00\x00": 'U', "h\x004\x00\x19192.0.2.1": '4',
	} {
		have := []byte(data)
		mend(have)
		at := bytes.IndexByte(have, 0) + 1
		if rest := append([]byte(data[:at]), have[at]); have[at] != want || string(have) != string(rest)+data[at+1:] {
			t.Errorf("%q is %q, want family %c", data, have, want)
		}
	}
}
