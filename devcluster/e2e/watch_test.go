package e2e

import (
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// sight is what became of the pods of a namespace: each as it was last seen,
// those that are gone too.
type sight struct {
	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
	// places has the nodes on which a pod was ever seen.
	places map[types.UID]map[string]bool
	gone   map[types.UID]bool
}

// watch keeps in sight what becomes of the pods from now on.
func (c *cluster) watch() *sight {
	c.Helper()
	s := &sight{pods: map[types.UID]*v1.Pod{}, places: map[types.UID]map[string]bool{}, gone: map[types.UID]bool{}}
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	for i := range list.Items {
		s.saw(&list.Items[i], false)
	}
	w, err := admin.CoreV1().Pods(c.namespace).Watch(ctx(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	c.must(err)
	c.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*v1.Pod); ok {
				s.saw(p, e.Type == watch.Deleted)
			}
		}
	}()
	return s
}

func (s *sight) saw(p *v1.Pod, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p.UID] = p
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

// evicted returns the pods that were told, for a reason, that they must leave.
func (s *sight) evicted(reason string) []*v1.Pod {
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
