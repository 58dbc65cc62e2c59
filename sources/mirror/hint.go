package mirror

import (
	"errors"
	"strings"
)

// hints are what to look at first, for the classes of errors whose text does not say it.
var hints = map[Class]string{
	ClassUnreachable: "is the server up, and are host and port in the dsn right? A firewall may be between",
	ClassTimeout:     "the server is slow, or something on the way drops packets",
	ClassAuth:        "user and password stand in dsn_file; the role needs the right to read, and no other",
	ClassQuery:       "try the query with the database's own client, as the same user",
	ClassSchema:      "name the columns so: select address as entry, why as reason",
	ClassRows:        "max_rows bounds what is taken",
	ClassEncoding:    "the query may be about another table than was meant",
	ClassRefused:     "the server's own log says more",
}

// Hint is what an operator can do about an error of a source; "" if it says so itself, or if there is nothing to say.
func Hint(err error) string {
	e, ok := errors.AsType[*Error](err)
	if !ok || strings.Contains(e.Error(), "hint:") {
		return ""
	}
	return hints[e.Class]
}
