package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// follow has saw called for each change of the namespace's pods that a selector selects,
// all if it is empty, from a version on. A watch that breaks off goes on where it was.
func (c *cluster) follow(selector, version string, saw func(p *v1.Pod, gone bool)) {
	c.Helper()
	w, err := watchtools.NewRetryWatcherWithContext(ctx(), version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return admin.CoreV1().Pods(c.namespace).Watch(ctx, o)
		},
	})
	c.must(err)
	var following sync.WaitGroup
	c.Cleanup(func() {
		w.Stop()
		following.Wait()
	})
	following.Go(func() {
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*v1.Pod); ok {
				saw(p, e.Type == watch.Deleted)
			} else {
				c.Errorf("the watch of the pods broke off: %v", e.Object)
			}
		}
	})
}

// sight is what became of the pods of a namespace: each as it was last seen,
// those that are gone too.
type sight struct {
	*cluster
	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
	all  []version
	// places has the nodes on which a pod was ever seen.
	places map[types.UID]map[string]bool
	gone   map[types.UID]bool
}

// version is a pod at one of its resource versions, which are numbers in the order of all that
// happened to pods.
type version struct {
	*v1.Pod
	gone bool
}

// watch keeps in sight what becomes of the pods from now on.
func (c *cluster) watch() *sight {
	c.Helper()
	s := &sight{cluster: c, pods: map[types.UID]*v1.Pod{}, places: map[types.UID]map[string]bool{}, gone: map[types.UID]bool{}}
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	for i := range list.Items {
		s.saw(&list.Items[i], false)
	}
	c.follow("", list.ResourceVersion, s.saw)
	return s
}

func versionOf(p *v1.Pod) uint64 {
	number, _ := strconv.ParseUint(p.ResourceVersion, 10, 64)
	return number
}

// catchUp waits until all has been seen that the API has now.
func (s *sight) catchUp() {
	s.Helper()
	list, err := admin.CoreV1().Pods(s.namespace).List(ctx(), metav1.ListOptions{})
	s.must(err)
	s.until("the watch has caught up", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		there := map[types.UID]bool{}
		for i := range list.Items {
			p := &list.Items[i]
			if there[p.UID] = true; s.pods[p.UID] == nil || versionOf(s.pods[p.UID]) < versionOf(p) {
				return fmt.Errorf("pod %s has not been seen as it is", p.Name)
			}
		}
		for uid, p := range s.pods {
			if !there[uid] && !s.gone[uid] && versionOf(p) < listVersion(list) {
				return fmt.Errorf("pod %s has not been seen to go", p.Name)
			}
		}
		return nil
	})
}

func listVersion(list *v1.PodList) uint64 {
	number, _ := strconv.ParseUint(list.ResourceVersion, 10, 64)
	return number
}

func (s *sight) saw(p *v1.Pod, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p.UID], s.all = p, append(s.all, version{p, gone})
	s.gone[p.UID] = gone
	if p.Spec.NodeName != "" {
		if s.places[p.UID] == nil {
			s.places[p.UID] = map[string]bool{}
		}
		s.places[p.UID][p.Spec.NodeName] = true
	}
}

// bindings counts the pods that were ever seen on a node.
func (s *sight) bindings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.places)
}

// when waits until a pod of that name has been as is wants it, for however short a time, and
// returns the resource version at which it was so first.
func (s *sight) when(what, name string, is func(version) bool) (at uint64) {
	s.Helper()
	s.until(name+" has been "+what, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, v := range s.all {
			if v.Name == name && is(v) {
				at = versionOf(v.Pod)
				return nil
			}
		}
		return errors.New("it has not")
	})
	return at
}

// bound and went are when a pod had a node first, and when it went.
func (s *sight) bound(name string) uint64 {
	s.Helper()
	return s.when("bound", name, func(v version) bool { return v.Spec.NodeName != "" })
}

func (s *sight) went(name string) uint64 {
	s.Helper()
	return s.when("gone", name, func(v version) bool { return v.gone })
}

// preempted waits until so many pods have been told that they are preempted, and returns them.
func (s *sight) preempted(n int) []*v1.Pod {
	s.Helper()
	s.until(fmt.Sprintf("%d pods are told that they are preempted", n), func() error {
		if got := s.evicted(v1alpha1.PreemptionReason); len(got) < n {
			return fmt.Errorf("these are: %v", names(got))
		}
		return nil
	})
	return s.evicted(v1alpha1.PreemptionReason)
}

// evicted returns the pods that were told, for a reason, that they must leave.
func (s *sight) evicted(reason string) []*v1.Pod {
	s.Helper()
	s.catchUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*v1.Pod
	for _, p := range s.pods {
		if k := condition(p, v1.DisruptionTarget); k != nil && k.Status == v1.ConditionTrue && k.Reason == reason {
			out = append(out, p)
		}
	}
	return out
}

// left returns the names of pods that are gone.
func (s *sight) left() []string {
	s.Helper()
	s.catchUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for uid, gone := range s.gone {
		if gone {
			out = append(out, s.pods[uid].Name)
		}
	}
	return out
}

// wantEvicted returns an error unless so many pods have been evicted.
func (s *sight) wantEvicted(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := 0
	for uid, p := range s.pods {
		if condition(p, v1.DisruptionTarget) != nil && s.gone[uid] {
			got++
		}
	}
	if got != n {
		return fmt.Errorf("%d were evicted; expected %d", got, n)
	}
	return nil
}

func names(pods []*v1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}
