package v1alpha1_test

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

func ptr[T any](v T) *T { return &v }

// What Kubernetes stores of an object is what was written, down to its numbers.
func TestObjectsRoundTrip(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	second := v1alpha1.Duration(1e9)
	ready := metav1.Condition{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.QueueReady}
	for _, object := range []runtime.Object{
		&v1alpha1.Queue{
			ObjectMeta: metav1.ObjectMeta{Name: "research"},
			Spec: v1alpha1.QueueSpec{
				Parent: "lab", Weight: ptr(int64(3)), Mode: "Shared",
				Quota: []v1alpha1.Quota{
					{Model: "H800", Nominal: 64_000, BorrowingLimit: ptr(v1alpha1.GPUs(8_500)), LendingLimit: ptr(v1alpha1.GPUs(0))},
					{Model: "*", Nominal: 250},
				},
				Resources: []v1alpha1.ResourceQuota{
					{Name: "cpu", Nominal: "512", BorrowingLimit: ptr(v1alpha1.Quantity("500m")), LendingLimit: ptr(v1alpha1.Quantity("0"))},
					{Name: "memory", Nominal: "4Ti"}, {Name: "rdma/hca", Nominal: "16"},
				},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "vision"}},
			},
			Status: v1alpha1.QueueStatus{
				Conditions: []metav1.Condition{ready}, Nominal: 64_000, Used: 70_125,
				Usage:       []v1alpha1.QueueUsage{{Model: "H800", Nominal: 64_000, Used: 70_125, Borrowed: 6_125}},
				Resources:   []v1alpha1.ResourceUsage{{Name: "cpu", Nominal: "512", Used: "1500m", Borrowed: "0", Requested: "2", Owed: "2"}},
				PendingJobs: 2, RunningJobs: 9, WeightPermille: 333,
			},
		},
		&v1alpha1.SchedulingPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "night"},
			Spec: v1alpha1.SchedulingPolicySpec{
				Base:       "Backfill",
				Queueing:   &v1alpha1.Queueing{Mode: ptr(v1alpha1.QueueingMode("Backfill")), HeadWait: ptr(90 * second)},
				Placement:  &v1alpha1.Placement{Inference: ptr(v1alpha1.Strategy("ESpread"))},
				Zone:       &v1alpha1.Zone{Share: ptr(0.1), Exclusive: ptr(false)},
				Preemption: &v1alpha1.Preemption{Priority: ptr(v1alpha1.PriorityScope("Cluster")), Budget: ptr(64), Interval: ptr(3600 * second)},
				Requeue:    &v1alpha1.Requeue{Backoff: ptr(second / 4)},
			},
		},
		&v1alpha1.Topology{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec:       v1alpha1.TopologySpec{Levels: []v1alpha1.TopologyLevel{{NodeLabel: "example.com/spine"}, {NodeLabel: "example.com/leaf", Alias: "leaf"}}},
			Status:     v1alpha1.TopologyStatus{Nodes: 12},
		},
	} {
		data, err := runtime.Encode(codecs.LegacyCodec(v1alpha1.GroupVersion), object)
		if err != nil {
			t.Fatal(err)
		}
		got, err := runtime.Decode(codecs.UniversalDeserializer(), data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		got.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		if !reflect.DeepEqual(got, object) {
			t.Errorf("%s\ngot  %+v\nwant %+v", data, got, object)
		}
		if copied := object.DeepCopyObject(); !reflect.DeepEqual(copied, object) {
			t.Errorf("%+v is copied as %+v", object, copied)
		}
	}
}

