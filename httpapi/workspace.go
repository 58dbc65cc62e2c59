package httpapi

import (
	"bytes"
	"net/http"

	"blockd/policy"
	"blockd/verdict"
)

// maxKept bounds the memory of a workspace that is kept for the next request.
const maxKept = 1 << 20

// workspace is the memory of one request while it is answered: questions that wait
// to be asked together, and the text of answers.
type workspace struct {
	server  *Server
	explain bool

	questions []policy.Question
	batch     policy.Batch // of the questions
	text      []byte
}

// workspace returns one for a request with these parameters.
func (s *Server) workspace(r *http.Request, p *query) *workspace {
	w, ok := s.workspaces.Get().(*workspace)
	if !ok {
		w = &workspace{server: s}
	}
	if w.explain = p.explains(); w.explain {
		w.batch.Private = s.mayKnow(r)
	}
	return w
}

// release gives w back. The caller must not use any part of it afterwards.
func (w *workspace) release() {
	if cap(w.text) > maxKept {
		return
	}
	w.reset()
	w.text = w.text[:0]
	w.server.workspaces.Put(w)
}

func (w *workspace) reset() {
	clear(w.questions) // the requests' text
	w.questions = w.questions[:0]
	w.batch.Reset()
}

// add adds a question to those that appendAnswers asks.
func (w *workspace) add(q policy.Question) { w.questions = append(w.questions, q) }

// appendAnswers asks the questions and appends the answers in their order, with
// between from one to the next, and after the last one if last says so.
func (w *workspace) appendAnswers(dst []byte, between byte, last string) []byte {
	verdicts := w.server.checker.AskAll(&w.batch, w.questions)
	for i, q := range w.questions {
		if i > 0 {
			dst = append(dst, between)
		}
		if w.explain {
			dst = w.appendExplained(dst, &verdicts[i], q.Text)
		} else {
			dst = verdicts[i].AppendJSON(dst, q.Text)
		}
	}
	if len(w.questions) > 0 {
		dst = append(dst, last...)
	}
	w.reset()
	return dst
}

// appendAnswer asks one question and appends its answer.
func (w *workspace) appendAnswer(dst []byte, q policy.Question) []byte {
	if w.explain {
		w.add(q)
		return w.appendAnswers(dst, ',', "")
	}
	v := w.server.checker.Ask(q)
	return v.AppendJSON(dst, q.Text)
}

func (w *workspace) appendExplained(dst []byte, v *verdict.Verdict, input string) []byte {
	e := w.batch.Explain(v)
	var b bytes.Buffer
	encoder(&b).Encode(answer{v.Answer(input), &e}) // strings, numbers and a Buffer: it cannot fail
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
