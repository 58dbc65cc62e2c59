package lists

import (
	"encoding/json"
	"strings"
)

// dropFile is a Spamhaus DROP list: "NETWORK ; SBL123", or one JSON object a line.
// The JSON form ends with an object that says how many there are.
type dropFile struct {
	networks, systems int // lines with "cidr", and those with "asn" alone
	records           int // as announced
	announced         bool
}

// dropRecord is one line of the JSON form. Other members are not looked at.
type dropRecord struct {
	CIDR    string          `json:"cidr"`
	SBLID   string          `json:"sblid"`
	ASN     json.RawMessage `json:"asn"`
	Type    string          `json:"type"`
	Records *int            `json:"records"`

	Copyright string `json:"copyright"`
	Terms     string `json:"terms"`
}

// readDrop reads the list and holds the count against the lines: a download that
// broke off at a line's end shows in nothing else.
func readDrop(r *reading) error {
	f := dropFile{}
	if err := eachLine(semicolonComment, f.line)(r); err != nil || r.err != nil || !f.announced {
		return err
	}
	found := f.networks
	if found == 0 {
		found = f.systems // the list of systems, of which nothing is loaded
	}
	if found != f.records {
		return refusal(Truncated, "the list says that it has %d records, and has %d", f.records, found)
	}
	return nil
}

func semicolonComment(text string) bool { return text != "" && text[0] == ';' }

func (f *dropFile) line(r *reading, text string) {
	if text[0] == '{' {
		f.object(r, text)
		return
	}
	network, note, _ := strings.Cut(text, ";")
	r.because(trim(note))
	f.network(r, text, trimRight(network))
}

func (f *dropFile) network(r *reading, line, network string) {
	switch {
	case !r.utf8(network):
	case !looksNet(network):
		r.fail(Syntax, line, "no network")
	default:
		r.networks(network)
	}
}

func (f *dropFile) object(r *reading, text string) {
	var rec dropRecord
	if !r.utf8(text) {
		return
	}
	if err := json.Unmarshal([]byte(text), &rec); err != nil {
		r.fail(Syntax, "", "no JSON object of a DROP list: "+err.Error())
		return
	}
	if rec.Copyright != "" {
		put(&r.sum.About.Licence, CleanAbout(strings.TrimSuffix(rec.Copyright+", "+rec.Terms, ", "), MaxAboutText))
	}
	switch {
	case rec.CIDR != "":
		f.networks++
		r.because(rec.SBLID)
		f.network(r, text, trim(rec.CIDR))
	case len(rec.ASN) > 0:
		f.systems++
		r.skip(OtherMember, "a system's number, not a network")
	case rec.Records != nil:
		f.records, f.announced = *rec.Records, true
		r.skip(Header, "")
	case rec.Type == "metadata":
		r.skip(Header, "")
	default:
		r.fail(Syntax, "", `an object with neither "cidr" nor "asn"`)
	}
}

// dropMark tells "NETWORK ; SBL123" of Spamhaus DROP.
func dropMark(text string) bool {
	net, note, ok := strings.Cut(text, ";")
	return ok && looksNet(trimRight(net)) && hasFold(trimLeft(note), "SBL")
}
