package publish

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/health"
)

// world is a cluster with the node n, whose publisher has a clock that the test moves.
type world struct {
	*testing.T
	client *fake.Clientset
	p      *Publisher
	now    time.Time
	log    strings.Builder
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{T: t, now: time.Unix(1_000_000, 0)}
	w.client = fake.NewClientset(append(objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}})...)
	w.p = w.publisher()
	return w
}

func (w *world) publisher() *Publisher {
	return &Publisher{Client: w.client, Node: "n", Log: slog.New(slog.NewTextHandler(&w.log, nil)), Now: func() time.Time { return w.now }}
}

func (w *world) node() *v1.Node {
	w.Helper()
	n, err := w.client.CoreV1().Nodes().Get(w.Context(), "n", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) condition() v1.NodeCondition {
	w.Helper()
	for _, c := range w.node().Status.Conditions {
		if c.Type == Condition {
			return c
		}
	}
	w.Fatal("the node has no such condition")
	return v1.NodeCondition{}
}

// writes are the requests to the API that change something, since the last call.
func (w *world) writes() (out []string) {
	for _, a := range w.client.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			out = append(out, a.GetVerb()+" "+strings.TrimSuffix(a.GetResource().Resource+"/"+a.GetSubresource(), "/"))
		}
	}
	w.client.ClearActions()
	return out
}

// found is a reading of GPUs, each with a fault of the reason, "" for none.
func found(reasons ...string) *agentpb.Hardware {
	h := &agentpb.Hardware{DriverVersion: "580", Read: timestamppb.Now()}
	for i, r := range reasons {
		g := &agentpb.GPU{Index: int32(i), Uuid: fmt.Sprintf("GPU-%d", i), Pci: fmt.Sprintf("0000:%02x:00.0", i), Numa: ptr.To(int32(i / 2)), PcieRoot: fmt.Sprintf("pci0000:%02x", i/2), Island: ptr.To[int32](0)}
		if r != "" {
			g.Faults = []*agentpb.Fault{{Reason: r, Message: "because of " + r, Since: timestamppb.New(time.Unix(500, 0))}}
		}
		h.Gpus = append(h.Gpus, g)
	}
	return h
}

// What is known becomes a condition that closes just the GPUs that are at fault.
func TestConditionOf(t *testing.T) {
	gone := found("", "GPUMissing")
	gone.Gpus[1].Index = -1
	silent := found("")
	silent.Unread = "no answer"
	noLog := found("")
	noLog.LogUnread = "kmsg: permission denied"
	whole := found("", "XidError")
	whole.Faults = []*agentpb.Fault{{Reason: "DriverNotResponding", Message: "it hangs"}}
	long := found(slices.Repeat([]string{strings.Repeat("ü", 200)}, 8)...)
	for name, c := range map[string]struct {
		h                       *agentpb.Hardware
		status, reason, message string
		gpus                    uint64 // that kube/health takes for broken; 0 with a reason: all
	}{
		"healthy":         {found("", ""), "True", "NoFault", "2 GPUs, driver 580", 0},
		"one":             {found("", "XidError"), "False", "XidError", "GPU:1; GPU-1: because of XidError", 2},
		"two":             {found("GPULost", "", "XidError"), "False", "GPULost", "GPU:0, GPU:2; GPU-0: because of GPULost; GPU-2: because of XidError", 5},
		"gone":            {gone, "False", "GPUMissing", "GPU-1: because of GPUMissing", 0},
		"the driver":      {silent, "Unknown", "DriverNotRead", "no answer", 0},
		"log unread":      {noLog, "True", "NoFault", "1 GPUs, driver 580; errors in the kernel log are not seen: kmsg: permission denied", 0},
		"node and a GPU":  {whole, "False", "XidError", "GPU-1: because of XidError; it hangs", 0},
		"more than fits":  {long, "False", strings.Repeat("ü", 200), "", 255},
		"nothing is here": {&agentpb.Hardware{Unread: "no library"}, "Unknown", "DriverNotRead", "no library", 0},
	} {
		status, reason, message := conditionOf(c.h, nil)
		if string(status) != c.status || reason != c.reason || c.message != "" && message != c.message || len(message) > maxMessage {
			t.Errorf("%s: found %s, %s, %q", name, status, reason, message)
		}
		f := health.Of(&v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: Condition, Status: status, Message: message}}}})
		if broken := f.Why != ""; broken != (c.status == "False") || f.GPUs != c.gpus {
			t.Errorf("%s: Muster reads %+v of it, expected the GPUs %b", name, f, c.gpus)
		}
	}
}

