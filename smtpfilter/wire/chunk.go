package wire

// Chunk counts the octets of one BDAT chunk (RFC 3030, section 2). Only their number
// marks its end, and any octet may stand in it. If the count is
// wrong by one, text of the message is read as commands.
type Chunk struct {
	left int64
}

// NewChunk is a chunk of size octets, 0 to 1<<63-1.
func NewChunk(size int64) Chunk { return Chunk{left: max(size, 0)} }

// Left is how many octets are still to come.
func (c *Chunk) Left() int64 { return c.left }

// Take returns the part of p that belongs to the chunk. p follows the
// octets taken before. The rest of p is no part of the chunk.
func (c *Chunk) Take(p []byte) []byte {
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	c.left -= int64(len(p))
	return p
}
