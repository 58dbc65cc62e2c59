package httpapi

import (
	"bytes"
	"net/http"

	"blockd/policy"
	"blockd/policy/verdict"
)

// maxKept bounds the memory of a workspace that is kept for the next request.
const maxKept = 1 << 20

// workspace is the memory of one request while it is answered: questions that wait
// to be asked together, and the text of answers.
type workspace struct {
	server  *Server
	explain bool
	request *http.Request // that is answered

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
	w.request = r
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
	w.text, w.request = w.text[:0], nil
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
	w.server.checks.Add(uint64(len(w.questions)))
	verdicts := w.server.checker.AskAll(&w.batch, w.questions)
	for i, q := range w.questions {
		v := &verdicts[i]
		if i > 0 {
			dst = append(dst, between)
		}
		if w.explain {
			dst = w.appendExplained(dst, v, q.Text)
		} else {
			dst = w.append(dst, v, q.Text)
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
	w.server.checks.Add(1)
	v := w.server.checker.Ask(q)
	return w.append(dst, &v, q.Text)
}

// append appends an answer as the caller may see it.
func (w *workspace) append(dst []byte, v *verdict.Verdict, input string) []byte {
	if v.Owned() {
		if hides := w.server.hides(w.request); hides.Hides(v) {
			veiled, _ := v.Veil(hides)
			return veiled.AppendJSON(dst, input)
		}
	}
	return v.AppendJSON(dst, input)
}

func (w *workspace) appendExplained(dst []byte, v *verdict.Verdict, input string) []byte {
	e := w.batch.Explain(v)
	veiled := e.Veil(*v, w.server.hides(w.request))
	var b bytes.Buffer
	encoder(&b).Encode(answer{veiled.Answer(input), &e}) // strings, numbers and a Buffer: it cannot fail
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
