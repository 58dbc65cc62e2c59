// Package snapshot carries lists that one machine has judged to all others: as files in any web server, S3 store or folder,
// signed, with a number that only grows and a time when it ends, and in stages.
//
//	CHANNEL/latest.json     the newest sequence; with the two below the only files that change
//	CHANNEL/pin.json        stops the channel at a sequence
//	*.minisig               the signatures of these, and of manifests
//	manifests/SEQ.json      what a sequence holds
//	objects/SHA256.zst      shards, deltas and filters, named by the SHA-256 of their octets
//
// A shard is a file of the format entries (docs/lists.md, section 6), in its order: the entries of a list whose key has the
// same six highest bits of its XXH3-64. A delta is a file of the same form, in which a line "- TAB KEY TAB ACTION TAB SCOPE"
// removes an entry, and any other line adds one or replaces it.
//
// A Publisher writes these files, a Node follows them. Nothing here judges entries: that was the publisher's gate, and is
// each node's own.
package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// sumOf is a SHA-256 as manifests have it.
func sumOf(octets []byte) string {
	sum := sha256.Sum256(octets)
	return hex.EncodeToString(sum[:])
}

// The names of files in a store.

func latestName(channel string) string   { return channel + "/" + latestFile }
func pinName(channel string) string      { return channel + "/" + pinFile }
func manifestName(sequence int64) string { return fmt.Sprintf("manifests/%d.json", sequence) }
func objectName(object string) string    { return "objects/" + object }

// The trusted comments of signatures: what is signed for one place is nothing in another.

func sequenceComment(channel string, sequence int64) string {
	return fmt.Sprintf("blockd %s %d", channel, sequence)
}

func pinComment(channel string, sequence int64) string {
	return fmt.Sprintf("blockd %s pin %d", channel, sequence)
}
