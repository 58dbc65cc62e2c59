package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// apiVersion is that of the resources: its first number is the one in their paths. A
// member or a parameter that is added raises the second.
const apiVersion = "1.1"

const schemaPrefix = "#/components/schemas/"

// document is the OpenAPI document while it is made. The library reads the Go types of
// questions and answers. Our own handlers serve the requests, because the library's way
// through reflection takes longer than a look-up. Tests compare both.
type document struct {
	api     *huma.OpenAPI
	schemas huma.Registry
}

// newDocument describes the routes, and tells their methods the names of their parameters.
func newDocument(routes []route) []byte {
	text, _ := json.MarshalIndent(describe(routes).api, "", " ") // own types: it cannot fail
	return append(text, '\n')
}

func describe(routes []route) *document {
	schemas := huma.NewMapRegistry(schemaPrefix, huma.DefaultSchemaNamer)
	d := &document{schemas: schemas, api: &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "blockd", Version: apiVersion, Description: "Whether senders are listed, and why; " +
			"the state of the lists; entries that act at once. Members may be added to answers: ignore those that you do not know.",
			License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}},
		Servers: []*huma.Server{{URL: "/"}},
		Components: &huma.Components{Schemas: schemas, Responses: map[string]*huma.Response{},
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer",
				Description: "Made by `blockd token new`, with the scope read, write or admin. Not wanted by a Unix socket. On a loopback address without http.tokens and http.token_file it is wanted for what names senders and recipients alone, which is the resources that say so here and the entries of /v1/lists."},
				"session": {Type: "apiKey", In: "cookie", Name: secureCookie,
					Description: "Set by POST /v1/session, for browsers; `+plainCookie+` without TLS. It has the rights of the token, or of the person who signed in. What changes something wants Origin or Sec-Fetch-Site of the same origin beside it."}}},
	}}
	tags := map[string]bool{}
	for _, r := range routes {
		tags[tagOf(r.path)] = true
		for i := range r.methods {
			m := &r.methods[i]
			op := m.doc(d)
			op.Method, op.Path = m.name, r.path
			op.Tags = []string{tagOf(r.path)}
			if op.Description == "" {
				op.Description = op.Summary
			}
			m.query = queryNames(op)
			d.secure(op, *m)
			d.api.AddOperation(op)
		}
	}
	d.correct()
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		d.api.Tags = append(d.api.Tags, &huma.Tag{Name: tag, Description: "operations of " + tag})
	}
	return d
}

// tagOf groups operations by the first word of their path.
func tagOf(path string) string {
	word, _, _ := strings.Cut(strings.TrimPrefix(path, "/v1/"), "/")
	if word, _, _ = strings.Cut(word, "."); strings.HasPrefix(path, "/v1/") {
		return word
	}
	return "daemon"
}

// secure adds what guard does to an operation.
func (d *document) secure(op *huma.Operation, m method) {
	d.problems(op, http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestHeaderFieldsTooLarge) // a parameter that there is not
	if m.open {
		op.Security = []map[string][]string{{}}
		return
	}
	if op.Security = []map[string][]string{{"token": {}}, {"session": {}}, {}}; m.private || m.writes {
		op.Security = op.Security[:2] // but for the Unix socket
	}
	statuses := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest, http.StatusTooManyRequests}
	d.problems(op, statuses...)
}

// problemHeaders are what answers of a status have besides.
func problemHeaders(status int) map[string]*huma.Header {
	switch status {
	case http.StatusUnauthorized:
		return header("WWW-Authenticate", "the scheme, Bearer, with error=\"invalid_token\" if there was a token that is not known")
	case http.StatusMethodNotAllowed:
		return header("Allow", "the methods that there are")
	case http.StatusTooManyRequests:
		h, least := header("Retry-After", "seconds"), 1.0
		h["Retry-After"].Schema = &huma.Schema{Type: huma.TypeInteger, Minimum: &least}
		return h
	case http.StatusUnsupportedMediaType:
		return header("Accept-Post", "the types that are taken")
	}
	return nil
}

