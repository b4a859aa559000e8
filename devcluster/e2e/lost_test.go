package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
)

// snare does something to the first requests that it is for.
type snare struct {
	is   func(*http.Request) bool
	does string // lost: it never arrives; answer lost: it does, and nobody learns of it; 409: it is refused

	mu   sync.Mutex
	left int
}

// set sets a snare in the way of a scheduler, for a number of requests.
func set(does string, times int, is func(*http.Request) bool) (*snare, func(*kube.Config)) {
	s := &snare{is: is, does: does, left: times}
	return s, func(k *kube.Config) {
		k.API.Wrap(func(to http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) { return s.carry(to, r) })
		})
	}
}

func (s *snare) carry(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	if !s.springs(r) {
		return to.RoundTrip(r)
	}
	switch s.does {
	case "409":
		return refuse(r, http.StatusConflict, "Conflict", ""), nil
	case "answer lost":
		answer, err := to.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	return nil, errors.New("connection reset by peer")
}

func (s *snare) springs(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 || !s.is(r) {
		return false
	}
	s.left--
	return true
}

// sprung waits until the snare has sprung as often as it should.
func (s *snare) sprung(c *cluster) {
	c.Helper()
	c.until("requests were "+s.does, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.left > 0 {
			return fmt.Errorf("%d more are to be", s.left)
		}
		return nil
	})
}

// writes reports whether a request writes something of a path.
func writes(part string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method != http.MethodGet && strings.Contains(r.URL.Path+"/", part)
	}
}

// It is not known whether a pod was bound, for as long as it cannot be read either: its GPUs are not
// free meanwhile, and the pod runs in the end, on the node that it was given.
func TestLostBinding(t *testing.T) {
	for _, does := range []string{"lost", "answer lost", "409"} {
		t.Run(does, func(t *testing.T) {
			c := begin(t)
			c.node("n")
			// The binding, and what is asked after it.
			s, snared := set(does, 3, func(r *http.Request) bool {
				return strings.Contains(r.URL.Path, "/pods/first") && (r.Method != http.MethodGet || does != "409" && !isWatch(r))
			})
			c.schedule(snared)
			seen := c.watch()
			c.create(pod("first", asks(8)))
			s.sprung(c)
			c.create(pod("second", asks(8)))
			c.bound("first")
			c.waits("second", "Resources")
			c.unbound("second")
			seen.stayed(t)
		})
	}
}

// An eviction that was refused with a conflict has not happened, and one whose answer was lost may have: who
// needs the place has it when the victim is gone, and not before.
func TestLostEviction(t *testing.T) {
	for does, times := range map[string]int{"409": 2, "answer lost": 1, "lost": 2} {
		t.Run(does, func(t *testing.T) {
			c := begin(t)
			c.node("n")
			high := c.priority("lost-eviction", 1000)
			s, snared := set(does, times, writes("/eviction/"))
			c.schedule(snared)
			c.create(pod("low", asks(8), lingers))
			c.phase(v1.PodRunning, "low")
			seen := c.watch()
			c.create(pod("high", asks(8), high))
			c.bound("high")
			s.sprung(c)
			if bound, went := seen.bound("high"), seen.went("low"); bound < went {
				t.Errorf("the pod was bound at version %d, its victim went at %d", bound, went)
			}
		})
	}
}

// A Job that is suspended while its pods leave is resumed, whether the request or its answer was lost, and
// by the next scheduler too. It runs again when there is room.
func TestLostSuspension(t *testing.T) {
	for _, does := range []string{"lost", "answer lost"} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", does, restart), func(t *testing.T) { lostSuspension(t, does, restart) })
		}
	}
}

