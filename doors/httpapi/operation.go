package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/records/audit"
)

// operation is what a resource does with a question, in one value: who may ask, what the document says, and what errors mean. The question
// and the answer are types: a field of a question that has the tag "query", "path" or "header" is a parameter of that name, and the rest of it is the
// body in JSON. The other tags are those of the document:
//
//	doc      what it is
//	example  a value of it
//	enum     the values that there are, with commas between them
//	minimum, maximum, default   of a number
//	maxLength   of a text, in bytes
//	required it has to be there
//
// A parameter is a text, a number, a time (RFC 3339) or a switch, which is 1 or 0.
type operation struct {
	method, id, summary, about string
	right                      right
	owners                     bool   // it judges by itself what a token that is bound to owners may
	tagged                     bool   // the answer has an entity tag
	large                      bool   // the answer is compressed
	done                       string // what the document says of 200; "" = OK
	body                       int64  // bytes of the body; 0 = there is none
	optional                   bool   // the body may be missing
	typed                      bool   // the body wants its Content-Type

	faults  []faultKind // of the errors of its function
	lost    string      // what the log says of any other one; "" = nothing
	status  int         // of any other one; 0 = 507, the store cannot be read or changed
	because string      // what other machines are told of any other one; "" = its text
	also    []int       // statuses that it has besides
}

// right is who may ask.
type right int8

const (
	everybody right = iota // whoever gets past the guard
	privately              // with any token or by the Unix socket: the answer names people
	writing                // who may change something
	admin                  // who may say who may
)

// faultKind says what an error, or one that wraps it, is as an answer.
type faultKind struct {
	err    error
	status int
}

// fault is an error with the status of its answer.
type fault struct {
	status int
	text   string
	after  int // seconds, of Retry-After; 0 = none
}

func (f fault) Error() string { return f.text }

func faultf(status int, format string, args ...any) error {
	return fault{status: status, text: fmt.Sprintf(format, args...)}
}

func badf(format string, args ...any) error { return faultf(http.StatusBadRequest, format, args...) }

// errAnswered is the error of an operation whose answer is on its way already.
var errAnswered = errors.New("answered")

// call is a question that is being answered.
type call struct {
	*http.Request
	w http.ResponseWriter
	s *Server
}

// by is the author of a change: the name that the question gives, and who was authenticated.
func (c call) by(says string) string { return c.s.callerOf(c.Request).author(says, c.Request) }

// record writes lines of the journal, before the change that they are about. After an error nothing is to be changed.
func (c call) record(line audit.Line) error {
	if c.s.record(c.w, line) {
		return nil
	}
	return errAnswered
}

// operate makes the method of an operation.
func operate[Q, A any](s *Server, o operation, run func(c call, q Q) (A, error)) method {
	fields := fieldsOf(reflect.TypeFor[Q]())
	serve := func(w http.ResponseWriter, r *http.Request) {
		var q Q
		c := call{r, w, s}
		err := o.read(c, fields, reflect.ValueOf(&q).Elem())
		var a A
		if err == nil {
			a, err = run(c, q)
		}
		switch {
		case err == nil && o.tagged:
			sendTagged(w, r, a)
		case err == nil:
			send(w, http.StatusOK, typeJSON, a)
		default:
			o.fail(c, err)
		}
	}
	switch o.right {
	case privately:
		serve = s.privately(serve)
	case writing:
		serve = s.writing(serve)
	case admin:
		serve = s.administering(serve)
	}
	if o.large {
		serve = compressed(serve)
	}
	changes := o.right == writing || o.right == admin && o.method != http.MethodGet
	return method{name: o.method, serve: serve, owners: o.owners, private: o.right == privately || o.right == admin && !changes, writes: changes,
		doc: func(d *document) *huma.Operation {
			var q Q
			var a A
			return o.describe(d, fields, q, a)
		}}
}

// fail answers with an error.
func (o operation) fail(c call, err error) {
	var f fault
	switch {
	case errors.Is(err, errAnswered):
		return
	case errors.As(err, &f):
		if f.after > 0 {
			c.w.Header().Set("Retry-After", strconv.Itoa(f.after))
		}
		fail(c.w, f.status, f.text)
		return
	}
	for _, kind := range o.faults {
		if errors.Is(err, kind.err) {
			fail(c.w, kind.status, err.Error())
			return
		}
	}
	if o.lost != "" {
		c.s.log.Error(o.lost, slog.Any("error", err))
	}
	text := err.Error()
	if o.because != "" && !c.s.callerOf(c.Request).local { // whoever is on this machine may see what it is
		text = o.because
	}
	fail(c.w, cmp.Or(o.status, http.StatusInsufficientStorage), text)
}

// field is a parameter of a question.
type field struct {
	name, in string
	index    []int
	tag      reflect.StructTag
	kind     reflect.Type
}

func fieldsOf(question reflect.Type) (all []field) {
	for _, f := range reflect.VisibleFields(question) {
		for _, in := range []string{"path", "query", "header"} {
			if name := f.Tag.Get(in); name != "" {
				all = append(all, field{name, in, f.Index, f.Tag, f.Type})
			}
		}
	}
	return all
}