// In JSON amounts may be numbers, as people write them, or strings.
func TestScalarsInJSON(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"nominal": 8, "borrowingLimit": "0.5", "lendingLimit": null}`, `{"model":"","nominal":8,"borrowingLimit":"0.5"}`},
		{`{"nominal": "8"}`, `{"model":"","nominal":8}`},
		{`{"nominal": 1.25}`, `{"model":"","nominal":"1.25"}`},
		{`{"nominal": -1, "borrowingLimit": "-1"}`, `{"model":"","nominal":-1,"borrowingLimit":-1}`},
		{`{"nominal": -2}`, ""},
		{`{"nominal": "all"}`, ""},
		{`{"nominal": true}`, ""},
	} {
		var q v1alpha1.Quota
		err := json.Unmarshal([]byte(test.text), &q)
		if test.want == "" {
			if err == nil {
				t.Errorf("%s was read as %+v", test.text, q)
			}
			continue
		}
		if got, _ := json.Marshal(q); err != nil || string(got) != test.want {
			t.Errorf("%s: got %s, %v; want %s", test.text, got, err, test.want)
		}
	}
	var r v1alpha1.Requeue
	if err := json.Unmarshal([]byte(`{"backoff": 90, "maxBackoff": "1h30m"}`), &r); err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(r); string(got) != `{"backoff":"1m30s","maxBackoff":"1h30m"}` {
		t.Errorf("got %s", got)
	}
}

// Quantities are what the engine counts, and the other way round.
func TestQuantities(t *testing.T) {
	for _, test := range []struct {
		resource   v1alpha1.ResourceName
		text, back string
		want       core.Milli
	}{
		{"cpu", "96", "96", 96_000}, {"cpu", "500m", "500m", 500}, {"cpu", "1.5", "1500m", 1_500}, {"cpu", "2k", "2k", 2_000_000},
		{"memory", "512Gi", "512Gi", 512 << 10}, {"memory", "1G", "953Mi", 953}, {"memory", "0.5Mi", "0", 0}, {"memory", "75Pi", "75Pi", 75 << 30},
		{"rdma/hca", "16", "16", 16}, {"rdma/hca", "1.5", "1", 1}, {"ephemeral-storage", "1Gi", "1073741824", 1 << 30},
		{"rdma/hca", "9Ei", "-1", core.MaxAmount}, {"cpu", "9Ei", "-1", core.MaxAmount}, {"memory", "-1", "-1", core.MaxAmount},
	} {
		var q v1alpha1.Quantity
		if err := q.UnmarshalText([]byte(test.text)); err != nil || q.Amount(test.resource) != test.want {
			t.Errorf("%s of %s: got %d, %v; want %d", test.text, test.resource, q.Amount(test.resource), err, test.want)
		}
		if got := v1alpha1.QuantityOf(test.resource, test.want); string(got) != test.back {
			t.Errorf("%d of %s: got %s, want %s", test.want, test.resource, got, test.back)
		}
	}
	for _, text := range []string{"", "-2", "-1Gi", "1e3", "all", "1.2345", "5 Gi", "0x10", "99999999999999999999"} {
		var q v1alpha1.Quantity
		if err := q.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %s", text, q)
		}
	}
	for text, ok := range map[string]bool{"cpu": true, "rdma/hca": true, "": false, "pods": false, "nvidia.com/gpu": false, "huawei.com/Ascend910": false} {
		var n v1alpha1.ResourceName
		if err := n.UnmarshalText([]byte(text)); (err == nil) != ok {
			t.Errorf("resource %q: %v", text, err)
		}
	}
}

// A policy as an object is the policy of the same file.
func TestPolicyOfAnObject(t *testing.T) {
	p := v1alpha1.SchedulingPolicy{Spec: v1alpha1.SchedulingPolicySpec{Zone: &v1alpha1.Zone{Label: "a"}}}
	p.Name = "night"
	got, err := p.Policy(builtins)
	want, wantErr := v1alpha1.Parse("night.yaml", []byte("zone: {label: a}"), builtins)
	if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v, %v", got, err, want, wantErr)
	}
	p.Spec.Requeue = &v1alpha1.Requeue{Backoff: ptr(v1alpha1.Duration(3600e9))}
	if _, err := p.Policy(builtins); err == nil || err.Error() != "spec.requeue.maxBackoff: expected at least the backoff, 1h; found 10m" {
		t.Errorf("got %v", err)
	}
}

func TestTopologyLevels(t *testing.T) {
	spec := v1alpha1.TopologySpec{Levels: []v1alpha1.TopologyLevel{
		{NodeLabel: "example.com/spine"}, {NodeLabel: "example.com/leaf", Alias: "leaf"}, {NodeLabel: "kubernetes.io/hostname", Alias: "host"},
	}}
	if got, want := spec.Labels(), []string{"example.com/spine", "example.com/leaf"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, want := range map[string]string{
		"leaf": "example.com/leaf", "example.com/leaf": "example.com/leaf", "example.com/spine": "example.com/spine",
		"host": "node", "kubernetes.io/hostname": "node", "node": "node", "hbd": "hbd", "": "", "rack": "",
	} {
		if got, ok := spec.Level(name); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", name, got, ok, want)
		}
	}
}

// A policy as `kubectl get -o yaml` prints it is a policy file.
func TestParseWhatTheClusterHas(t *testing.T) {
	const file = `apiVersion: muster.sh/v1alpha1
kind: SchedulingPolicy
metadata:
  creationTimestamp: "2026-01-02T03:04:05Z"
  generation: 2
  name: night
  resourceVersion: "1234"
  uid: 6f8e1c54-3a52-4f6c-9a39-0a6f3b0f8f0a
spec:
  base: ESpread
status:
  conditions:
  - lastTransitionTime: "2026-01-02T03:04:05Z"
    message: ""
    observedGeneration: 2
    reason: InUse
    status: "True"
    type: Ready
`
	got, err := v1alpha1.Parse("p.yaml", []byte(file), builtins)
	if err != nil || got.Name != "night" || got.Zone.Share != 0.25 {
		t.Errorf("got %+v, %v", got, err)
	}
}
