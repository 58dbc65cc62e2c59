package lists

import (
	"errors"
	"fmt"
	"strings"

	"blockd/mail/addr"
)

// maxTested bounds the senders that the self-tests of one file name. Each is
// looked up at every build, in some microseconds.
const maxTested = 1000

// Test is what a comment such as "#? block new@bulk.test" asks of its list: an
// assertion that is held against the compiled list before that may serve.
type Test struct {
	Block   bool        // this list alone refuses them; false: it does not
	Senders []addr.Addr // one or more, of which one may be the null sender
}

// testText returns what follows the mark of a self-test in a comment.
func testText(comment string) (string, bool) {
	for _, mark := range [...]string{"#?", ";?", "//?", "!?"} {
		if text, ok := strings.CutPrefix(comment, mark); ok {
			return text, true
		}
	}
	return "", false
}

// comment queues a line that the format takes for a comment: it may be a
// self-test.
func (r *reading) comment(line string) {
	text, ok := testText(line)
	if !ok {
		r.skip(Comment, "")
		return
	}
	if !r.utf8(text) {
		return
	}
	test, err := parseTest(trim(text))
	if err != nil {
		r.fail(Syntax, "", err.Error())
		return
	}
	r.lines.inTurn()
	if r.shared.tested += len(test.Senders); r.shared.tested > maxTested {
		r.fail(SelfTest, "", fmt.Sprintf("more than %d senders in the self-tests of one file", maxTested))
		return
	}
	r.skip(SelfTest, "")
	r.queue[len(r.queue)-1].Test = test
}

// longComment is comment for a line that was too long to keep.
func (r *reading) longComment(line string) {
	if _, ok := testText(line); ok {
		r.fail(TooLong, "", "a self-test of more than 65536 octets")
		return
	}
	r.skip(Comment, "")
}

// parseTest reads "block SENDER..." or "pass SENDER...". What it returns holds
// nothing of text, so that it outlives the line.
func parseTest(text string) (*Test, error) {
	word, rest := cutWord(text)
	test := &Test{Block: word == "block"}
	if rest == "" || !test.Block && word != "pass" {
		return nil, errors.New(`a self-test is "#? block SENDER" or "#? pass SENDER"; a comment is written with a blank behind its mark`)
	}
	for rest = strings.Clone(rest); rest != ""; rest = trimLeft(rest) {
		sender := rest
		if i := endOfKey(rest); i >= 0 {
			sender = rest[:i]
		}
		rest = rest[len(sender):]
		a, err := addr.Parse(sender)
		switch e := (*addr.Error)(nil); {
		case errors.As(err, &e):
			return nil, fmt.Errorf("%q is no sender: %s", sender, e.Reason)
		case err != nil:
			return nil, err
		case !a.Null() && a.Domain() == "":
			return nil, fmt.Errorf("%q is no sender: no domain", sender)
		}
		test.Senders = append(test.Senders, a)
	}
	return test, nil
}