// read reads a question.
func (o operation) read(c call, fields []field, into reflect.Value) error {
	values, err := parseQuery(c.URL.RawQuery)
	if err != nil {
		return badf("%v", err)
	}
	if o.body > 0 {
		text, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, o.body))
		switch {
		case errors.As(err, new(*http.MaxBytesError)):
			return faultf(http.StatusRequestEntityTooLarge, "body over %d octets", o.body)
		case err != nil:
			return badf("the body ended too early")
		case len(text) > 0 || !o.optional:
			if kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); o.typed && kind != typeJSON[0] {
				c.w.Header().Set("Accept-Post", typeJSON[0])
				return faultf(http.StatusUnsupportedMediaType, "want Content-Type application/json")
			}
			if err := decodeWith(text, into.Addr().Interface(), true); err != nil {
				return badf("%v", err)
			}
		}
	}
	for _, f := range fields {
		text := ""
		switch f.in {
		case "path":
			text = c.PathValue(f.name)
		case "header":
			text = c.Header.Get(f.name)
		default:
			if len(values[f.name]) > 1 {
				return badf("%s: want it once", f.name)
			}
			text = strings.Join(values[f.name], "")
		}
		if err := f.set(into.FieldByIndex(f.index), text); err != nil {
			return badf("%v", err)
		}
	}
	return nil
}

// set sets a field by the text of a parameter; "" = it is not there.
func (f field) set(to reflect.Value, text string) (err error) {
	values := f.enum()
	switch {
	case text == "" && f.tag.Get("required") != "":
		return fmt.Errorf("%s: want one", f.name)
	case text == "" && f.tag.Get("default") == "":
		return nil
	case f.number("maxLength") > 0 && len(text) > f.number("maxLength"):
		return fmt.Errorf("%s: over %d octets", f.name, f.number("maxLength"))
	case len(values) == 1 && text != values[0]:
		return fmt.Errorf("%s: want %s or nothing, have %q", f.name, values[0], text)
	case len(values) > 1:
		if err := oneOf(f.name, text, values...); err != nil {
			return err
		}
	}
	switch f.kind.Kind() {
	case reflect.String:
		to.SetString(text)
	case reflect.Bool:
		if text != "0" && text != "1" {
			return fmt.Errorf("%s: want 0 or 1, have %q", f.name, text)
		}
		to.SetBool(text == "1")
	case reflect.Int:
		n, err := strconv.Atoi(cmp.Or(text, f.tag.Get("default")))
		if least, most := f.number("minimum"), f.number("maximum"); err != nil || n < least || n > most {
			return fmt.Errorf("%s: want %d to %d, have %q", f.name, least, most, text)
		}
		to.SetInt(int64(n))
	default:
		at, err := timeOf(f.name, text)
		if err != nil {
			return err
		}
		to.Set(reflect.ValueOf(at))
	}
	return nil
}

func (f field) enum() []string {
	if text := f.tag.Get("enum"); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

func (f field) number(tag string) int {
	n, _ := strconv.Atoi(f.tag.Get(tag)) // our own
	return n
}

// describe is what the document says.
func (o operation) describe(d *document, fields []field, question, answer any) *huma.Operation {
	op := &huma.Operation{OperationID: o.id, Summary: o.summary, Description: o.about}
	for _, f := range fields {
		op.Parameters = append(op.Parameters, f.param())
	}
	if o.body > 0 {
		op.RequestBody = &huma.RequestBody{Required: !o.optional, Content: d.content(typeJSON, question)}
	}
	if o.tagged {
		op.Responses = d.tagged(answer)
	} else {
		op.Responses = map[string]*huma.Response{"200": {Description: cmp.Or(o.done, "OK"), Content: d.content(typeJSON, answer)}}
	}
	statuses := append(slices.Clone(o.also), cmp.Or(o.status, http.StatusInsufficientStorage))
	for _, kind := range o.faults {
		statuses = append(statuses, kind.status)
	}
	if o.body > 0 {
		statuses = append(statuses, http.StatusRequestEntityTooLarge)
	}
	if o.typed && o.body > 0 {
		statuses = append(statuses, http.StatusUnsupportedMediaType)
	}
	if o.right == admin {
		op.Description = o.summary + ". It wants the scope admin." + o.about
	}
	d.problems(op, statuses...)
	return op
}

// param is what the document says of a parameter.
func (f field) param() *huma.Param {
	doc := f.tag.Get("doc")
	p := parameter(f.name, doc, f.tag.Get("example"))
	switch {
	case f.kind.Kind() == reflect.Bool:
		p = switched(f.name, doc)
	case f.kind.Kind() == reflect.Int:
		p = number(f.name, doc, f.number("minimum"), f.number("maximum"), f.number("default"))
	case f.kind == reflect.TypeFor[time.Time]():
		p = moment(f.name, doc)
	case f.number("maxLength") > 0:
		p = limited(f.name, doc, f.number("maxLength"))
	case f.enum() != nil:
		p = choice(f.name, doc, f.enum()...)
	}
	p.In, p.Required = f.in, f.in == "path" || f.tag.Get("required") != ""
	return p
}
