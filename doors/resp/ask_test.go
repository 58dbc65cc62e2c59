package resp

import (
	"strings"
	"testing"

	"blockd/internal/testkit/asked"
)

// TestListThatIsAsked: 1 if the store has the sender, 0 if it has not, an error that clients try again after if it is away.
func TestListThatIsAsked(t *testing.T) {
	s := &asked.Store{}
	r := newRig(t)
	r.stores = s.Sets(t, "spam", asked.Name)
	address, _ := r.serve(t)
	p := dial(t, address)
	s.Door(t, func(domain string) string {
		got := p.ask(t, "SISMEMBER", "senders", "ann@"+domain)
		if strings.HasPrefix(got, "-TRYAGAIN ") || strings.HasPrefix(got, "-LOADING ") {
			return "later"
		}
		return strings.TrimSpace(got)
	}, asked.Answers{Listed: ":1", Clear: ":0", Unknown: "later", Others: map[string]string{"bad.example": ":1"}})
}