func header(name, about string) map[string]*huma.Header {
	return map[string]*huma.Header{name: {Description: about, Schema: &huma.Schema{Type: huma.TypeString}}}
}

// problems adds answers that are problem details.
func (d *document) problems(op *huma.Operation, statuses ...int) {
	for _, status := range statuses {
		name := strings.ReplaceAll(http.StatusText(status), " ", "")
		d.api.Components.Responses[name] = &huma.Response{Description: http.StatusText(status), Headers: problemHeaders(status),
			Content: d.content(typeProblem, problem{})}
		op.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + name}
	}
}

// content is a body of v's type.
func (d *document) content(mediaType []string, v any) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{mediaType[0]: {Schema: d.schemaOf(v)}}
}

func (d *document) schemaOf(v any) *huma.Schema { return d.schemas.Schema(reflect.TypeOf(v), true, "") }

// tagged are the answers of a GET whose answer has a tag.
func (d *document) tagged(v any) map[string]*huma.Response {
	ok := &huma.Response{Description: "OK", Headers: header("ETag", "a hash of this answer"), Content: d.content(typeJSON, v)}
	return map[string]*huma.Response{"200": ok, "304": d.unchanged()}
}

// unchanged is the answer to a caller that has it.
func (d *document) unchanged() *huma.Response {
	return &huma.Response{Description: "the answer is the one that If-None-Match names", Headers: header("ETag", "a hash of the answer")}
}

func (d *document) text(statuses ...int) map[string]*huma.Response {
	all := map[string]*huma.Response{}
	for _, status := range statuses {
		all[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status),
			Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}
	}
	return all
}

// parameter is one of the query.
func parameter(name, about, example string) *huma.Param {
	p := &huma.Param{Name: name, In: "query", Description: about, Schema: &huma.Schema{Type: huma.TypeString}}
	if example != "" {
		p.Example = example
	}
	return p
}

// correct adapts the schemas to blockd: slices are never
// null, pointers to structs can be, and answers may get further members.
func (d *document) correct() {
	all := d.schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		schema, t := all[name], d.schemas.TypeFromRef(schemaPrefix+name)
		if t == nil {
			continue // made by hand
		}
		if schema.AdditionalProperties == false && name != changeSchema {
			schema.AdditionalProperties = nil
		}
		for property, s := range schema.Properties {
			if s.Type == huma.TypeArray {
				s.Nullable = false
			}
			if s.Type == huma.TypeInteger && s.Minimum == nil { // counts; what may be less says so
				least := 0.0
				s.Minimum = &least
			}
			if s.Ref != "" && slices.Contains(schema.Required, property) && isPointer(t, property) {
				schema.Properties[property] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: s.Ref}, {Type: "null"}}}
			}
		}
		if name == changeSchema {
			schema.Required = []string{"entry"}
		}
		schema.PrecomputeMessages()
	}
}

// isPointer reports whether the field with this name in JSON is a pointer.
func isPointer(t reflect.Type, name string) bool {
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Type.Kind() == reflect.Pointer
		}
	}
	return false
}

// openAPI serves the document. It is the same as long as the daemon runs.
func (s *Server) openAPI(w http.ResponseWriter, r *http.Request) { tagged(w, r, s.document) }

// changeSchema is the name of EntryChange in the document.
const changeSchema = "EntryChange"

const nullSender = `; "" is the null sender`

func describeCheck(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "check", Summary: "Is a sender, a client address or a domain listed?",
		Description: "One of sender, ip and domain. `+` is a plus. What is not listed is 200 with `clear`.",
		Parameters: []*huma.Param{
			parameter("sender", "an envelope sender, with or without angle brackets"+nullSender, "someone@shop.example"),
			parameter("ip", "a client address alone", ""),
			parameter("domain", "what all senders at a domain have in common", ""),
			parameter("client", "beside sender: the IP address that the mail comes from", ""),
			parameter("recipient", "beside sender: the answer is by this recipient's [[policy]], and says what becomes of the mail", ""),
			explainParam(),
		},
		Responses: d.tagged(answer{})}
	d.problems(op, http.StatusBadRequest)
	return op
}

