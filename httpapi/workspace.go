package httpapi

import (
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
	batch     policy.Batch // of the questions, but for those in the sandbox
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

// release gives w back. Nothing of it may be used any more.
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

// add puts a question to those that appendAnswers asks.
func (w *workspace) add(q question) {
	if _, inside := sandbox(q.about, q.text); !inside {
		q.addTo(&w.batch)
	}
	w.questions = append(w.questions, q)
}

// appendAnswers asks the questions and appends an answer each, in their order: with
// between from one to the next, and behind all if last says so.
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
		if a, inside := sandbox(q.about, q.text); inside {
			dst = w.appendSandbox(dst, a)
			continue
		}
		dst = w.appendVerdict(dst, checker, &verdicts[0], q.text)
		verdicts = verdicts[1:]
	}
	if len(w.questions) > 0 {
		dst = append(dst, last...)
	}
	w.reset()
	return dst
}

// appendAnswer asks one question and appends its answer.
func (w *workspace) appendAnswer(dst []byte, q question) []byte {
	if a, inside := sandbox(q.about, q.text); inside {
		return w.appendSandbox(dst, a)
	}
	checker := w.checker
	if w.explain {
		checker = checker.Pin()
	}
	v := q.ask(checker)
	return w.appendVerdict(dst, checker, &v, q.text)
}

func (w *workspace) appendSandbox(dst []byte, a answer) []byte {
	if w.explain {
		a = a.explained()
	}
	return a.appendJSON(dst)
}

// appendVerdict writes what an answer is, without making one.
func (w *workspace) appendVerdict(dst []byte, checker *policy.Checker, v *policy.Verdict, input string) []byte {
	if !w.explain {
		return v.AppendJSON(dst, input)
	}
	e := checker.Explain(*v)
	return answer{Answer: v.Answer(input), Explain: &e}.appendJSON(dst)
}