// A condition is written when it changes, and now and then; its transition is that of its status.
func TestCondition(t *testing.T) {
	w := newWorld(t)
	publish := func(p *Publisher, h *agentpb.Hardware, passed time.Duration, wantWrites int, since time.Duration) {
		t.Helper()
		w.now = w.now.Add(passed)
		p.Publish(t.Context(), h)
		if got := w.writes(); len(got) != wantWrites {
			t.Errorf("it wrote %v, expected %d", got, wantWrites)
		}
		if c := w.condition(); w.now.Sub(c.LastTransitionTime.Time) != since {
			t.Errorf("after %v: found %+v, expected a transition %v ago", passed, c, since)
		}
	}
	healthy, broken, other := found(), found("XidError"), found("GPULost")
	broken.Gpus[0].PcieRoot, broken.Gpus[0].Numa, other.Gpus[0].PcieRoot, other.Gpus[0].Numa = "", nil, "", nil
	publish(w.p, healthy, 0, 1, 0)
	publish(w.p, healthy, time.Minute, 0, time.Minute)
	publish(w.p, healthy, heartbeat, 1, heartbeat+time.Minute)
	publish(w.p, broken, time.Second, 1, 0)
	publish(w.p, other, time.Second, 1, time.Second) // another reason of the same status
	publish(w.publisher(), other, time.Second, 0, 2*time.Second)
	publish(w.publisher(), healthy, time.Second, 1, 0)
	publish(w.publisher(), healthy, -time.Hour, 1, -time.Hour) // the clock is set back
	publish(w.publisher(), healthy, time.Minute, 0, time.Minute-time.Hour)
	if n := w.node(); len(n.Status.Conditions) != 2 {
		t.Errorf("the node has the conditions %v", n.Status.Conditions)
	}
}

// Where GPUs are is written once it is known of all of them, and not over what another writer says.
func TestPositions(t *testing.T) {
	w := newWorld(t)
	h := found("", "", "", "")
	h.Gpus[3].Nic = ptr.To[int32](2)
	mig, unknown, shifted := found(""), found("", ""), found("", "")
	mig.Gpus[0].Mig = ptr.To(true)
	unknown.Gpus[1].Numa, unknown.Gpus[1].PcieRoot = nil, ""
	shifted.Gpus[0].Index = 5
	for _, none := range []*agentpb.Hardware{mig, unknown, shifted, found()} {
		if got := positionsOf(none); got != "" {
			t.Errorf("found %q", got)
		}
	}
	w.p.Publish(t.Context(), h)
	if got := w.node().Annotations[v1alpha1.GPUPositionsAnnotation]; got != "0/0/0/-|0/0/0/-|0/1/1/-|0/1/1/2" {
		t.Errorf("found %q", got)
	}
	if c := w.condition(); c.Status != v1.ConditionTrue {
		t.Errorf("the annotation took the condition away: %+v", c)
	}
	w.now = w.now.Add(heartbeat)
	w.p.Publish(t.Context(), h)
	if got := w.node().Annotations[v1alpha1.GPUPositionsAnnotation]; got == "" {
		t.Error("the condition took the annotation away")
	}

	w = newWorld(t)
	n := w.node()
	n.Annotations = map[string]string{v1alpha1.GPUPositionsAnnotation: "0/0/-"}
	if _, err := w.client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{FieldManager: "an operator"}); err != nil {
		t.Fatal(err)
	}
	w.p.Publish(t.Context(), h)
	if got := w.node().Annotations[v1alpha1.GPUPositionsAnnotation]; got != "0/0/-" || !strings.Contains(w.log.String(), "another writer says") {
		t.Errorf("found %q\n%s", got, &w.log)
	}
}