func explainParam() *huma.Param {
	return switched("explain", "with the keys that were looked up, and what the filter and the exact store have of each")
}

func describeCheckMany(d *document) *huma.Operation {
	text := &huma.Schema{Type: huma.TypeString}
	object := func(required string, members ...string) *huma.Schema {
		s := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, Required: []string{required}, AdditionalProperties: false}
		for _, name := range members {
			s.Properties[name] = text
		}
		return s
	}
	d.schemas.Map()["Question"] = &huma.Schema{Description: "a sender" + nullSender + "; or one of three objects",
		OneOf: []*huma.Schema{text, object("sender", "sender", "client", "recipient"), object("ip", "ip"), object("domain", "domain")}}
	question, most := &huma.Schema{Ref: schemaPrefix + "Question"}, maxSenders
	batch := object("senders")
	batch.Properties["senders"] = &huma.Schema{Type: huma.TypeArray, Items: question, MaxItems: &most}
	op := &huma.Operation{OperationID: "checkMany", Summary: "Are these senders listed?",
		Description: "A batch is answered from one generation. By their Content-Type, bodies of checkStream, checkText and checkMessage are taken here too.",
		Parameters:  []*huma.Param{explainParam()},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{typeJSON[0]: {Schema: batch}}},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, results{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	return op
}

// inWords describes an operation that answers in the words of blockd check.
func (d *document) inWords(id, summary, about, bodyType string, parameters ...*huma.Param) *huma.Operation {
	text := &huma.Schema{Type: huma.TypeString}
	op := &huma.Operation{OperationID: id, Summary: summary, Description: about + " It is not counted. The header " + FaultHeader + ", percent-encoded, says why the answers end before the questions do.", Parameters: parameters,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{bodyType: {Schema: text}}},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{typeLines: {Schema: text}},
			Headers: map[string]*huma.Header{
				BlockedHeader: {Description: "1 if a sender is blocked whose mail the recipient would not get all the same, and else 0", Schema: text}}}}}
	d.problems(op, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	return op
}

func describeCheckText(d *document) *huma.Operation {
	return d.inWords("checkText", "What people type, answered in the words of blockd check",
		fmt.Sprintf("Up to %d texts, one a line; an empty line is the null sender. Five columns a line, with explain=1 for people, and with Accept: application/x-ndjson an Answer a line.", MaxTexts), typeLines,
		explainParam(),
		parameter("client", "the IP address that the mail comes from; each text is a sender then", ""),
		parameter("recipient", "whom the mail is for; each text is a sender then", ""),
		switched("whole", "the body is one text, whatever line ends it has"),
		switched("paint", "explanations have the colours of a terminal"))
}

func describeCheckMessage(d *document) *huma.Operation {
	return d.inWords("checkMessage", "A message, explained as by blockd check --message", "For a token or the Unix socket.", typeMail,
		explainParam(),
		parameter("client", "the IP address that the mail came from", ""),
		parameter("sender", "that of MAIL FROM; else the message's Return-Path has it", ""),
		parameter("helo", "what the client gave in EHLO", ""),
		parameter("file", "the name of the message, for the answer", ""),
		switched("paint", "the explanation has the colours of a terminal"))
}

