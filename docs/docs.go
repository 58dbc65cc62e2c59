// Package docs has what programs print of these pages, so that each recipe stands once.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed cookbook.md
var cookbook string

// Recipe is the block of cookbook.md with these words behind its fence, such as
// "main.cf milter"; "" if there is none.
func Recipe(words string) string {
	_, rest, _ := strings.Cut(cookbook, "\n```"+words+"\n")
	block, _, _ := strings.Cut(rest, "```\n")
	return block
}