// slice publishes GPUs of a node in a pool, by DRA: the device gpu-I of the UUID GPU-I.
func slice(node, pool string, gpus int) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + pool}, Spec: resourceapi.ResourceSliceSpec{Driver: "gpu.nvidia.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool, ResourceSliceCount: 1}}}
	for i := range gpus {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"uuid": {StringValue: ptr.To(fmt.Sprintf("GPU-%d", i))}}})
	}
	return s
}

func (w *world) rules() (out []string) {
	w.Helper()
	list, err := w.client.ResourceV1().DeviceTaintRules().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range list.Items {
		s := r.Spec.DeviceSelector
		out = append(out, fmt.Sprintf("%s/%s/%s %s=%s:%s", *s.Driver, *s.Pool, *s.Device, r.Spec.Taint.Key, r.Spec.Taint.Value, r.Spec.Taint.Effect))
	}
	slices.Sort(out)
	return out
}

// A GPU that is at fault gets a taint, also if its driver publishes it later; what others wrote stays.
func TestTaints(t *testing.T) {
	foreign := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{v1alpha1.AgentOfLabel: "m"}}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: ptr.To("d"), Pool: ptr.To("p"), Device: ptr.To("x")}, Taint: resourceapi.DeviceTaint{Key: "k", Effect: "NoSchedule"},
	}}
	elsewhere := slice("n", "other", 4) // a pool of another name has the last GPU
	elsewhere.Spec.Devices = elsewhere.Spec.Devices[3:]
	w := newWorld(t, foreign, slice("m", "m", 4), elsewhere)
	other := "d/p/x k=:NoSchedule"
	step := func(p *Publisher, h *agentpb.Hardware, passed time.Duration, want ...string) {
		t.Helper()
		w.now = w.now.Add(passed)
		p.Publish(t.Context(), h)
		if got := w.rules(); !slices.Equal(got, append(want, other)) && !slices.Equal(got, append([]string{other}, want...)) {
			t.Errorf("found %q, expected %q\n%s", got, want, &w.log)
		}
	}
	step(w.p, found("", "XidError", "", "XidError"), 0)
	if _, err := w.client.ResourceV1().ResourceSlices().Create(t.Context(), slice("n", "n", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := "gpu.nvidia.com/n/gpu-1 muster.sh/gpu-fault=XidError:NoSchedule"
	step(w.p, found("", "XidError", "", "XidError"), heartbeat, first)
	w.writes()
	step(w.p, found("", "XidError", "", "XidError"), time.Second, first)
	if got := w.client.Actions(); len(got) != 1 { // that of the test itself
		t.Errorf("nothing has changed, and it asked %v", got)
	}
	step(w.p, found("GPULost", "XidError"), time.Second, "gpu.nvidia.com/n/gpu-0 muster.sh/gpu-fault=GPULost:NoSchedule", first)
	step(w.p, found("ResetRequired", ""), time.Second, "gpu.nvidia.com/n/gpu-0 muster.sh/gpu-fault=ResetRequired:NoSchedule")
	step(w.publisher(), found("", ""), time.Second)
}

// Where a DRA driver numbers its devices otherwise than NVML, the condition has the scheduler's number.
func TestNumberOfDevice(t *testing.T) {
	s := slice("n", "n", 3)
	for i := range s.Spec.Devices {
		s.Spec.Devices[i].Attributes["index"] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(2 - i))}
	}
	w := newWorld(t, s)
	w.p.Publish(t.Context(), found("XidError", "", ""))
	if got := w.condition().Message; !strings.HasPrefix(got, "GPU:2; GPU-0: ") {
		t.Errorf("found %q", got)
	}
	if got := w.rules(); len(got) != 1 || !strings.HasPrefix(got[0], "gpu.nvidia.com/n/gpu-0 ") {
		t.Errorf("found %q", got)
	}
}

