package dnsbl

import (
	"testing"

	"github.com/miekg/dns"

	"blockd/internal/testkit/asked"
)

// TestListThatIsAsked: an address if the store has the name, no name if it has not, SERVFAIL if it is away; and a zone of
// other lists answers as ever.
func TestListThatIsAsked(t *testing.T) {
	s := &asked.Store{}
	r := newRig(t, func(r *rig) { r.verdicts.Stores = s.Sets(t, "one", "two", asked.Name) })
	s.Door(t, func(domain string) string {
		return dns.RcodeToString[r.ask(domain+".dbl.here.example", dns.TypeA).Rcode]
	},
		asked.Answers{Listed: "NOERROR", Clear: "NXDOMAIN", Unknown: "SERVFAIL", Others: map[string]string{"listed.example.one": "NXDOMAIN"}})
}
