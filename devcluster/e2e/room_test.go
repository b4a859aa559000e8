package e2e

import (
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// A gang waits although enough GPUs are free, because they are scattered: a pod of a service
// moves to another node, and the gang starts. The service always has all its pods.
func TestRoomByMoving(t *testing.T) {
	c := begin(t)
	c.schedule()
	s := c.scattered()
	c.node("n2")
	gang := c.several("train", 0, 2, asks(8), ofGang("train", 2))
	c.bound(gang...)
	s.onlyOn(s.podsWith("app", "serve")[0].Spec.NodeName)
	s.neverFewer()
}

// The scheduler is killed while it makes room: the next one finishes the move, and the gang
// starts.
func TestRoomKilled(t *testing.T) {
	c := begin(t)
	p := c.process()
	s := c.scattered()
	c.node("n2")
	gang := c.several("train", 0, 2, asks(8), ofGang("train", 2))
	c.until("a pod is detached", func() error {
		for _, p := range c.podsWith(v1alpha1.MovingLabel, "true") {
			if metav1.GetControllerOf(&p) == nil {
				return nil
			}
		}
		return errors.New("none is")
	})
	p.kill()
	p = c.process()
	defer p.interrupt()
	c.bound(gang...)
	s.neverFewer()
}

func ofGang(name string, least int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		label(v1alpha1.GangLabel, name)(p)
		note(v1alpha1.MinMemberAnnotation, fmt.Sprint(least))(p)
	}
}
