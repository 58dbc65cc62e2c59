package resp

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"blockd/policy"
	"blockd/policy/verdict"
)

// batchSize is how many questions of one connection are asked together. More of them are not
// faster, and their verdicts take half a kilobyte each.
const batchSize = 128

// batch has the questions of commands that have come together, and their answers.
type batch struct {
	policy.Batch
	asked     []policy.Question
	questions []question
	lookups   []lookup
	used      int           // the most of asked since forget
	unread    map[*set]bool // when they are answered
	single    [1]verdict.Verdict
}

// lookup is one command that waits for its verdicts.
type lookup struct {
	form      form
	n         int   // questions
	immediate int64 // of formCount: what counts without a question
	weighs    bool  // of formText and formTexts: a weight begins the text
}

// form is how a command says what it has heard.
type form uint8

// The forms.
const (
	formInt   form = iota // 1 or 0
	formBool              // the same, as a boolean in RESP 3
	formText              // the reason, or nil
	formCount             // how many are listed
	formType              // string or none
	formTTL               // -1 or -2
	formInts              // arrays of these
	formBools
	formTexts
)

// add has a command wait, that asks about these texts of a set.
func (c *conn) add(f form, in *set, texts [][]byte) {
	b := c.begin(f)
	for _, text := range texts {
		b.add(in, text)
	}
	b.end()
}

// begin begins a command that waits.
func (c *conn) begin(f form) *batch {
	if c.batch == nil {
		c.batch = new(batch)
	}
	c.batch.lookups = append(c.batch.lookups, lookup{form: f})
	return c.batch
}

// add adds a question to the last command of b.
func (b *batch) add(in *set, text []byte) {
	asked, network := ask(in, text)
	b.asked = append(b.asked, asked)
	b.questions = append(b.questions, question{network: network, in: in})
	b.lookups[len(b.lookups)-1].n++
}

// end ends the last command of b: it knows all its questions.
func (b *batch) end() {
	n := b.lookups[len(b.lookups)-1].n
	asked, questions := b.asked[len(b.asked)-n:], b.questions[len(b.questions)-n:]
	for i := range questions {
		if !questions[i].network.IsValid() || questions[i].in.raw {
			continue
		}
		for j := range asked {
			if !questions[j].network.IsValid() && asked[j].Client.IsValid() && questions[i].network.Contains(asked[j].Client) {
				questions[i].covered = true
				break
			}
		}
	}
}

// answerLookups answers the commands that wait.
func (c *conn) answerLookups() {
	b := c.batch
	if b == nil || len(b.lookups) == 0 {
		return
	}
	b.unread = c.notRead()
	if len(b.lookups) == 1 && len(b.asked) == 1 {
		b.single[0] = c.checker.Ask(b.asked[0])
		c.reply(&b.lookups[0], b, 0, b.single[:])
	} else {
		verdicts := c.checker.AskAll(&b.Batch, b.asked)
		first := 0
		for i := range b.lookups {
			l := &b.lookups[i]
			c.reply(l, b, first, verdicts[first:first+l.n])
			first += l.n
		}
	}
	b.used = max(b.used, len(b.asked))
	b.asked, b.questions, b.lookups = b.asked[:0], b.questions[:0], b.lookups[:0]
}

// forget lets go of what has been asked: the texts lie in a buffer that others use next.
func (b *batch) forget() {
	b.Reset()
	clear(b.asked[:max(b.used, len(b.asked))])
	b.asked, b.questions, b.lookups, b.used = b.asked[:0], b.questions[:0], b.lookups[:0], 0
}

// reply answers one command whose questions begin at first.
func (c *conn) reply(l *lookup, b *batch, first int, verdicts []verdict.Verdict) {
	start, count := len(c.out), l.immediate
	switch l.form {
	case formInts, formBools, formTexts:
		c.array(l.n)
	}
	var said [errored + 1]int
	done := false
	defer func() {
		if !done { // a defect: the words for it must not become the rest of an array
			c.out = c.out[:start]
		}
		for a, n := range said {
			if n > 0 {
				c.metrics.answers[a].Add(float64(n))
			}
		}
	}()
	for i := range verdicts {
		v, q := &verdicts[i], &b.questions[first+i]
		a, match := q.judge(v)
		if a != listed && b.unread[q.in] { // what is listed is refused as mail, too
			a = errored
		}
		said[a]++
		switch a {
		case errored, unjudged: // one is enough: half an answer would be none
			c.out = c.out[:start]
			if b.unread[q.in] {
				c.err(q.in.loading())
			} else {
				c.err(c.trouble(v, b.asked[first+i].Text, i, l.n))
			}
			done = true
			return
		case listed:
			count++
			if !q.in.raw {
				c.told.Listed(v)
			}
		}
		switch l.form {
		case formInt, formInts:
			c.one(a == listed)
		case formBool, formBools:
			c.bool(a == listed)
		case formText, formTexts:
			switch {
			case a != listed:
				c.null()
			case l.weighs:
				c.bulk("1 " + reason(v, match))
			default:
				c.bulk(reason(v, match))
			}
		}
	}
	switch l.form {
	case formCount:
		c.int(count)
	case formType:
		c.word([...]string{"none", "string"}[min(count, 1)])
	case formTTL:
		c.int(min(count, 1) - 2)
	}
	done = true
}

func (w *writer) one(yes bool) {
	if yes {
		w.int(1)
		return
	}
	w.int(0)
}

// trouble is the error for a text about which there is no answer.
func (c *conn) trouble(v *verdict.Verdict, text string, i, n int) string {
	if v.Internal() {
		return "LOADING blockd: the lists cannot be read: see its log"
	}
	c.log.Debug("resp question cannot be read", slog.Any("error", v.Err))
	which := ""
	if n > 1 {
		which = "value " + strconv.Itoa(i+1) + ", "
	}
	return fmt.Sprintf("ERR %s%s is no sender, domain or IP address", which, shown(text))
}

// maxShown bounds the part of a client's text that an answer repeats.
const maxShown = 128

// shown is a text of a client as an error may hold it.
func shown(text string) string {
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	return strconv.QuoteToASCII(strings.ToValidUTF8(text, "?"))
}
