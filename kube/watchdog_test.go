package kube

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-sched/muster/kube/mirror"
)

// health is the answer of /healthz.
func (s *Scheduler) health() int {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	return w.Code
}

// A scheduler ends, and says that it is not healthy, if one pass lasts longer than the
// limit. Passes that end in time do not add up, and an idle loop is not stuck.
func TestStuckPassEndsTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, ctx, end := leading(t)
		s.mirror = newShown(t).Mirror
		s.drive, s.watchdog.limit = s.loop, time.Minute
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.guard(ctx) }()
		synctest.Wait()
		for range 5 {
			s.box.Put(func(*mirror.Mirror) { time.Sleep(50 * time.Second) })
			time.Sleep(2 * time.Minute)
		}
		if len(ended) > 0 || s.health() != http.StatusOK {
			t.Fatalf("it ended with %v, or is not healthy, and was not stuck", <-ended)
		}
		free := make(chan bool)
		s.box.Put(func(*mirror.Mirror) { <-free })
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("it ended before the limit")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(ended) != 1 {
			t.Fatal("it is stuck and goes on")
		}
		if err := <-ended; !errors.As(err, new(stuckError)) || s.health() != http.StatusServiceUnavailable {
			t.Errorf("it ended with %v, /healthz answers %d", err, s.health())
		}
		cancel()
		close(free)
		end()
	})
}

// When the loop ends by itself, nothing is wrong.
func TestLoopThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, ctx, end := leading(t)
		s.watchdog.limit = time.Minute
		s.drive = func(context.Context) { time.Sleep(30 * time.Second) }
		if err := s.guard(ctx); err != nil {
			t.Error(err)
		}
		end()
	})
}
