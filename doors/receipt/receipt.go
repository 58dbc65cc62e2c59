// Package receipt is for who was refused: a page about one refusal, at /r/REF, and a request to be let in.
// It shows what the refused person knows or may know, and nothing of anybody else: which list, whom to ask, what to do.
package receipt

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/text/language"

	"blockd/internal/listener"
	"blockd/records/history"
)

const (
	maxConnections = 256
	requestTimeout = 10 * time.Second
	maxHeader      = 8 << 10 // octets of a request's header
	maxBody        = 8 << 10 // octets of a form: MaxNote characters of four octets, each written as three
	searchTimeout  = 5 * time.Second

	// A client's network may ask for so many pages a minute, and the network that is routed on its own (history.Network)
	// for so many: who has one has 65,536 IPv6 /64. Networks are counted by a hash that changes each minute, which
	// mostNetworks values has: invented networks take no place that another one needs.
	mostPages    = 60
	mostWide     = 4 * mostPages
	mostNetworks = 1 << 16

	// mostFound bounds the decisions that are remembered between a page and the request after it, 1 KB each.
	mostFound = 1000
)

// Server is the door. The fields are set before Serve, which is called once.
type Server struct {
	Key      *Key
	Requests *Store
	// Find looks for the refusal that a reference stands for; nil without an error: there is none, or not any more.
	Find func(ctx context.Context, ref string) (*history.Record, error)
	// Contact says whom to ask about a list, for a reference; "" = nobody. It may be this door's own address.
	Contact func(list, ref string) string

	// About says where a list has its page, and where one complains about it: http, https or mailto, or "".
	About func(list string) (homepage, complaints string)
	// Proves asks DNS whether the mail that a request is about came from its sender. It may take as long as ctx lasts.
	Proves func(ctx context.Context, q Request) Proof
	TLS    *tls.Config // nil: no TLS
	Log    *slog.Logger

	pages    *prometheus.CounterVec
	requests *prometheus.CounterVec
	matcher  language.Matcher
	policy   string // Content-Security-Policy

	mu     sync.Mutex // guards what follows
	found  map[string]history.Record
	minute time.Time
	seed   maphash.Seed // of minute
	asked  []uint16     // pages in minute, by network
	wide   []uint16     // the same of history.Network
}

// Register adds the door's metrics to reg. It is called before Serve.
func (s *Server) Register(reg prometheus.Registerer) {
	s.pages = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "blockd_receipts_pages_total",
		Help: "Pages asked for at the door for refused people, by result: shown, unknown (no reference of ours, or too old), limited, error."}, []string{"result"})
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "blockd_receipts_requests_total",
		Help: "Requests of refused people to be let in, by result: taken, again (the same once more), limited, error."}, []string{"result"})
	for _, result := range []string{"shown", "unknown", "limited", "error"} {
		s.pages.WithLabelValues(result)
	}
	for _, result := range []string{"taken", "again", "limited", "error"} {
		s.requests.WithLabelValues(result)
	}
	reg.MustRegister(s.pages, s.requests)
}

// Serve answers until ctx ends, and then nil. A listener that fails for good is an error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	srv := &http.Server{Handler: s.Handler(), TLSConfig: s.TLS, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout + searchTimeout, IdleTimeout: requestTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)} // strangers may cause any number of its lines
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		s.Log.Info("receipts listens", slog.String("address", l.Addr().String()))
		b := listener.Bound(l, maxConnections, ctx.Done(), func(err error, retry time.Duration) {
			s.Log.Error("receipts accept failed", slog.Any("error", err), slog.Duration("retry", retry))
		})
		go func() {
			if s.TLS != nil {
				failed <- srv.ServeTLS(b, "", "")
				return
			}
			failed <- srv.Serve(b)
		}()
	}
	var err error
	left := len(listeners)
	select {
	case <-ctx.Done():
	case err = <-failed:
		left--
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if srv.Shutdown(end) != nil {
		srv.Close()
	}
	for range left {
		<-failed
	}
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler answers /r/REF. All else, and all references that are not of this instance, are the same 404.
func (s *Server) Handler() http.Handler {
	s.matcher = language.NewMatcher(languages)
	sum := sha256.Sum256([]byte(style))
	s.policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /r/{ref}", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, false) })
	mux.HandleFunc("POST /r/{ref}", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, true) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.pages.WithLabelValues("unknown").Inc()
		s.say(w, r, http.StatusNotFound, func(t *words) (string, string) { return t.UnknownTitle, t.Unknown })
	})
	return mux
}

