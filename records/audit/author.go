package audit

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Who may change anything here has no name of his own: the daemon, who holds its token, and a user of this machine,
// by his number. No token has a name with a blank.
const (
	Daemon    = "the daemon"
	ItsToken  = "the token of the daemon"
	UserBegin = "uid "
)

// MaxAuthor bounds an Author, and maxWho who somebody is, in octets.
const (
	MaxAuthor = 128
	maxWho    = 64
)

// Author is the text that entries, requests and lines of the journal have of who makes a change: "jo (helpdesk)",
// what he calls himself and, in the last brackets, who was authenticated; who alone where he says nothing, or just
// that. Whatever he says, the last brackets are not his. An Author that is sent back by the same one stays as it is.
func Author(who, says string) string {
	who = strings.NewReplacer("(", "[", ")", "]").Replace(who)
	if len(who) > maxWho { // and no other one's
		sum := sha256.Sum256([]byte(who))
		who = fmt.Sprintf("%s~%x", clip(who, maxWho-17), sum[:8])
	}
	if says == "" || says == who {
		return who
	}
	behind := " (" + who + ")"
	return clip(strings.TrimSuffix(Shown(says), behind), MaxAuthor-len(behind)) + behind
}

// Shown is an Author for people, as entries have it: of those who may change anything here the name that they give is
// enough, unless it looks like that of another one. The journal has both.
func Shown(author string) string {
	who := WhoOf(author)
	says := strings.TrimSuffix(author, " ("+who+")")
	if says == author || strings.ContainsAny(says, "()") || who != Daemon && who != ItsToken && !strings.HasPrefix(who, UserBegin) {
		return author
	}
	return says
}

// WhoOf is who was authenticated, of an Author.
func WhoOf(author string) string {
	if inner, ends := strings.CutSuffix(author, ")"); ends {
		if at := strings.LastIndex(inner, " ("); at >= 0 {
			return inner[at+len(" ("):]
		}
	}
	return author
}