func lostSuspension(t *testing.T, does string, restart bool) {
	c := begin(t)
	c.node("n")
	high := c.priority("lost-suspension", 1000)
	times := 2
	if does == "answer lost" {
		times = 1 // what was asked for is done
	}
	s, snared := set(does, times, writes("/jobs/low/"))
	first := c.schedule(snared)
	work := endless(2, podTemplate(asks(4), lingers))
	work.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	gang(work)
	c.job("low", work)
	runs := func() error {
		list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for i := range list.Items {
			if p := &list.Items[i]; strings.HasPrefix(p.Name, "low-") && p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil {
				n++
			}
		}
		if n != 2 {
			return fmt.Errorf("%d of its pods run", n)
		}
		return nil
	}
	c.until("the Job runs", runs)
	c.create(pod("high", asks(8), high))
	s.sprung(c)
	if restart { // another goes on, while the pods leave
		c.until("the Job is suspended", func() error {
			j, err := admin.BatchV1().Jobs(c.namespace).Get(ctx(), "low", metav1.GetOptions{})
			if err == nil && !ptr.Deref(j.Spec.Suspend, false) {
				err = fmt.Errorf("it is not")
			}
			return err
		})
		first.stop()
		c.schedule()
	}
	c.bound("high")
	resumed := func() error {
		j, err := admin.BatchV1().Jobs(c.namespace).Get(ctx(), "low", metav1.GetOptions{})
		if err == nil && (ptr.Deref(j.Spec.Suspend, false) || j.Annotations[v1alpha1.SuspendedAnnotation] != "" || j.Labels[v1alpha1.SuspendedLabel] != "") {
			err = fmt.Errorf("it is suspended: %v, %v", j.Annotations, j.Labels)
		}
		return err
	}
	c.until("the Job is resumed", resumed)
	c.delete("high")
	c.until("the Job runs again", runs)
	c.must(resumed())
}

// Nobody learns that a binding was made: neither by an answer, however often it is asked for again, nor, for a while, by a
// read, nor by a watch, which is late. Until it is read, the GPUs are not another's.
func TestBindingThatNobodyLearnsOf(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.create(pod("a", asks(8)), pod("b", asks(8))) // one of them is bound, and known before the watch is late
	var mu sync.Mutex
	var first string
	reads := 0
	late := make(chan struct{})
	over := sync.OnceFunc(func() { close(late) })
	t.Cleanup(over)
	c.schedule(func(k *kube.Config) {
		k.API.Wrap(func(to http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if isWatch(r) && strings.HasSuffix(r.URL.Path, "/pods") {
					answer, err := to.RoundTrip(r)
					if err == nil {
						answer.Body = &lateBody{answer.Body, func() bool { mu.Lock(); defer mu.Unlock(); return first != "" }, late}
					}
					return answer, err
				}
				mu.Lock()
				name, binds := strings.CutSuffix(r.URL.Path, "/binding")
				if binds && first == "" {
					first = name
				}
				lost := binds && name == first
				if r.Method == http.MethodGet && r.URL.Path == first {
					reads++
					lost = reads <= 2
				}
				mu.Unlock()
				if !lost {
					return to.RoundTrip(r)
				}
				if binds {
					if answer, err := to.RoundTrip(r); err == nil { // the first time, it is made
						_, _ = io.Copy(io.Discard, answer.Body)
						answer.Body.Close()
					}
				}
				return nil, errors.New("connection reset by peer")
			})
		})
	})
	c.until("it is looked whether the pod is bound", func() error {
		mu.Lock()
		defer mu.Unlock()
		if reads < 3 {
			return fmt.Errorf("it was read %d times", reads)
		}
		return nil
	})
	over()
	bound, other := "a", "b"
	if strings.HasSuffix(first, "/b") {
		bound, other = other, bound
	}
	c.bound(bound)
	c.waits(other, "Resources")
	c.unbound(other)
}

// lateBody is a watch that shows nothing once late is true, until a channel is closed.
type lateBody struct {
	io.ReadCloser
	late func() bool
	over <-chan struct{}
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.late() {
		<-b.over
	}
	return n, err
}
