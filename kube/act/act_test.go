package act

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/translate"
)

// startOfTime is when objects of tests were created.
var startOfTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// reported records the outcomes of acts, a line each.
type reported struct {
	mu   sync.Mutex
	list []string
}

func (r *reported) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprintf(format, args...))
}

// expect fails the test unless these outcomes were reported since the last call.
func (r *reported) expect(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.list, want) {
		t.Errorf("reported: %q; want %q", r.list, want)
	}
	r.list = nil
}

func (r *reported) Bound(pod types.UID, ok, gone bool) { r.add("bound %s %t %t", pod, ok, gone) }
func (r *reported) ClaimWritten(c *resourceapi.ResourceClaim) {
	r.add("claim %s written", c.Name)
}
func (r *reported) NotSuspended(g translate.Group) { r.add("%s not suspended", g.Job()) }
func (r *reported) FoundSuspended(g translate.Group, since time.Time) {
	r.add("%s found suspended since %s", g.Job(), since.Format(time.RFC3339))
}
func (r *reported) Resumed(g translate.Group) { r.add("%s resumed", g.Job()) }
func (r *reported) MovedOff(pod types.UID, stayed *string) {
	if stayed == nil {
		r.add("%s moved off", pod)
	} else {
		r.add("%s stayed for %s", pod, *stayed)
	}
}
func (r *reported) GangChanged(translate.Group) {}

func (r *reported) GangRead(_ context.Context, g translate.Group, _ *owners.Gang, err error) bool {
	r.add("gang of %s read: %v", g.Job(), err)
	return err != nil
}
func (r *reported) Recorded(pod types.UID)        { r.add("%s recorded", pod) }
func (r *reported) NodeNotSelected(pod types.UID) { r.add("node of %s not selected", pod) }

// newTestPod is a pod of ours that asks for GPUs.
func newTestPod(name string, gpus int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.NewTime(startOfTime),
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{
			Name:      "main",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1alpha1.GPUResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}},
		}}},
	}
}

// podNamed names a pod of newTestPod.
func podNamed(name string) Pod { return Pod{Namespace: "default", Name: name, UID: types.UID(name)} }
