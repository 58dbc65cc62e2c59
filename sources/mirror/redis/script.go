package redis

import (
	_ "embed"
	"fmt"
)

// change.lua changes one entry, its log and its count.
//
//go:embed change.lua
var changeScript string

// Lua is the script by which other programs change the list, with a head of comments that says how to call it. The whole
// text may be given to EVAL or SCRIPT LOAD. It is "" for the key of another program.
func (s *Source) Lua() string {
	if s.key != "" {
		return ""
	}
	k := s.shards[0]
	text := fmt.Sprintf(`-- Puts an entry into the list %[1]s of blockd, or takes one out.
--
--   KEYS  %[2]s  %[3]s  %[4]s
--   ARGV  put ENTRY VALUE, or del ENTRY
--
-- VALUE is ACTION TAB EXPIRES TAB ID TAB REASON; from its end fields may be left out, and each may be empty. ACTION is block, allow,
-- tempfail or discard (empty: that of the list), EXPIRES Unix seconds (empty: never), ID what you call the entry, REASON a note.
--
-- ENTRY is an address, a domain or a network in blockd's own spelling: lower case, domains as A-labels. Another spelling works; but two
-- spellings are two fields of one entry, and when one goes, the entry goes until the next full read.
--
-- The answer is the number of changes so far. What is there already is no change, and costs no line in the log.
--
--   redis-cli --eval FILE '%[2]s' '%[3]s' '%[4]s' , put spam@bad.example "$(printf 'block\t\t4711\tsold addresses')"
--   redis-cli --eval FILE '%[2]s' '%[3]s' '%[4]s' , del spam@bad.example
--
-- Programs send SCRIPT LOAD once and then EVALSHA; after NOSCRIPT (the server has begun anew) they send EVAL.
`, s.list, k.entries, k.log, k.rev)
	if n := len(s.shards); n > 1 {
		const example = "spam@bad.example"
		text += fmt.Sprintf(`--
-- There are %[1]d shards: of {blockd:%[2]s:N} N is the top %[3]d bits of the XXH3-64 of ENTRY with the seed 0. For %[4]s N is %[5]d.
`, n, s.list, shardBits(n), example, shardOf(example, n))
	}
	return text + "\n" + changeScript
}
