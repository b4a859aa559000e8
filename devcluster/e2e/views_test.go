package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/console"
)

// What users see of jobs and queues: muster queue, explain and top, kubectl get mq, conditions and events.

// people is how users read the cluster.
func (c *cluster) people() *console.Client {
	c.Helper()
	people, err := console.New(address)
	c.must(err)
	return people
}

// explains waits until muster explain says something of a job.
func (c *cluster) explains(people *console.Client, job string, says ...string) *console.Explanation {
	c.Helper()
	var x *console.Explanation
	c.until("explain "+job, func() (err error) {
		if x, err = people.Explain(ctx(), c.namespace, job); err != nil {
			return err
		}
		var text bytes.Buffer
		if err := x.Write(&text, &console.View{Now: time.Now()}); err != nil {
			return err
		}
		for _, s := range says {
			if !strings.Contains(text.String(), s) {
				return fmt.Errorf("it does not say %q:\n%s", s, text.String())
			}
		}
		return nil
	})
	return x
}

// runFor5m gives jobs the minimum run time of the policy default.
func runFor5m(k *kube.Config) { k.Policy.Preempt.MinRuntime = 300 * core.Second }

// A job that waits is told what it waits for: by the condition and the event of its pod, and by muster explain, which also
// says what would have to change. Who misspelt a name is told the one that exists, and not to ask for less.
func TestExplanations(t *testing.T) {
	c := begin(t)
	c.nodesNamed("h", 2)
	c.node("a", gpus(8, "A10"))
	ofH800 := func(q *v1alpha1.Queue) { q.Spec.Quota[0].Model = "H800" }
	c.queue("poor", 8, ofH800)
	c.queue("rich", 8, ofH800)
	c.priority("e2e-urgent", 1000)
	c.schedule(runFor5m)
	of := note(v1alpha1.GPUModelsAnnotation, "H800")
	c.create(pod("b1", asks(8), in("poor"), of), pod("b2", asks(8), in("poor"), of))
	c.bound("b1", "b2")
	people := c.people()
	c.create(pod("owner", asks(8), in("rich"), of))
	const misspelt, wrong = "What is misspelt must be corrected", "What excludes all nodes must be corrected"
	selects := func(key, value string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
	}
	asksFor := func(name string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			amount := v1.ResourceList{v1.ResourceName(name): resource.MustParse("1")}
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: amount, Requests: amount}
		}
	}
	for _, job := range []struct {
		name         string
		is           func(*v1.Pod)
		reason       string
		says, change string
	}{
		{"value", selects("nvidia.com/gpu.product", "NVIDIA-A1O"), "NoNode", "of 3 nodes, 3 have no label nvidia.com/gpu.product=NVIDIA-A1O; NVIDIA-A1O: did you mean NVIDIA-A10?", misspelt},
		{"key", selects("nvidia.com/gpu.prodct", "NVIDIA-A10"), "NoNode", "3 have no label nvidia.com/gpu.prodct=NVIDIA-A10; nvidia.com/gpu.prodct: did you mean nvidia.com/gpu.product?", misspelt},
		{"model", note(v1alpha1.GPUModelsAnnotation, "H80"), "NoNode", "3 have no GPUs of model H80; H80: did you mean H800?", misspelt},
		{"other", note(v1alpha1.GPUModelsAnnotation, "XPU-B"), "NoNode", "3 have no GPUs of model XPU-B", wrong},
		{"resource", asksFor("nvidia.com/gpus"), "NoNode", "3 have no nvidia.com/gpus; nvidia.com/gpus: did you mean nvidia.com/gpu?", misspelt},
		{"large", asks(9), "NoNode", "of 3 nodes, 3 have fewer than 9 GPUs", "smaller pods"},
		{"qos", note(v1alpha1.PriorityClassAnnotation, "e2e-urgnt"), "PriorityClassNotFound", "PriorityClass e2e-urgnt does not exist", "did you mean e2e-urgent?"},
		{"queue", in("ritch"), "QueueNotFound", "queue ritch does not exist", "Did you mean rich?"},
	} {
		c.create(pod(job.name, in("rich"), job.is))
		c.waits(job.name, job.reason, job.says)
		c.explains(people, "pod/"+job.name, job.says, job.change)
		c.until("an event says it", func() error {
			e, err := c.event(job.name, job.reason)
			if err == nil && (e.Type != v1.EventTypeWarning || !strings.Contains(e.Message, job.says)) {
				err = fmt.Errorf("it is %s: %s", e.Type, e.Message)
			}
			return err
		})
	}
	// It starts when it may evict one of those who borrowed; nobody is told to add nodes.
	c.waits("owner", "MinRuntime", "queue rich needs 8 of H800: quota 8, in use 0, available with borrowing 0 (borrowed by others: queue poor 8)")
	x := c.explains(people, "pod/owner", "when it evicts "+c.namespace+"/pod/b", "(minimum run time 5m)", "Nothing: it starts when the jobs that it is going to evict have run for their minimum time")
	if x.Start == nil || time.Until(*x.Start) > 5*time.Minute {
		t.Errorf("the owner is expected to start at %v", x.Start)
	}
	// All of the others are before this one, and one of them can start.
	c.create(pod("last", asks(8), in("rich"), of))
	c.until("one job is ahead of the last", func() error {
		if x := c.explains(people, "pod/last"); x.Ahead != 1 {
			return fmt.Errorf("%d are: %s", x.Ahead, x.Detail)
		}
		return nil
	})
}

