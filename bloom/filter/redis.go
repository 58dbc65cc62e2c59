package filter

import (
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
)

// Stored gives what a Redis keeps of a filter of kind redisson or bitmap: the octets of a
// string, which are the filter's own memory, and the numbers of the hash {NAME}:config. ok is
// false for another kind.
func Stored(f Filter) (octets []byte, numbers map[string]string, ok bool) {
	b, ok := f.(*bitmap)
	if !ok {
		return nil, nil, false
	}
	numbers = map[string]string{
		"size":               strconv.FormatUint(b.Size, 10),
		"hashIterations":     strconv.FormatUint(b.HashIterations, 10),
		"expectedInsertions": strconv.FormatUint(b.ExpectedInsertions, 10),
		"falseProbability":   b.FalseProbability,
	}
	if b.Hash != "" {
		numbers["hash"] = b.Hash
	}
	return b.array, numbers, true
}

// ReadStored is the reverse of Stored, for a filter that any program may have made: octets may
// end after the last bit that is set, and numbers may have more fields. A hash says which kind
// it is. The octets become the filter's memory.
func ReadStored(octets []byte, numbers map[string]string) (Filter, error) {
	b, err := storedNumbers(numbers)
	if err != nil {
		return nil, err
	}
	b.array = octets
	return b, b.check()
}

// EmptyStored makes an empty filter with the numbers of another.
func EmptyStored(numbers map[string]string) (Filter, error) {
	b, err := storedNumbers(numbers)
	if err == nil {
		err = b.check()
	}
	if err != nil {
		return nil, err
	}
	b.array = make(highFirst, (b.Size+7)/8)
	return b, nil
}

func storedNumbers(numbers map[string]string) (*bitmap, error) {
	known := map[string]string{}
	for _, field := range []string{"size", "hashIterations", "expectedInsertions", "falseProbability", "hash"} {
		if text := numbers[field]; text != "" {
			known[field] = text
		}
	}
	text, err := json.Marshal(known)
	b := &bitmap{}
	if err == nil {
		err = json.Unmarshal(text, &b.bitmapConfig)
	}
	return b, err
}

// Chunks gives what BF.LOADCHUNK of RedisBloom takes of a filter of kind redisbloom, in order:
// the header, and its octets in chunks of at most size. They are the filter's own
// memory. ok is false for another kind.
func Chunks(f Filter, size int) (chunks iter.Seq2[uint64, []byte], ok bool) {
	r, ok := f.(*redisBloom)
	if !ok {
		return nil, false
	}
	return func(yield func(uint64, []byte) bool) {
		if !yield(1, r.head()) {
			return
		}
		end := uint64(1)
		for i := range r.links {
			for rest := r.links[i].array; len(rest) > 0; {
				chunk := rest[:min(len(rest), size)]
				rest = rest[len(chunk):]
				end += uint64(len(chunk))
				if !yield(end, chunk) {
					return
				}
			}
		}
	}, true
}

// ChainSize is how many octets follow the header of a filter, which is the first answer of
// BF.SCANDUMP, by what it says of its links. Any program may have made it.
func ChainSize(head []byte) (octets uint64, err error) {
	_, links, err := readHead(head)
	for err == nil && len(links) > 0 {
		var s redisBloomSizes
		s, links = decodeLink(links)
		if octets += min(s.Bytes, maxFile+1); octets > maxFile {
			return 0, fmt.Errorf("its header tells of more than %d octets", uint64(maxFile))
		}
	}
	return octets, err
}

// ReadChain reads the answers of BF.SCANDUMP: the header, and the octets of all others together,
// which become the filter's memory.
func ReadChain(head, octets []byte) (Filter, error) { return readChain(head, octets) }
