package httpapi

import (
	"encoding/json"
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
