package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// Turn is when a node takes a sequence of a channel: as soon as a stage in force has a greater share. It is from 0 to 100, and
// another one for each sequence, so that the first ones change, and that nobody keeps a list of nodes.
func Turn(channel string, sequence int64, node string) float64 {
	sum := sha256.Sum256([]byte(channel + strconv.FormatInt(sequence, 10) + node))
	return float64(binary.BigEndian.Uint64(sum[:8])) / (1 << 64) * 100
}

// shareAt is the share of the stage in force at a time; 0 before the first one.
func shareAt(stages []Stage, now int64) (share int) {
	for _, s := range stages {
		if s.From <= now {
			share = s.Share
		}
	}
	return share
}

// isTurn reports whether a node may take a sequence now. A canary has its turn in the first stage.
func isTurn(channel string, sequence int64, stages []Stage, node string, canary bool, now int64) bool {
	share := shareAt(stages, now)
	return share > 0 && (canary || share == 100 || Turn(channel, sequence, node) < float64(share))
}