// What the API refuses is said once, and tried again at each reading.
func TestRefused(t *testing.T) {
	w := newWorld(t, slice("n", "n", 1))
	w.p.Errors = NewErrors()
	refuse := true
	w.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuse, nil, errors.New("the API is down")
	})
	for range 3 {
		w.p.Publish(t.Context(), found("XidError"))
	}
	if n := strings.Count(w.log.String(), "cannot be written"); n != 3 { // the condition, the positions, the taints
		t.Errorf("it said so %d times:\n%s", n, &w.log)
	}
	refuse = false
	w.p.Publish(t.Context(), found("XidError"))
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.p.Errors)
	said := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(said, httptest.NewRequest("GET", "/metrics", nil))
	for _, what := range []string{"condition", "positions", "taints"} {
		if !strings.Contains(said.Body.String(), `muster_agent_publish_errors_total{what="`+what+`"} 3`+"\n") {
			t.Errorf("errors of the %s are not 3:\n%s", what, said.Body)
		}
	}
	if w.condition().Status != v1.ConditionFalse || len(w.rules()) != 1 || strings.Count(w.log.String(), "can be written to the API again") != 3 {
		t.Errorf("found %v\n%s", w.node(), &w.log)
	}
}

// The name of a node may be longer than a label.
func TestLongName(t *testing.T) {
	if a, b := nodeLabel(strings.Repeat("a", 200)), nodeLabel(strings.Repeat("a", 201)); a == b || len(a) > 63 || nodeLabel("n") != "n" {
		t.Errorf("found %q, %q", a, b)
	}
}

// What the driver wrote to the kernel log is an annotation: the last errors, of which one that repeats is one. It leaves the rest of what is written there.
func TestErrors(t *testing.T) {
	w := newWorld(t)
	h := found("")
	h.Gpus[0].Nic = ptr.To[int32](2)
	w.p.Publish(t.Context(), h)
	if _, ok := w.node().Annotations[v1alpha1.GPUErrorsAnnotation]; ok {
		t.Error("errors without any")
	}
	of := func(code int32, second int64) *agentpb.Xid {
		return &agentpb.Xid{At: timestamppb.New(time.Unix(second, 0)), Pci: "0000:00:00.0", Code: code, Text: fmt.Sprint("NVRM: Xid ", code, strings.Repeat("x", 400))}
	}
	read := func() (all []v1alpha1.GPUError) {
		if err := json.Unmarshal([]byte(w.node().Annotations[v1alpha1.GPUErrorsAnnotation]), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	h.Xids = []*agentpb.Xid{of(31, 100), of(31, 130), of(48, 140), of(31, 200)}
	w.p.Publish(t.Context(), h)
	var got []int64
	for _, e := range read() {
		got = append(got, e.At.Unix())
	}
	if !slices.Equal(got, []int64{100, 140, 200}) || len(read()[0].Text) != maxErrorText || read()[0].PCI != "0000:00:00.0" {
		t.Errorf("found %d: %+v", got, read())
	}
	if w.node().Annotations[v1alpha1.GPUPositionsAnnotation] == "" {
		t.Error("where the GPUs are is gone")
	}
	w.writes()
	w.p.Publish(t.Context(), h)
	if again := w.writes(); again != nil {
		t.Errorf("nothing changed, but %v", again)
	}
	for i := range int64(100) {
		h.Xids = append(h.Xids, of(13, 1000+100*i))
	}
	w.p.Publish(t.Context(), h)
	if all := read(); len(all) != maxErrors || all[maxErrors-1].At.Unix() != 1000+100*99 {
		t.Errorf("found %d errors, the last %v", len(all), all[len(all)-1].At)
	}
}
