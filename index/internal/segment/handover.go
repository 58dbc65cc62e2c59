package segment

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Handover is what one process has done in the folder, for the other one that publishes what
// was built of it, or does not.
type Handover struct {
	Fresh []byte   // what the build has used, as the folder's own file says it
	Made  []string // segments that it has written
	Notes []string
}

// HandOver ends this process's part: it must neither Commit nor Discard.
func (c *Cache) HandOver() Handover {
	h := Handover{Fresh: c.encode(), Made: slices.Sorted(maps.Keys(c.made)), Notes: c.Notes}
	c.made = map[string]bool{}
	return h
}

// Take goes on where another process has ended. What it says is checked: a name that is not
// a segment's is refused, and nothing is taken.
func (c *Cache) Take(h Handover) error {
	fresh, ok := decode(h.Fresh)
	if !ok {
		return fmt.Errorf("cache: the other process's: %w", ErrDamaged)
	}
	for _, m := range fresh {
		if !isName(m.segment) {
			return fmt.Errorf("cache: %q is no segment", m.segment)
		}
	}
	for _, name := range h.Made {
		if !isName(name) {
			return fmt.Errorf("cache: %q is no segment", name)
		}
	}
	c.fresh = fresh
	for _, name := range h.Made {
		c.made[name] = true
	}
	c.Notes = append(c.Notes, h.Notes...)
	return nil
}

// isName reports whether name is one that nameOf makes.
func isName(name string) bool {
	id, ok := strings.CutSuffix(name, Suffix)
	return ok && len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// newBy begins the names of the segments that a process is writing.
func newBy(pid int) string { return fmt.Sprintf("%s%d-", newMark, pid) }

// Sweep removes the segments that a process was writing when it died. Whole ones stay: the
// next build of the same content uses them.
func (c *Cache) Sweep(pid int) {
	if c.folder == "" {
		return
	}
	left, _ := filepath.Glob(filepath.Join(globbed(c.folder), newBy(pid)+"*"))
	for _, name := range left {
		os.Remove(name)
	}
}

// globbed is a pattern that matches path alone.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