// mq is what kubectl get mq prints, by queue and column.
func (c *cluster) mq() map[string]map[string]string {
	c.Helper()
	raw, err := muster.Get().Resource("queues").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx()).Raw()
	c.must(err)
	var table metav1.Table
	c.must(json.Unmarshal(raw, &table))
	out := map[string]map[string]string{}
	for _, row := range table.Rows {
		cells := map[string]string{}
		for i, column := range table.ColumnDefinitions {
			if cells[column.Name] = "0"; row.Cells[i] != nil { // kubectl leaves out what is nought
				cells[column.Name] = fmt.Sprint(row.Cells[i])
			}
		}
		out[cells["Name"]] = cells
	}
	return out
}

// All views say the same of a job's name and queue, whatever its pods say of them, and of what queues own, use and have
// waiting, parents included.
func TestViewsAgree(t *testing.T) {
	c := begin(t)
	c.node("n")
	below := func(parent string) func(*v1alpha1.Queue) {
		return func(q *v1alpha1.Queue) { q.Spec.Parent = parent }
	}
	contains := func(q *v1alpha1.Queue) { q.Spec.QuotaScope = "Subtree" }
	c.queue("sum", 2)
	c.queue("sum-a", 2, below("sum"))
	c.queue("whole", 4, contains)
	c.queue("whole-a", 1, below("whole"))
	c.schedule(runFor5m)
	c.create(pod("runs", asks(8), in("whole-a")))
	c.bound("runs")
	torch := c.makeObject(kind("kubeflow.org", "v1", "PyTorchJob"), "torch", `{pytorchReplicaSpecs: {Master: {replicas: 1}, Worker: {replicas: 1}}}`)
	torch.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "sum-a"})
	torch, err := anyKind.Resource(foreign(torch.GroupVersionKind())).Namespace(c.namespace).Update(ctx(), torch, metav1.UpdateOptions{})
	c.must(err)
	volcano := c.makeObject(kind("batch.volcano.sh", "v1alpha1", "Job"), "test-job", `{minAvailable: 2, queue: whole-a}`)
	group := parse(t, `{metadata: {name: test-job-uid}, spec: {minMember: 2, queue: whole-a}}`)
	group.SetGroupVersionKind(kind("scheduling.volcano.sh", "v1beta1", "PodGroup"))
	group.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(volcano, volcano.GroupVersionKind())})
	_, err = anyKind.Resource(foreign(group.GroupVersionKind())).Namespace(c.namespace).Create(ctx(), group, metav1.CreateOptions{})
	c.must(err)
	jobs := map[string]string{"pytorchjob/torch": "sum-a", "job.batch.volcano.sh/test-job": "whole-a"}
	for i := range 2 {
		role := []string{"master", "worker"}[i]
		c.create(pod("torch-"+role, asks(2), ownedBy(torch), label("training.kubeflow.org/replica-type", role)),
			pod(fmt.Sprint("test-job-task-", i), asks(2), ownedBy(volcano), note("scheduling.k8s.io/group-name", "test-job-uid")))
	}
	people := c.people()
	c.until("muster queue and explain agree, and say what the pods do", func() error {
		list, err := people.Jobs(ctx(), console.Filter{Namespace: c.namespace})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for i := range list {
			got[list[i].ID] = list[i].Queue
			first := map[string]string{"pytorchjob/torch": "torch-master", "job.batch.volcano.sh/test-job": "test-job-task-0"}[list[i].ID]
			if first == "" {
				continue
			}
			if k := condition(c.get(first), v1alpha1.WaitingCondition); k == nil || k.Reason != list[i].Reason || list[i].State != "PD" || !slices.Contains([]string{"MinRuntime", "QuotaExceeded"}, k.Reason) {
				return fmt.Errorf("%s is %s, %s; its pod has %+v", list[i].ID, list[i].State, list[i].Reason, k)
			}
		}
		for id, queue := range jobs {
			x, err := people.Explain(ctx(), c.namespace, id)
			if err != nil {
				return err
			}
			if got[id] != queue || x.Queue != queue || x.ID != id {
				return fmt.Errorf("%s is in %q of muster queue, and explain has %s in %q: %v", id, got[id], x.ID, x.Queue, got)
			}
		}
		return nil
	})
	c.until("top, shares and kubectl get mq agree", func() error {
		top, err := people.Top(ctx())
		if err != nil {
			return err
		}
		shares, err := people.Shares(ctx(), nil)
		if err != nil {
			return err
		}
		table := c.mq()
		for queue, want := range map[string]string{"sum": "4 0 1", "sum-a": "2 0 1", "whole": "4 8 1", "whole-a": "1 8 1"} {
			i := slices.IndexFunc(top.Queues, func(l console.QueueLine) bool { return l.Queue == queue })
			if i < 0 || top.Queues[i].Nominal == nil {
				return fmt.Errorf("top has no queue %s: %+v", queue, top.Queues)
			}
			l, row := top.Queues[i], table[queue]
			if got := fmt.Sprint(l.Nominal, l.Used, l.Waiting); got != want {
				return fmt.Errorf("top has %s of queue %s", got, queue)
			}
			if got := fmt.Sprint(row["Nominal"], " ", row["Used"], " ", row["Pending"]); got != want {
				return fmt.Errorf("get mq has %s of queue %s: %v", got, queue, row)
			}
			if i := slices.IndexFunc(shares, func(s console.QueueShare) bool { return s.Queue == queue }); i < 0 || fmt.Sprint(shares[i].Nominal, shares[i].Used) != fmt.Sprint(l.Nominal, l.Used) {
				return fmt.Errorf("shares of %s: %+v", queue, shares)
			}
		}
		return nil
	})
	// Together, the queues own as much as there is.
	top, err := people.Top(ctx())
	c.must(err)
	if len(top.Warnings) > 0 {
		t.Errorf("top warns: %v", top.Warnings)
	}
}
