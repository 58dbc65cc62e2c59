package config

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// positions maps the path of a key ("smtp.listen", "list[0].name") to its line.
type positions map[string]int

// of returns the line of key, or of the table that should have had it; 0 if
// neither stands in the file.
func (p positions) of(key string) int {
	for key != "" {
		if line, ok := p[key]; ok {
			return line
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 0
}

// findPositions walks a document that is known to be well-formed.
func findPositions(data []byte) positions {
	var (
		p      unstable.Parser
		lines  = positions{}
		tables = map[string]int{} // of an array of tables: how many so far
		prefix string
		offset int // up to here the line ends are counted
		line   = 1
	)
	p.Reset(data)
	lineOf := func(n *unstable.Node) int { // keys come in the order of the text
		if to := int(n.Raw.Offset); to > offset {
			line += bytes.Count(data[offset:to], []byte("\n"))
			offset = to
		}
		return line
	}
	note := func(prefix string, key unstable.Iterator) string {
		path := prefix
		for key.Next() {
			if n := tables[path]; n > 0 && prefix == "" { // [list.source] is of the last [[list]]
				path = fmt.Sprintf("%s[%d]", path, n-1)
			}
			path = joinKey(path, string(key.Node().Data))
			if at := lineOf(key.Node()); lines[path] == 0 {
				lines[path] = at
			}
		}
		return path
	}
	var walk func(prefix string, kv *unstable.Node)
	walk = func(prefix string, kv *unstable.Node) {
		path := note(prefix, kv.Key())
		inner := kv.Value().Children()
		for i := 0; inner.Next(); i++ {
			switch n := inner.Node(); n.Kind {
			case unstable.KeyValue:
				walk(path, n)
			case unstable.InlineTable:
				for kids := n.Children(); kids.Next(); {
					walk(fmt.Sprintf("%s[%d]", path, i), kids.Node())
				}
			}
		}
	}
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table:
			prefix = note("", e.Key())
		case unstable.ArrayTable:
			path := note("", e.Key())
			prefix = fmt.Sprintf("%s[%d]", path, tables[path])
			tables[path]++
			lines[prefix] = line
		case unstable.KeyValue:
			walk(prefix, e)
		}
	}
	return lines
}
