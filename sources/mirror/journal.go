package mirror

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"strconv"
)

// The journal has the changes since its generation was written, batch after batch. It is a row of blocks: u32 length,
// u32 CRC-32C of the text, the text, at most 64 KiB. The texts of all blocks together are lines:
//
//	= TAB KEY TAB SCOPE LF        what follows is all that the source says of this key with this scope
//	a line of the format entries
//	. TAB MARK LF                 the end of a batch; MARK is quoted as in Go
//
// A crash may leave a torn block, or a batch without its end. It was never acknowledged, and is cut off.
const (
	maxBlock  = 64 << 10
	blockHead = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journal is the open journal of the current generation.
type journal struct {
	f    *os.File
	size int64 // of whole batches: what stands behind them is nothing
}

// append adds a batch, which is safe on the disk after that.
func (j *journal) append(text []byte) error {
	var blocks []byte
	for len(text) > 0 {
		block := text[:min(len(text), maxBlock)]
		text = text[len(block):]
		blocks = binary.LittleEndian.AppendUint32(blocks, uint32(len(block)))
		blocks = binary.LittleEndian.AppendUint32(blocks, crc32.Checksum(block, castagnoli))
		blocks = append(blocks, block...)
	}
	// What a failed append has left goes first: of its blocks none may come to stand behind those of a shorter batch.
	if err := j.f.Truncate(j.size); err != nil {
		return err
	}
	if _, err := j.f.WriteAt(blocks, j.size); err != nil {
		return err
	}
	if err := j.f.Sync(); err != nil {
		return err
	}
	j.size += int64(len(blocks))
	return nil
}

// replay gives the text of every whole batch and its mark to use.
func (j *journal) replay(use func(text []byte, mark Mark)) error {
	j.size = 0
	in := io.NewSectionReader(j.f, 0, maxJournal)
	var batch []byte
	at := int64(0)
	for {
		block, err := readBlock(in)
		if err != nil || block == nil {
			return err
		}
		at += blockHead + int64(len(block))
		if batch = append(batch, block...); len(batch) > 2*maxPending {
			return nil // no batch is so long
		}
		end := bytes.LastIndexByte(bytes.TrimSuffix(batch, []byte("\n")), '\n') + 1
		quoted, ok := bytes.CutPrefix(batch[end:], []byte(".\t"))
		if !ok || batch[len(batch)-1] != '\n' {
			continue
		}
		mark, err := strconv.Unquote(string(bytes.TrimSuffix(quoted, []byte("\n"))))
		if err != nil {
			return nil
		}
		use(batch[:end], Mark(mark))
		batch, j.size = nil, at
	}
}

// readBlock returns nil for what is no whole block.
func readBlock(in io.Reader) ([]byte, error) {
	var head [blockHead]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, notEnd(err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > maxBlock {
		return nil, nil
	}
	block := make([]byte, n)
	if _, err := io.ReadFull(in, block); err != nil {
		return nil, notEnd(err)
	}
	if crc32.Checksum(block, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, nil
	}
	return block, nil
}

// notEnd is err unless that is the end of the file.
func notEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}
