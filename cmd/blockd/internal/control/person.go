package control

import (
	"context"
	"errors"
	"net/http"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/mail/addr"
)

// Learner takes messages that users have sent, and has them learned from: by the daemon, or into the file where none
// runs. It is for one goroutine.
type Learner struct {
	Author string
	Total  httpapi.Learned

	config  config.Config
	files   *files // nil = the daemon is asked
	waiting []httpapi.SentMessage
}

// NewLearner finds out who has the correspondents. Close it.
func NewLearner(ctx context.Context, c config.Config, author string) (*Learner, error) {
	l := &Learner{Author: author, config: c}
	err := l.learn(ctx, []httpapi.SentMessage{})
	if errors.Is(err, ErrNoDaemon) {
		l.files = &files{config: c, kept: true}
		if err = l.files.withCorrespondents(); err != nil {
			l.Close()
		}
	}
	return l, err
}

// Close lets others have the correspondents.
func (l *Learner) Close() {
	if l.files != nil {
		l.files.close()
	}
}

// Add takes a message.
func (l *Learner) Add(ctx context.Context, m httpapi.SentMessage) error {
	if l.waiting = append(l.waiting, m); len(l.waiting) < httpapi.MostLearned {
		return nil
	}
	return l.Flush(ctx)
}

// Flush has everything learned that was added.
func (l *Learner) Flush(ctx context.Context) error {
	if len(l.waiting) == 0 {
		return nil
	}
	err := l.learn(ctx, l.waiting)
	l.waiting = l.waiting[:0]
	return err
}

func (l *Learner) learn(ctx context.Context, all []httpapi.SentMessage) error {
	var some httpapi.Learned
	q, err := newQuestion(http.MethodPost, "/v1/correspondents", httpapi.LearnQuestion{Sent: all, Author: l.Author})
	if err != nil {
		return err
	}
	ask := func() (*http.Response, error) { return q.ask(ctx, l.config) }
	if l.files != nil {
		ask = func() (*http.Response, error) { return l.files.answer(ctx, q) }
	}
	resp, err := ask()
	if err == nil {
		err = decodeAnswer(l.config, resp, &some)
	}
	l.Total.Recipients += some.Recipients
	l.Total.Known = max(some.Known, l.Total.Known)
	return err
}

// Forget erases what is kept about one person, by the daemon or in the files.
func Forget(ctx context.Context, c config.Config, a addr.Addr, w forget.Wish, why string) (f forget.Forgotten, err error) {
	q := httpapi.ForgetQuestion{Address: a.String(), Entries: w.Entries, Quarantine: w.Quarantine, Author: w.Author, Why: why}
	_, err = doWith(ctx, c, http.MethodPost, "/v1/forget", q, &f, (*files).withPeople)
	return f, err
}
