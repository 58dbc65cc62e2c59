package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// route is one resource with the methods that it has.
type route struct {
	path, about string
	methods     []method
}

// method is what a resource does with a request, and how the document describes it.
type method struct {
	name   string // HEAD comes with GET
	serve  http.HandlerFunc
	doc    func(*document) *huma.Operation
	open   bool // no token is needed
	writes bool // the token needs the scope Write

	query []string // the names of its parameters; describe sets them
	looks bool     // it refuses other parameters by itself, without a map of them

	reports bool // a token of scope Reporting is enough
	owners  bool // it judges by itself what a token that is bound to owners may

	private bool // it names senders and recipients, and needs a token even if others do not
}

// routes are all resources, in the order in which / lists them.
func (s *Server) routes(metrics http.Handler) []route {
	all := []route{
		{path: checkPath, about: "?sender=ADDRESS[&client=IP], ?ip= or ?domain=, with explain=1 also how; POST: many senders", methods: []method{
			{name: http.MethodGet, serve: s.check, doc: describeCheck, owners: true, looks: true},
			{name: http.MethodPost, serve: s.checkMany, doc: describeCheckMany, looks: true}}},
		{path: "/v1/check/stream", about: "POST: a question a line, an answer a line", methods: []method{
			{name: http.MethodPost, serve: only(typeStream[0], s.checkLines), doc: describeCheckStream}}},
		{path: "/v1/check/text", about: "POST: what people type, a line each, in the words of blockd check", methods: []method{
			{name: http.MethodPost, serve: only(typeLines, s.checkTexts), doc: describeCheckText}}},
		{path: "/v1/check/message", about: "POST: a message, explained as by blockd check --message", methods: []method{
			{name: http.MethodPost, serve: only(typeMail, s.checkMail), doc: describeCheckMessage}}},
		{path: "/v1/lists", about: "the lists in service", methods: []method{
			{name: http.MethodGet, serve: compressed(s.lists), doc: describeLists}}},
		{path: "/v1/lists/{list}", about: "all that is known of one", methods: []method{
			s.listPage()}},
		{path: "/v1/lint", about: "POST a text: what each line of a list means; ?format=, action=, list=", methods: []method{
			{name: http.MethodPost, serve: s.privately(s.lint), doc: describeLint, private: true}}},
		{path: "/v1/serving", about: "the generation, the index file and the configuration that answer", methods: []method{
			{name: http.MethodGet, serve: s.privately(s.serving), doc: describeServing, private: true}}},
		{path: sessionPath, about: "who am I? POST signs a browser in with a token, DELETE signs it out", methods: []method{
			{name: http.MethodGet, serve: s.identity, doc: describeIdentity, open: true},
			{name: http.MethodPost, serve: s.signIn, doc: describeSignIn, open: true},
			{name: http.MethodDelete, serve: s.signOut, doc: describeSignOut, open: true}}},
	}
	all = append(all, route{path: "/v1/sessions", about: "which browsers have signed in; DELETE ?id= or ?name= ends them", methods: []method{
		s.listSessions(),
		s.endSessions()}})
	if s.tokens.path != "" || s.fleet.path != "" {
		all = append(all, route{path: "/v1/tokens", about: "who has a token; POST makes one, DELETE ?name= revokes it", methods: []method{
			s.listTokens(),
			s.makeToken(),
			s.revokeToken()}})
	}
	if s.settings.Provider != nil {
		all = append(all,
			route{path: providerPath, about: "sends a browser to the identity provider", methods: []method{
				{name: http.MethodGet, serve: s.toProvider, doc: describeToProvider, open: true}}},
			route{path: callbackPath, about: "where the identity provider sends it back to", methods: []method{
				{name: http.MethodGet, serve: s.fromProvider, doc: describeFromProvider, open: true, looks: true}}})
	}
	if s.settings.Entries != nil {
		all = append(all, route{path: "/v1/entries", about: "entries that act at once: ?q=, sort=, cursor=, limit=; POST adds, DELETE ?entry= removes", methods: []method{
			{name: http.MethodGet, serve: compressed(s.privately(s.entries)), doc: describeEntries, private: true},
			{name: http.MethodPost, serve: s.writing(s.addEntries), doc: describeAdd, writes: true},
			{name: http.MethodDelete, serve: s.writing(s.removeEntries), doc: describeRemove, writes: true}}},
			route{path: "/v1/owners/{owner}/entries", about: "an owner's own: ?q=, cursor=, limit=; POST adds, DELETE ?entry= removes, with If-Match only if nothing has changed", methods: []method{
				{name: http.MethodGet, serve: s.privately(s.ownerEntries), doc: describeOwnerEntries, private: true, owners: true},
				{name: http.MethodPost, serve: s.writing(s.addOwnerEntries), doc: describeAddOwnerEntries, writes: true, owners: true},
				{name: http.MethodDelete, serve: s.writing(s.removeOwnerEntries), doc: describeRemoveOwnerEntries, writes: true, owners: true}}},
			route{path: "/v1/entries.csv", about: "all of them as CSV: ?q=", methods: []method{
				{name: http.MethodGet, serve: compressed(s.privately(s.entriesCSV)), doc: describeEntriesCSV, private: true}}},
			route{path: "/v1/entries.ndjson", about: "all of them, one a line: ?q=", methods: []method{
				{name: http.MethodGet, serve: compressed(s.privately(s.entriesLines)), doc: describeEntriesLines, private: true}}})
	}
	if s.settings.Fleet != nil {
		fleet := route{path: "/v1/fleet", about: "how the nodes of the fleet are", methods: []method{
			{name: http.MethodGet, serve: compressed(s.privately(s.fleetView)), doc: describeFleet, private: true}}}
		if s.settings.Fleet.Book != nil {
			fleet.about += "; POST: a node reports"
			fleet.methods = append(fleet.methods, method{name: http.MethodPost, serve: s.reporting(s.takeReport), doc: describeTakeReport, writes: true, reports: true})
		}
		all = append(all, fleet)
	}
	if s.settings.Channel != nil {
		all = append(all, route{path: "/v1/fleet/sequences", about: "what this machine has published", methods: []method{
			s.sequences()}},
			route{path: "/v1/fleet/halt", about: "POST: nodes stay at the sequence before the newest, or go back to it", methods: []method{
				s.haltChannel()}},
			route{path: "/v1/fleet/again", about: "POST: what an earlier sequence had is the next one", methods: []method{
				s.publishAgain()}})
	}
	if s.settings.Shared != nil {
		all = append(all,
			route{path: "/v1/live", about: "how the live entries are that machines share, and what their database has lost", methods: []method{
				s.liveShared()}},
			route{path: "/v1/live/changes", about: "?since=REVISION: what has changed in it, for nodes that ask this one in place of their database; wait=30", methods: []method{
				{name: http.MethodGet, serve: s.privately(s.liveChanges), doc: describeLiveChanges, private: true}}},
			route{path: "/v1/live/offer", about: "POST: what was lost is made once more", methods: []method{
				s.offerLost()}},
			route{path: "/v1/live/dismiss", about: "POST: what was lost is forgotten", methods: []method{
				s.dismissLost()}})
	}
	if s.settings.Quarantine != nil {
		all = append(all,
			route{path: "/v1/quarantine", about: "mail that was set aside: ?sender=, recipient=, list=, since=, before=, limit=; DELETE ?id= or ?before= removes", methods: []method{
				s.listQuarantine(),
				s.removeQuarantined()}},
			route{path: "/v1/quarantine/message", about: "?id=, what one says", methods: []method{
				{name: http.MethodGet, serve: s.writing(s.quarantinedMessage), doc: describeQuarantinedMessage, writes: true}}},
			route{path: "/v1/quarantine/release", about: "POST ?id= sends one on to its recipients", methods: []method{
				s.release()}})
	}
	if s.settings.Requests != nil {
		all = append(all, route{path: "/v1/requests", about: "requests of refused people to be let in: ?state=", methods: []method{
			s.listRequests()}})
	}
	if s.settings.Requests != nil && s.settings.Entries != nil {
		all = append(all,
			route{path: "/v1/requests/grant", about: "POST ?ref= lets the sender in, for=30d", methods: []method{
				s.grantRequest()}},
			route{path: "/v1/requests/decline", about: "POST ?ref= declines one", methods: []method{
				s.declineRequest()}})
	}
	if s.settings.Junk != nil && s.settings.Entries != nil {
		all = append(all, route{path: "/v1/owners/{owner}/junk", about: "POST a message that the owner has moved to Junk: its sender is blocked, for=30d; undo=1, force=1", methods: []method{
			{name: http.MethodPost, serve: s.writing(s.moved), doc: describeMoved, writes: true, owners: true}}})
	}
	if s.settings.Junk != nil && s.settings.Junk.Box != nil {
		all = append(all, route{path: "/v1/proposals", about: "senders whom several users do not want: ?state=", methods: []method{
			s.listProposals()}})
		if s.settings.Entries != nil {
			all = append(all,
				route{path: "/v1/proposals/adopt", about: "POST ?entry= blocks one for everybody, for=90d", methods: []method{
					s.adoptProposal()}},
				route{path: "/v1/proposals/decline", about: "POST ?entry= declines one", methods: []method{
					s.declineProposal()}})
		}
		if s.settings.History != nil {
			all = append(all, route{path: "/v1/complaints", about: "POST a complaint (RFC 5965): it counts for a proposal", methods: []method{
				{name: http.MethodPost, serve: s.writing(s.complain), doc: describeComplain, writes: true}}})
		}
	}
	if s.settings.Undo != nil {
		all = append(all,
			route{path: "/v1/generations", about: "what was served: when, how, and what changed by list", methods: []method{
				s.listGenerations()}},
			route{path: "/v1/lists/{list}/diff", about: "entries that came and went: ?since=, limit=", methods: []method{
				{name: http.MethodGet, serve: s.privately(s.diff), doc: describeDiff, private: true}}},
			route{path: "/v1/lists/{list}/rollback", about: "POST: the list serves what it had before", methods: []method{
				s.rollbackList()}},
			route{path: "/v1/lists/{list}/adopt", about: "POST: what waits of the list serves", methods: []method{
				s.adoptList()}})
	}
	if s.settings.Pauses != nil {
		all = append(all,
			route{path: "/v1/lists/{list}/pause", about: "POST: the list's blocks do not count for a while", methods: []method{
				s.pauseList()}},
			route{path: "/v1/lists/{list}/resume", about: "POST: they count again", methods: []method{
				s.resumeList()}})
	}
	if s.settings.Person != nil {
		all = append(all,
			route{path: "/v1/correspondents", about: "POST: learn to whom users of this server have written", methods: []method{
				s.learn()}},
			route{path: "/v1/forget", about: "POST: erase what is kept about one person", methods: []method{
				s.forget()}})
	}
	if s.settings.Audit != nil {
		all = append(all, route{path: "/v1/audit", about: "who has changed what, the newest first: ?q=, by=, action=, since=, until=, limit=, cursor=", methods: []method{
			s.searchAudit()}})
	}
	if s.settings.Report != nil {
		all = append(all, route{path: "/v1/report", about: "the letter of [report] as it would be now: ?since=; POST sends it", methods: []method{
			s.report(),
			s.sendReport()}})
	}
	if s.settings.Reload != nil {
		all = append(all, route{path: "/v1/reload", about: "POST reads the configuration and all lists again", methods: []method{
			{name: http.MethodPost, serve: s.writing(s.reload), doc: describeReload, writes: true}}})
	}
	if s.settings.History != nil {
		all = append(all, route{path: "/v1/decisions", about: "past decisions, the newest first: ?q=, sender=, recipient=, client=, list=, ref=, verdict=, outcome=, since=, until=, sort=, cursor=, limit=", methods: []method{
			{name: http.MethodGet, serve: compressed(s.privately(s.decisions)), doc: describeDecisions, private: true}}},
			route{path: "/v1/top", about: "what has the most decisions: ?by=domain|sender|client|recipient|list|entry, span= or since=, until=, limit=, and what /v1/decisions has", methods: []method{
				{name: http.MethodGet, serve: compressed(s.privately(s.top)), doc: describeTop, private: true}}},
			route{path: "/v1/top.csv", about: "the same as CSV", methods: []method{
				{name: http.MethodGet, serve: compressed(s.privately(s.topCSV)), doc: describeTopCSV, private: true}}},
			route{path: "/v1/top.ndjson", about: "its rows, one a line", methods: []method{
				{name: http.MethodGet, serve: compressed(s.privately(s.topLines)), doc: describeTopLines, private: true}}},
			route{path: "/v1/decisions.csv", about: "all of them as CSV", methods: []method{
				{name: http.MethodGet, serve: compressed(s.privately(s.decisionsCSV)), doc: describeDecisionsCSV, private: true}}},
			route{path: "/v1/decisions.ndjson", about: "all of them, one a line", methods: []method{
				{name: http.MethodGet, serve: compressed(s.privately(s.decisionsLines)), doc: describeDecisionsLines, private: true}}})
	}
	if s.settings.Replay != nil {
		all = append(all, route{path: "/v1/lists/{list}/replay", about: "what would it have refused of past mail? ?span=7d", methods: []method{
			s.replay()}})
	}
	if s.settings.Offer != nil {
		all = append(all, route{path: "/v1/catalogue", about: "public lists that blockd knows", methods: []method{
			s.catalogue()}},
			route{path: "/v1/catalogue/text", about: "?what=NAME or an https address: the text that adds a list to the configuration", methods: []method{
				s.newList()}})
	}
	if s.settings.Subscriptions != nil {
		all = append(all, route{path: subscriptionsPath, about: "lists that are fetched from elsewhere; POST adds one, which only watches", methods: []method{
			s.subscriptions(),
			s.subscribe()}},
			route{path: subscriptionsPath + "/{list}", about: "DELETE: the list goes", methods: []method{
				s.unsubscribe()}},
			route{path: subscriptionsPath + "/{list}/enforce", about: "POST: the list counts", methods: []method{
				s.enforce()}})
	}
	if s.settings.Rollup != nil {
		all = append(all, route{path: "/v1/series", about: "decisions over time: ?by=outcome|door|list|shadow|overruled|checks, span=1h|24h|7d|30d|365d, outcome=, door=, list=", methods: []method{
			{name: http.MethodGet, serve: compressed(s.series), doc: describeSeries}}},
			route{path: "/v1/series.csv", about: "the same as CSV", methods: []method{
				{name: http.MethodGet, serve: compressed(s.seriesCSV), doc: describeSeriesCSV}}})
	}
	if s.settings.Events != nil {
		all = append(all, route{path: "/v1/events", about: "decisions as they are made, server-sent events", methods: []method{
			{name: http.MethodGet, serve: s.privately(s.events), doc: describeEvents, private: true}}})
	}
	all = append(all,
		route{path: "/healthz", about: "200 while the daemon runs", methods: []method{
			{name: http.MethodGet, serve: s.healthz, doc: describeHealth, open: true}}},
		route{path: "/readyz", about: "200 when it can decide, 503 when not, and what is wrong", methods: []method{
			{name: http.MethodGet, serve: s.readyz, doc: describeReadiness}}},
		route{path: "/metrics", about: "for Prometheus", methods: []method{
			{name: http.MethodGet, serve: metrics.ServeHTTP, doc: describeMetrics}}},
		route{path: "/openapi.json", about: "all of this for programs, OpenAPI 3.1", methods: []method{
			{name: http.MethodGet, serve: compressed(s.openAPI), doc: describeDocument}}})
	return append(all, route{path: "/", about: "this list", methods: []method{
		{name: http.MethodGet, serve: compressed(home(root(all))), doc: describeRoot}}})
}

