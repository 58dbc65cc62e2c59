package verdict

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// AppendJSON appends Answer(input) as encoding/json writes it, with "<", ">" and
// "&" as they are and without a line end. Streams are answered with it: it takes a
// sixth of the time and allocates nothing for a clear sender.
func (v *Verdict) AppendJSON(dst []byte, input string) []byte {
	dst = appendText(append(dst, `{"input":`...), input)
	dst = appendText(append(dst, `,"sender":`...), v.Sender.String())
	if v.Client.IsValid() {
		dst = appendText(append(dst, `,"client":`...), v.Client.String())
	}
	if v.Domain.Text != "" {
		dst = appendText(append(dst, `,"domain":`...), v.Domain.Text)
	}
	if v.Recipient != "" {
		dst = appendText(append(dst, `,"recipient":`...), v.Recipient)
	}
	dst = appendText(append(dst, `,"verdict":`...), string(v.Kind))
	if v.Recipient != "" {
		dst = appendText(append(dst, `,"outcome":`...), v.Outcome)
	}
	dst = append(dst, `,"matches":[`...)
	for i := range v.Matches {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = v.appendMatch(dst, i)
	}
	dst = appendText(append(dst, `],"generation":`...), v.Generation)
	return append(dst, '}')
}

func (v *Verdict) appendMatch(dst []byte, i int) []byte {
	m, source := &v.Matches[i], &v.Lists[v.Matches[i].Row].Source
	dst = appendText(append(dst, `{"list":`...), source.List)
	dst = appendText(append(dst, `,"file":`...), source.Path)
	dst = strconv.AppendInt(append(dst, `,"line":`...), int64(m.Line), 10)
	dst = appendText(append(dst, `,"entry":`...), m.Name())
	dst = appendText(append(dst, `,"kind":`...), m.Kind.String())
	dst = appendText(append(dst, `,"scope":`...), m.Scope.String())
	dst = appendText(append(dst, `,"action":`...), m.Action.String())
	dst = appendText(append(dst, `,"reason":`...), v.Reason(i))
	if m.Owner.Text != "" {
		dst = appendText(append(dst, `,"owner":`...), m.Owner.Text)
	}
	if mode := v.Mode(i); mode != "" {
		dst = appendText(append(dst, `,"mode":`...), mode)
	}
	if percent, _ := v.Percent(i); percent < 100 {
		dst = strconv.AppendFloat(append(dst, `,"percent":`...), percent, 'f', -1, 64)
	}
	return append(dst, '}')
}

// appendText appends s as a JSON string. Nearly all texts are plain ASCII; what is
// not is left to encoding/json.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendOdd(dst, s)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}

func appendOdd(dst []byte, s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string and a Buffer: nothing can fail
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
