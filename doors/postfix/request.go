package postfix

import "bytes"

// The limits of a policy request. Postfix 3.7 sends 29 attributes in 700 to 900
// octets. Their values come from lines of SMTP, which have at most 2,048.
const (
	maxAttributes = 100
	maxAttribute  = 4 << 10  // octets of a line, without its end
	maxRequest    = 64 << 10 // octets in all
)

// accessPolicy is the only kind of request that there is.
const accessPolicy = "smtpd_access_policy"

// policyRequest holds the attributes of a policy request that blockd needs.
// The texts lie in the connection's buffer.
type policyRequest struct {
	kind      []byte // accessPolicy
	state     []byte // "RCPT" and others: the command that it is about
	sender    []byte // in Postfix's internal form: see external
	recipient []byte // in the same form
	client    []byte // an address, or "unknown"
	port      []byte // of the client; "" or "unknown" before Postfix 3.0
	name      []byte // the client's name in DNS, or "unknown"
	helo      []byte
	login     []byte // the SASL user name; empty without authentication
	instance  []byte // the same for all requests about one message
	queueID   []byte

	duplicates int // how often one of these attributes came again; the last value counts
}

// field returns where to store the value of an attribute; nil if the attribute is not needed.
func (r *policyRequest) field(name []byte) *[]byte {
	switch string(name) { // does not allocate
	case "request":
		return &r.kind
	case "protocol_state":
		return &r.state
	case "sender":
		return &r.sender
	case "recipient":
		return &r.recipient
	case "client_address":
		return &r.client
	case "client_port":
		return &r.port
	case "client_name":
		return &r.name
	case "helo_name":
		return &r.helo
	case "sasl_username":
		return &r.login
	case "instance":
		return &r.instance
	case "queue_id":
		return &r.queueID
	}
	return nil
}

// measurePolicyRequest implements dialect.measure: a request ends with an empty line.
func measurePolicyRequest(buf []byte, seen int) (int, error) {
	from := max(0, seen-1) // the first of the two LF may have been the last octet
	n := 0
	if buf[0] == '\n' {
		n = 1
	} else if i := bytes.Index(buf[from:], []byte("\n\n")); i >= 0 {
		n = from + i + 2
	}
	if n > maxRequest || n == 0 && len(buf) >= maxRequest {
		return 0, errTooLong
	}
	return n, nil
}

// parsePolicyRequest reads a whole request: "name=value" lines, and an empty one
// after them.
func parsePolicyRequest(text []byte) (r policyRequest, err error) {
	for n := 0; ; n++ {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		name, value, ok := bytes.Cut(line, []byte{'='})
		switch {
		case len(line) == 0 && string(r.kind) == accessPolicy:
			return r, nil
		case n == maxAttributes, len(line) > maxAttribute:
			return r, errTooLong
		case !ok, bytes.IndexByte(line, 0) >= 0: // an empty line too: the request does not name its kind
			return r, errMalformed
		}
		if field := r.field(name); field != nil {
			if *field != nil {
				r.duplicates++
			}
			*field = value
		}
	}
}