// view is what the page is made of.
type view struct {
	language, heading string
	words             *words
	text              []string // paragraphs
	state             string   // of the request; "" = there is none
	asks              bool     // the page has the form
	contact, ref      string

	homepage, complaints string // of the list
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, asks bool) {
	network := clientOf(r)
	if !s.allows(network, time.Now()) {
		s.pages.WithLabelValues("limited").Inc()
		w.Header().Set("Retry-After", "60")
		s.say(w, r, http.StatusTooManyRequests, func(t *words) (string, string) { return t.TroubleTitle, t.Trouble })
		return
	}
	ref := r.PathValue("ref")
	record, err := s.find(r.Context(), ref)
	switch {
	case err != nil:
		s.pages.WithLabelValues("error").Inc()
		if !errors.Is(err, history.ErrBusy) && r.Context().Err() == nil {
			s.Log.Error("receipt not shown", slog.String("ref", ref), slog.Any("error", err))
		}
		w.Header().Set("Retry-After", "60")
		s.say(w, r, http.StatusServiceUnavailable, func(t *words) (string, string) { return t.TroubleTitle, t.Trouble })
		return
	case record == nil:
		s.pages.WithLabelValues("unknown").Inc()
		s.say(w, r, http.StatusNotFound, func(t *words) (string, string) { return t.UnknownTitle, t.Unknown })
		return
	}
	personal := isPersonal(record)
	if asks && !personal {
		s.take(w, r, ref, record, network)
		return
	}
	v := s.viewOf(r)
	v.heading, v.ref = v.words.Title, ref
	text := v.words.Refused
	switch {
	case personal:
		text = v.words.Personal
	case record.List == "":
		text = v.words.Client
	}
	v.text = []string{filled(text, record.List, record.Time), v.words.Way}
	switch q, err := s.Requests.Get(ref); {
	case personal: // whom to let in is the recipient's to say
	case errors.Is(err, ErrNoRequest):
		v.asks = true
	case err != nil: // the page is of use without it
		s.Log.Error("request not read", slog.String("ref", ref), slog.Any("error", err))
	case q.State == Open:
		v.state = filled(v.words.Open, q.List, q.Time)
	case q.State == Declined:
		v.state = v.words.Declined
	case q.Until == nil:
		v.state = v.words.Forever
	case time.Now().After(*q.Until): // what was granted is over
		v.state = v.words.Declined
	default:
		v.state = filled(v.words.Granted, q.List, *q.Until)
	}
	list := record.List
	if personal { // its name says what the recipient has
		list = ""
	}
	if contact := s.Contact(list, ref); !strings.Contains(contact, "/r/"+ref) {
		v.contact = contact
	}
	if s.About != nil && record.List != "" && !personal {
		v.homepage, v.complaints = s.About(record.List)
	}
	s.pages.WithLabelValues("shown").Inc()
	s.write(w, http.StatusOK, v)
}

// take takes a request, and leads back to the page, which says so.
func (s *Server) take(w http.ResponseWriter, r *http.Request, ref string, record *history.Record, network netip.Prefix) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		s.requests.WithLabelValues("error").Inc()
		s.say(w, r, http.StatusBadRequest, func(t *words) (string, string) { return t.TroubleTitle, t.Trouble })
		return
	}
	now := time.Now()
	wanted := newRequest(ref, record, r.PostForm.Get("note"), now)
	q, made, err := s.Requests.ask(wanted, network, now)
	switch {
	case errors.Is(err, ErrTooMany):
		s.requests.WithLabelValues("limited").Inc()
		w.Header().Set("Retry-After", strconv.Itoa(24*60*60))
		s.say(w, r, http.StatusTooManyRequests, func(t *words) (string, string) { return t.TroubleTitle, t.TooMany })
		return
	case err != nil:
		s.requests.WithLabelValues("error").Inc()
		s.Log.Error("request not taken", slog.String("ref", ref), slog.Any("error", err))
		s.say(w, r, http.StatusServiceUnavailable, func(t *words) (string, string) { return t.TroubleTitle, t.Trouble })
		return
	case !made:
		s.requests.WithLabelValues("again").Inc()
	default:
		s.requests.WithLabelValues("taken").Inc()
		s.prove(r.Context(), q)
		s.Log.Info("request for release", slog.String("ref", ref), slog.String("list", q.List), slog.String("sender", q.Sender))
	}
	http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
}

