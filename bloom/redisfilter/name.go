package redisfilter

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A filter NAME is a string (or RedisBloom's type), and the hash {NAME}:config beside it, as
// Redisson has them: the braces put both into one slot of a Cluster. Shard i of a filter in
// parts is {NAME:i} with {NAME:i}:config; then {NAME}:config tells how many there are.
//
// While a filter is built it is {NAME}:tmp:TOKEN with {NAME}:config:tmp:TOKEN, and {NAME}:claim
// has the token of the push that may put its filter in place.

// checkName refuses what would not be one key in one slot with its config.
func checkName(name string, shards int) error {
	open := strings.IndexByte(name, '{')
	shut := strings.IndexByte(name[open+1:], '}')
	switch {
	case name == "" || len(name) > 512 || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("want the name of a key: 1 to 512 octets that can be shown")
	case shards != OneKey && strings.ContainsAny(name, "{}"):
		return fmt.Errorf("the parts of a filter are {NAME:0}, {NAME:1} and so on, so %s cannot have braces", name)
	case open < 0 && shut >= 0 || open >= 0 && shut <= 0:
		return fmt.Errorf("the braces of %s make no hash tag: want {…} with something between, or none", name)
	}
	return nil
}

// beside is a key in the slot of another.
func beside(key, what string) string {
	if strings.Contains(key, "{") {
		return key + ":" + what
	}
	return "{" + key + "}:" + what
}

func configKey(key string) string { return beside(key, "config") }

func shardKey(name string, i int) string { return fmt.Sprintf("{%s:%d}", name, i) }
