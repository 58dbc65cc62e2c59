package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// The texts of a query, in octets: no address, reason or name is longer.
const maxQueryText = 1000

// known refuses parameters that a method does not have: the caller may have meant one to narrow the question. Names are
// those of its description.
func known(w http.ResponseWriter, r *http.Request, names []string) bool {
	if r.URL.RawQuery == "" {
		return true
	}
	values, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return false
	}
	for name := range values {
		if !slices.Contains(names, name) {
			fail(w, http.StatusBadRequest, noParameter(name, names))
			return false
		}
	}
	return true
}

// noParameter says that there is no parameter of a name, and which there are.
func noParameter(name string, names []string) string {
	there := "there are none"
	if len(names) > 0 {
		there = "there are " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s: no such parameter; %s", name[:min(len(name), 64)], there)
}

// queryNames are the parameters of an operation that stand in the query.
func queryNames(op *huma.Operation) (names []string) {
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	return names
}

// limitOf reads "limit": 1 to most.
func limitOf(text string, usual, most int) (int, error) {
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("limit: want 1 to %d, have %q", most, text)
	}
	return n, nil
}

// timeOf reads a parameter that is a time; "" is the zero time.
func timeOf(name, text string) (at time.Time, err error) {
	if text != "" {
		if at, err = time.Parse(time.RFC3339, text); err != nil {
			err = fmt.Errorf("%s: want a time such as 2027-01-31T12:00:00Z, have %q", name, text)
		}
	}
	return at, err
}

// oneOf reads a parameter with few values, of which "" is one or not.
func oneOf(name, text string, values ...string) error {
	if slices.Contains(values, text) {
		return nil
	}
	shown := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	last := len(shown) - 1
	return fmt.Errorf("%s: want %s or %s, have %q", name, strings.Join(shown[:last], ", "), shown[last], text)
}

// zeroOrOne refuses other values of switches.
func zeroOrOne(v map[string]string, names ...string) error {
	for _, name := range names {
		if text := v[name]; text != "" && text != "0" && text != "1" {
			return fmt.Errorf("%s: want 0 or 1, have %q", name, text)
		}
	}
	return nil
}

// The parameters of operations, as the document has them.

// number is a parameter from least to most; usual is what it is if it is not said.
func number(name, about string, least, most, usual int) *huma.Param {
	p, lower, upper := parameter(name, about, ""), float64(least), float64(most)
	p.Schema = &huma.Schema{Type: huma.TypeInteger, Minimum: &lower, Maximum: &upper, Default: usual}
	return p
}

// choice is a parameter with few values.
func choice(name, about string, values ...string) *huma.Param {
	p := parameter(name, about, "")
	for _, v := range values {
		p.Schema.Enum = append(p.Schema.Enum, v)
	}
	return p
}

// switched is a parameter that is 1, or 0, or not there.
func switched(name, about string) *huma.Param { return choice(name, "1: "+about, "0", "1") }

// moment is a parameter that is a time.
func moment(name, about string) *huma.Param {
	p := parameter(name, about+", by RFC 3339", "")
	p.Schema.Format = "date-time"
	return p
}

// limited is a parameter that is a text of so many octets at most.
func limited(name, about string, most int) *huma.Param {
	p := parameter(name, about, "")
	p.Schema.MaxLength = &most
	return p
}