// pattern is that of http.ServeMux.
func (r route) pattern() string {
	if r.path == "/" {
		return "/{$}"
	}
	return r.path
}

func (r route) serve(s *Server, w http.ResponseWriter, req *http.Request) {
	name := req.Method
	if name == http.MethodHead {
		name = http.MethodGet
	}
	for i := range r.methods {
		if r.methods[i].name == name {
			if !s.bound(&r.methods[i], w, req) && r.agrees(w, req) && (r.methods[i].looks || known(w, req, r.methods[i].query)) {
				r.methods[i].serve(w, req)
			}
			return
		}
	}
	allow := ""
	for _, m := range r.methods {
		if allow += ", " + m.name; m.name == http.MethodGet {
			allow += ", " + http.MethodHead
		}
	}
	allow = strings.TrimPrefix(allow, ", ")
	w.Header().Set("Allow", allow)
	fail(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s is not for this resource, which has %s", req.Method, allow))
}

// agrees reports whether the query names nothing else than the path does. If it does, agrees has answered: whoever
// meant the other one must not have this one changed.
func (r route) agrees(w http.ResponseWriter, req *http.Request) bool {
	for part := range strings.SplitSeq(r.path, "/") {
		name, isName := strings.CutPrefix(strings.TrimSuffix(part, "}"), "{")
		if !isName || req.URL.RawQuery == "" {
			continue
		}
		values, _ := parseQuery(req.URL.RawQuery) // who reads it tells what is wrong
		for _, value := range values[name] {
			if !strings.EqualFold(value, req.PathValue(name)) {
				fail(w, http.StatusBadRequest, name+": another one than the path has")
				return false
			}
		}
	}
	return true
}

// root answers / for people.
func root(routes []route) http.HandlerFunc {
	var b strings.Builder
	b.WriteString("blockd\n\n")
	for _, r := range routes {
		fmt.Fprintf(&b, "%-20s  %s\n", r.path, r.about)
	}
	return func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, b.String()) }
}
