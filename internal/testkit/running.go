package testkit

import (
	"context"
	"sync"
	"testing"
)

// Running runs something until the function that it returns is called, which waits for its end, or the test ends.
func Running(t testing.TB, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}