func describeCheckStream(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "checkStream", Summary: "Are these senders listed? A stream of any length",
		Description: "A question a line, an answer a line in the same order, each before the next question is needed. Blank lines have no answer, and a line that is no question has a LineError in its place. " +
			"A stream that cannot be finished is cut off, and not ended. The schemas are those of a line.",
		Parameters: []*huma.Param{explainParam()},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			typeStream[0]: {Schema: &huma.Schema{Ref: schemaPrefix + "Question"}}}},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
			typeStream[0]: {Schema: &huma.Schema{AnyOf: []*huma.Schema{d.schemaOf(answer{}), d.schemaOf(lineError{})}}}}}}}
	d.problems(op, http.StatusUnsupportedMediaType)
	return op
}

func describeServing(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "serving", Summary: "By what the daemon answers", Responses: d.tagged(Serving{})}
}

func describeLists(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "lists", Summary: "The lists in service, and what each is worth",
		Parameters: []*huma.Param{number("entries", "how many of the entries with the most hits are wanted", 0, MaxEntryWorth, 0)},
		Responses:  d.tagged(ListTable{})}
	d.problems(op, http.StatusBadRequest)
	return op
}

func describeAdd(d *document) *huma.Operation {
	change, least, most := d.schemaOf(EntryChange{}), 1, maxChanges
	many := &huma.Schema{Type: huma.TypeObject, Required: []string{"entries"}, AdditionalProperties: false,
		Properties: map[string]*huma.Schema{"entries": {Type: huma.TypeArray, Items: change, MinItems: &least, MaxItems: &most}}}
	op := &huma.Operation{OperationID: "addEntries", Summary: "Add entries that act at once",
		Description: "All are made or none. To send `was` of the answer back undoes a change.",
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{typeJSON[0]: {Schema: &huma.Schema{OneOf: []*huma.Schema{change, many}}}}},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ChangeResults{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusInsufficientStorage, http.StatusServiceUnavailable)
	op.Responses["409"] = d.conflict()
	return op
}

func describeRemove(d *document) *huma.Operation {
	entry, most, least := parameter("entry", "as GET shows it, or in another spelling", ""), maxChanges, 1
	entry.Required = true
	entry.Schema = &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, MinItems: &least, MaxItems: &most}
	op := &huma.Operation{OperationID: "removeEntries", Summary: "Remove live entries",
		Parameters: []*huma.Param{entry, parameter("author", "who removes them", ""), parameter("why", "a line, for the audit journal", ""), parameter("if_rev", "of one entry: the revision that it must have, or nothing is changed", ""), parameter("owner", "whose entries they are; without it everybody's", "")},
		Responses:  map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ChangeResults{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusConflict, http.StatusInsufficientStorage, http.StatusServiceUnavailable)
	op.Responses["409"] = d.conflict()
	return op
}

func describeHealth(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "health", Summary: "Does the daemon run?", Responses: d.text(http.StatusOK)}
}

func describeReadiness(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "readiness", Summary: "May mail be sent here? The problems, a line each",
		Responses: d.text(http.StatusOK, http.StatusServiceUnavailable)}
}

func describeMetrics(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "metrics", Summary: "Metrics in Prometheus' format", Responses: d.text(http.StatusOK, http.StatusServiceUnavailable)}
}

func describeDocument(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "document", Summary: "This document",
		Responses: map[string]*huma.Response{
			"200": {Description: "OK", Headers: header("ETag", "a hash of this document"),
				Content: map[string]*huma.MediaType{typeJSON[0]: {Schema: &huma.Schema{Type: huma.TypeObject}}}},
			"304": {Description: "the document is the one that If-None-Match names"},
		}}
}

func describeRoot(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "root", Summary: "The resources, for people", Responses: d.text(http.StatusOK)}
}

// conflict is the answer to a change that cannot be made; with "was" where if_rev is the reason.
func (d *document) conflict() *huma.Response {
	return &huma.Response{Description: "Conflict; with `was` where `if_rev` is the reason", Content: map[string]*huma.MediaType{typeProblem[0]: {Schema: &huma.Schema{AnyOf: []*huma.Schema{d.schemaOf(problem{}), d.schemaOf(RevisionProblem{})}}}}}
}
