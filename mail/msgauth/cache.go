package msgauth

import "time"

// The bounds of what is remembered. Below a minute a flood of one sender's mail
// would ask again and again; above an hour a key that was withdrawn would go on.
const (
	leastTTL  = time.Minute
	mostTTL   = time.Hour
	noneTTL   = time.Minute // there is no such record
	failedTTL = 5 * time.Second

	maxAnswers = 10_000
	maxOctets  = 32 << 20 // of their texts: 10,000 of the largest would be 640 MB
)

// cache remembers answers. Its owner's lock guards it.
type cache struct {
	answers map[question]cached
	octets  int
	now     func() time.Time
}

type cached struct {
	answer
	until time.Time
}

func newCache() cache { return cache{answers: map[question]cached{}, now: time.Now} }

func (c *cache) get(q question) (answer, bool) {
	a, ok := c.answers[q]
	if !ok || !c.now().Before(a.until) {
		return answer{}, false
	}
	return a.answer, true
}

// put remembers a. What makes room is whichever the map gives first, which is
// another one each time: who floods the cache with names of their own cannot
// choose whose answers go, and order would cost more than a query now and then.
func (c *cache) put(q question, a answer) {
	c.drop(q)
	size := a.size(q)
	for k := range c.answers {
		if len(c.answers) < maxAnswers && c.octets+size <= maxOctets {
			break
		}
		c.drop(k)
	}
	c.answers[q] = cached{a, c.now().Add(a.keep())}
	c.octets += size
}

func (c *cache) drop(q question) {
	if old, ok := c.answers[q]; ok {
		c.octets -= old.size(q)
		delete(c.answers, q)
	}
}

func (a *answer) keep() time.Duration {
	switch a.outcome {
	case records:
		return min(max(time.Duration(a.ttl)*time.Second, leastTTL), mostTTL)
	case failed:
		return failedTTL
	}
	return noneTTL
}

// recordSize is what a record takes beside its text.
const recordSize = 24

func (a *answer) size(q question) int {
	n := len(q.name) + len(a.fault)
	for _, rec := range a.records {
		n += len(rec.text) + recordSize
	}
	return n
}
