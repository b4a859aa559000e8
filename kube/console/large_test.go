package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// largePods is how many pods the largest cluster that is told of has.
const largePods = 155_000

// BenchmarkQueue lists the jobs of a cluster with 155,000 pods, of Jobs of 8
// pods each, one in ten of which waits.
func BenchmarkQueue(b *testing.B) {
	c := large(b, largePods)
	for b.Loop() {
		jobs, err := c.Jobs(context.Background(), Filter{})
		if err != nil {
			b.Fatal(err)
		}
		if len(jobs) != largePods/8 {
			b.Fatalf("%d jobs, want %d", len(jobs), largePods/8)
		}
		if err := Queue(io.Discard, &View{Now: time.Now(), AllNamespaces: true}, jobs); err != nil {
			b.Fatal(err)
		}
	}
}

// large returns a client of a server that has so many pods, and nothing else.
func large(tb testing.TB, pods int) *Client {
	tb.Helper()
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	encode := func(o runtime.Object) []byte {
		var out bytes.Buffer
		if err := scheme.Codecs.EncoderForVersion(encoder, v1.SchemeGroupVersion).Encode(o, &out); err != nil {
			tb.Fatal(err)
		}
		return out.Bytes()
	}
	var answers [][]byte
	for from := 0; from < pods; from += page {
		l := &v1.PodList{}
		for i := from; i < min(from+page, pods); i++ {
			l.Items = append(l.Items, largePod(i))
		}
		if from+page < pods {
			l.Continue = strconv.Itoa(len(answers) + 1)
		}
		answers = append(answers, encode(l))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/pods") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		n, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		_, _ = w.Write(answers[n])
	}))
	tb.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// largePod is as the API server and a Job's controller make pods.
func largePod(i int) v1.Pod {
	controller := true
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	job := fmt.Sprintf("train-%05d", i/8)
	p := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d-x7k2p", job, i%8), Namespace: fmt.Sprintf("team-%02d", i/8%50), UID: types.UID(fmt.Sprintf("%036d", i)),
			Labels: map[string]string{
				v1alpha1.QueueLabel: fmt.Sprintf("queue-%d", i/8%20), "batch.kubernetes.io/job-name": job, "batch.kubernetes.io/controller-uid": fmt.Sprintf("%036d", i/8),
				"batch.kubernetes.io/job-completion-index": strconv.Itoa(i % 8),
			},
			Annotations:     map[string]string{v1alpha1.MinMemberAnnotation: "8", "batch.kubernetes.io/job-completion-index": strconv.Itoa(i % 8)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID(fmt.Sprintf("%036d", i/8)), Controller: &controller}},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", Time: &now,
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:batch.kubernetes.io/job-completion-index":{}},"f:labels":{".":{},"f:batch.kubernetes.io/job-name":{}},"f:ownerReferences":{".":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}},"f:restartPolicy":{},"f:schedulerName":{}}}`),
			}},
			CreationTimestamp: now,
		},
		Spec: v1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, RestartPolicy: v1.RestartPolicyNever, ServiceAccountName: "default",
			Containers: []v1.Container{{
				Name: "main", Image: "registry.example/train:1", Command: []string{"python", "train.py"},
				Resources: v1.ResourceRequirements{
					Limits:   v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("1")},
					Requests: v1.ResourceList{v1alpha1.GPUResource: resource.MustParse("1"), "cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi")},
				},
			}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
	if i/8%10 == 0 {
		p.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.WaitingCondition, Status: v1.ConditionTrue, Reason: "Resources", Message: "8 H800 wanted, 0 free", LastTransitionTime: now}}
		return p
	}
	p.Spec.NodeName = fmt.Sprintf("node-%05d", i/4)
	p.Annotations[v1alpha1.GPUsAnnotation] = strconv.Itoa(i % 4)
	p.Status.Phase = v1.PodRunning
	for _, t := range []v1.PodConditionType{v1.PodScheduled, v1.PodInitialized, v1.ContainersReady, v1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: t, Status: v1.ConditionTrue, LastTransitionTime: now})
	}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Ready: true, Image: "registry.example/train:1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}}}
	return p
}
