package httpapi

import (
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

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
