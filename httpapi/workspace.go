package httpapi

import (
	"bytes"

	"blockd/policy"
)

// maxKept bounds the memory of a workspace that is kept for the next request.
const maxKept = 1 << 20

// workspace is the memory of one request while it is answered: questions that wait
// to be asked together, and the text of answers.
type workspace struct {
	server  *Server
	checker *policy.Checker
	explain bool

	questions []question
	batch     policy.Batch // of the questions
	text      []byte
}

// workspace returns one for a request with these parameters.
func (s *Server) workspace(p *query) *workspace {
	w, ok := s.workspaces.Get().(*workspace)
	if !ok {
		w = &workspace{server: s}
	}
	w.checker, w.explain = s.checker, p.explains()
	return w
}

// release gives w back. The caller must not use any part of it afterwards.
func (w *workspace) release() {
	if cap(w.text) > maxKept {
		return
	}
	w.reset()
	w.checker, w.text = nil, w.text[:0]
	w.server.workspaces.Put(w)
}

func (w *workspace) reset() {
	clear(w.questions) // the requests' text
	w.questions = w.questions[:0]
	w.batch.Reset()
}

// add adds a question to those that appendAnswers asks.
func (w *workspace) add(q question) {
	q.addTo(&w.batch)
	w.questions = append(w.questions, q)
}

// appendAnswers asks the questions and appends the answers in their order, with
// between from one to the next, and after the last one if last says so.
func (w *workspace) appendAnswers(dst []byte, between byte, last string) []byte {
	checker := w.checker
	if w.explain {
		checker = checker.Pin() // the explanation asks the same generation again
	}
	verdicts := checker.Ask(&w.batch)
	for i, q := range w.questions {
		if i > 0 {
			dst = append(dst, between)
		}
		dst = w.appendVerdict(dst, checker, &verdicts[i], q)
	}
	if len(w.questions) > 0 {
		dst = append(dst, last...)
	}
	w.reset()
	return dst
}

// appendAnswer asks one question and appends its answer.
func (w *workspace) appendAnswer(dst []byte, q question) []byte {
	checker := w.checker
	if w.explain {
		checker = checker.Pin()
	}
	v := q.ask(checker)
	return w.appendVerdict(dst, checker, &v, q)
}

// appendVerdict writes the text of an answer without making an answer.
func (w *workspace) appendVerdict(dst []byte, checker *policy.Checker, v *policy.Verdict, q question) []byte {
	if q.to != "" {
		to := checker.To(*v, q.to)
		v = &to
	}
	if !w.explain {
		return v.AppendJSON(dst, q.text)
	}
	e := checker.Explain(*v)
	var b bytes.Buffer
	encoder(&b).Encode(answer{v.Answer(q.text), &e}) // strings, numbers and a Buffer: it cannot fail
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