// prove asks what shows that the mail of a request was its sender's, after the request is kept and outside its lock: DNS may be
// slow, and is a stranger's.
func (s *Server) prove(ctx context.Context, q Request) {
	if s.Proves == nil || q.Proof != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	if err := s.Requests.NoteProof(q.Ref, s.Proves(ctx, q)); err != nil {
		s.Log.Error("proof of a request not kept", slog.String("ref", q.Ref), slog.Any("error", err)) // to grant asks again
	}
}

// Forget drops what it remembers of decisions that are accepted. It may be called at any time.
func (s *Server) Forget(about func(*history.Record) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, r := range s.found {
		if about(&r) {
			delete(s.found, ref)
		}
	}
}

// find returns the refusal that a reference stands for, nil if there is none. What somebody has asked about is known
// for longer than the history knows it.
func (s *Server) find(ctx context.Context, ref string) (*history.Record, error) {
	if !s.Key.Made(ref) {
		return nil, nil
	}
	s.mu.Lock()
	known, ok := s.found[ref]
	s.mu.Unlock()
	if ok {
		return &known, nil
	}
	if q, err := s.Requests.Get(ref); err == nil {
		return &history.Record{Time: q.Refused, List: q.List, Sender: q.Sender}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	r, err := s.Find(ctx, ref)
	if err != nil || r == nil || r.Outcome != "refuse" && r.Outcome != "defer" && r.Outcome != history.Listed {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil || len(s.found) == mostFound {
		s.found = map[string]history.Record{}
	}
	s.found[ref] = *r
	return r, nil
}

// isPersonal reports whether the refusal was one recipient's own wish, or about his address: of that the reply names no list.
func isPersonal(r *history.Record) bool {
	return r.Owner != "" || strings.HasPrefix(r.Entry, "recipient:")
}

// allows counts a page of a client's network.
func (s *Server) allows(client netip.Prefix, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil || now.Sub(s.minute) > time.Minute || now.Before(s.minute) {
		s.asked, s.wide = make([]uint16, mostNetworks), make([]uint16, mostNetworks)
		s.seed, s.minute = maphash.MakeSeed(), now
	}
	wide := &s.wide[maphash.Comparable(s.seed, history.Network(client.Addr()))%mostNetworks]
	if *wide >= mostWide {
		return false
	}
	asked := &s.asked[maphash.Comparable(s.seed, client)%mostNetworks]
	if *asked >= mostPages {
		return false
	}
	*wide++
	*asked++
	return true
}

// clientOf is the network that a request comes from. On loopback it is a web server of this machine that
// passes it on: then it is the last one that X-Forwarded-For names.
func clientOf(r *http.Request) netip.Prefix {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{} // all of these share one allowance
	}
	ip := from.Addr()
	if all := r.Header.Values("X-Forwarded-For"); ip.IsLoopback() && len(all) > 0 {
		last := all[len(all)-1]
		if named, err := netip.ParseAddr(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])); err == nil {
			ip = named
		}
	}
	return listener.Network(ip.Unmap())
}

// viewOf begins a page in the language of who asks.
func (s *Server) viewOf(r *http.Request) view {
	wanted, _, _ := language.ParseAcceptLanguage(r.Header.Get("Accept-Language")) // who asks in no words that can be read reads English
	_, i, _ := s.matcher.Match(wanted[:min(len(wanted), 10)]...)
	return view{language: languages[i].String(), words: &catalogues[i]}
}

// say writes a page of one sentence.
func (s *Server) say(w http.ResponseWriter, r *http.Request, status int, text func(*words) (heading, sentence string)) {
	v := s.viewOf(r)
	heading, sentence := text(v.words)
	v.heading, v.text = heading, []string{sentence}
	s.write(w, status, v)
}

func (s *Server) write(w http.ResponseWriter, status int, v view) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", v.language)
	h.Set("Content-Security-Policy", s.policy)
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Language")
	h.Set("Referrer-Policy", "no-referrer") // the address is the key to the page
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
	w.WriteHeader(status)
	io.WriteString(w, v.render()) // it fails only if the client has gone
}

// filled puts a list and a day into a text.
func filled(text, list string, day time.Time) string {
	return strings.NewReplacer("{list}", list, "{date}", day.UTC().Format(time.DateOnly)).Replace(text)
}

// isLink reports whether a contact is an address that a browser may follow.
func isLink(contact string) bool {
	u, err := url.Parse(contact)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http" || u.Scheme == "mailto" || u.Scheme == "tel")
}
