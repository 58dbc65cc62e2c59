package redis

import "blockd/sources/mirror"

// Keys are the names of the hashes that hold the entries of a list with blockd's own keys, by shard.
func Keys(o Options) (names []string) {
	for _, k := range keysOf(o) {
		names = append(names, k.entries)
	}
	return names
}

// OwnRow is the row of a field of blockd's own hash.
func OwnRow(entry, value string) mirror.Row { return valueRow(entry, value) }

// Row is the row of a field of a hash that another program may have written: with a value such as blockd's own it says
// more than that the entry is there.
func Row(entry, value string) mirror.Row { return foreignRow(entry, value) }

// Shard is the place among that many Keys of the hash that holds an entry.
func Shard(entry string, shards int) int { return shardOf(entry, shards) }
