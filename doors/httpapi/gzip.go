package httpapi

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// compressFrom is the least octets of an answer that is sent in gzip: shorter ones fit into one packet as they are.
const compressFrom = 1400

// compressors are kept, because each takes 800 KB.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that there is
	return z
}}

// compressed sends long answers in gzip to callers that take it. Answers about senders are not among them: they are
// short, and a connection has no time for them.
func compressed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if r.Method == http.MethodHead || !takesGzip(r.Header) {
			next(w, r)
			return
		}
		c := &compressor{ResponseWriter: w}
		defer c.close()
		next(c, r)
	}
}

func takesGzip(h http.Header) bool {
	for _, field := range h["Accept-Encoding"] {
		for part := range strings.SplitSeq(field, ",") {
			name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
			if name == "gzip" || name == "*" {
				weight = strings.ReplaceAll(weight, " ", "")
				return weight != "q=0" && weight != "q=0.0" && weight != "q=0.00" && weight != "q=0.000"
			}
		}
	}
	return false
}

// compressor is the writer of one answer. Its first write decides.
type compressor struct {
	http.ResponseWriter
	status  int
	decided bool
	z       *gzip.Writer // nil: as it is
}

// Unwrap is for http.ResponseController.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *compressor) WriteHeader(status int) {
	if status < http.StatusOK {
		c.ResponseWriter.WriteHeader(status)
	} else if c.status == 0 {
		c.status = status
	}
}

func (c *compressor) decide(first []byte) {
	c.decided = true
	h := c.Header()
	if len(first) >= compressFrom && h.Get("Content-Encoding") == "" && (c.status == 0 || c.status == http.StatusOK) {
		h.Set("Content-Encoding", "gzip")
		h.Del("Content-Length")
		if tag := h["Etag"]; len(tag) == 1 && !strings.HasPrefix(tag[0], "W/") {
			h["Etag"] = []string{"W/" + tag[0]} // other octets than the answer that has the tag
		}
		c.z = compressors.Get().(*gzip.Writer)
		c.z.Reset(c.ResponseWriter)
	}
	if c.status > 0 {
		c.ResponseWriter.WriteHeader(c.status)
	}
}

func (c *compressor) Write(b []byte) (int, error) {
	if !c.decided {
		c.decide(b)
	}
	if c.z != nil {
		return c.z.Write(b)
	}
	return c.ResponseWriter.Write(b)
}

// close ends the answer. After a panic there is no end: the connection is cut off.
func (c *compressor) close() {
	if cause := recover(); cause != nil {
		panic(cause)
	}
	if !c.decided {
		c.decide(nil)
	}
	if c.z != nil {
		c.z.Close() // it fails only if the client has gone
		c.z.Reset(nil)
		compressors.Put(c.z)
	}
}
