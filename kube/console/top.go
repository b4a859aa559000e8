package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube/translate"
)

// Cluster is what a cluster has and how it is used. Its fields are what -o json prints.
type Cluster struct {
	At     time.Time   `json:"at"`
	Models []Model     `json:"models"`
	Queues []QueueLine `json:"queues"`
	// Jobs counts Muster's jobs by state; those that are over are not counted.
	Jobs map[State]int `json:"jobs"`
	// Warnings are the conditions ExceedsCapacity of the queues.
	Warnings []string `json:"warnings,omitempty"`
}

// Model is the nodes with GPUs of one model.
type Model struct {
	Model string `json:"model"`
	// Nodes are all nodes of the model, Down those that are not ready, Closed
	// those that are but take no new pods; Fragmented those that have some GPUs
	// used and some free.
	Nodes      int `json:"nodes"`
	Down       int `json:"down"`
	Closed     int `json:"closed"`
	Fragmented int `json:"fragmented"`
	// GPUs counts all devices. Used are held by pods of any scheduler; Free can
	// take new pods: healthy, not used, and on nodes that take pods.
	GPUs      int           `json:"gpus"`
	Used      v1alpha1.GPUs `json:"used"`
	Free      v1alpha1.GPUs `json:"free"`
	Unhealthy int           `json:"unhealthy"`
}

// QueueLine is a queue: what it owns, what its jobs hold and want, in GPUs.
type QueueLine struct {
	Queue string `json:"queue"`
	// Nominal is what the queue and all below it own, as in its status, -1 without limit; absent
	// where they have no quota. Borrowed is what the scheduler says that they
	// hold of others' quota. Both are absent where the user may not read queues.
	Nominal  *v1alpha1.GPUs `json:"nominal,omitempty"`
	Borrowed *v1alpha1.GPUs `json:"borrowed,omitempty"`
	// Used, Running, Wanted and Waiting are of the queue and all below it: GPUs and jobs
	// that run, GPUs and jobs that wait.
	Used    v1alpha1.GPUs `json:"used"`
	Running int           `json:"running_jobs"`
	Wanted  v1alpha1.GPUs `json:"wanted"`
	Waiting int           `json:"waiting_jobs"`
}

// Top reads what a cluster has and how it is used.
func (c *Client) Top(ctx context.Context) (*Cluster, error) {
	byGroup := map[translate.Group]*Job{}
	nodes, err := c.listNodes(ctx, live, func() { clear(byGroup) }, func(p *v1.Pod) {
		if p.Spec.SchedulerName == v1alpha1.SchedulerName {
			gather(byGroup, p)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := c.complete(ctx, "", byGroup); err != nil {
		return nil, err
	}
	queues, err := c.queues(ctx)
	if err != nil {
		return nil, c.say("list queues", err)
	}
	t := &Cluster{At: time.Now(), Models: models(nodes), Queues: queueLines(queues, byGroup), Jobs: map[State]int{}, Warnings: v1alpha1.QueueWarnings(queues)}
	for _, j := range byGroup {
		t.Jobs[j.State]++
	}
	return t, nil
}

func models(nodes []Node) []Model {
	by := map[string]*Model{}
	for i := range nodes {
		n := &nodes[i]
		if n.GPUs == 0 {
			continue
		}
		m := by[n.Model]
		if m == nil {
			m = &Model{Model: n.Model}
			by[n.Model] = m
		}
		m.Nodes++
		m.GPUs, m.Unhealthy, m.Used = m.GPUs+n.GPUs, m.Unhealthy+n.Unhealthy, m.Used+n.Used
		switch {
		case !n.ready:
			m.Down++
		case n.closed:
			m.Closed++
		default:
			m.Free += n.Free
			if n.fragmented() {
				m.Fragmented++
			}
		}
	}
	out := []Model{}
	for _, name := range sorted(by) {
		out = append(out, *by[name])
	}
	return out
}

func queueLines(queues []v1alpha1.Queue, byGroup map[translate.Group]*Job) []QueueLine {
	by := map[string]*QueueLine{}
	of := func(name string) *QueueLine {
		if by[name] == nil {
			by[name] = &QueueLine{Queue: name}
		}
		return by[name]
	}
	parent := map[string]string{}
	for i := range queues {
		q := &queues[i]
		parent[q.Name] = q.Spec.Parent
		l := of(q.Name)
		if q.Status.Nominal != 0 || len(q.Spec.Quota) > 0 {
			l.Nominal = &q.Status.Nominal
		}
		if len(q.Status.Conditions) > 0 {
			l.Borrowed = new(v1alpha1.GPUs)
			for _, u := range q.Status.Usage {
				*l.Borrowed += u.Borrowed
			}
		}
	}
	for _, j := range byGroup {
		for name, depth := j.Queue, 0; name != "" && depth <= len(queues); name, depth = parent[name], depth+1 {
			of(name).add(j)
		}
	}
	out := []QueueLine{}
	for _, name := range sorted(by) {
		out = append(out, *by[name])
	}
	return out
}

// add counts a job of the queue, or of one below it.
func (l *QueueLine) add(j *Job) {
	switch j.State {
	case Running, Completing, Preempted:
		l.Running++
	case Pending, Requeued:
		l.Waiting++
	}
	for _, p := range j.pods {
		if p.phase == waiting {
			l.Wanted += v1alpha1.GPUs(p.gpus)
		} else if p.phase == running || p.phase == leaving {
			l.Used += v1alpha1.GPUs(p.gpus)
		}
	}
}

// Write writes the cluster for people to read.
func (t *Cluster) Write(w io.Writer, v *View) error {
	var jobs []string
	for i := range states {
		if n := t.Jobs[states[i].State]; n > 0 {
			jobs = append(jobs, fmt.Sprintf("%s %d", states[i].State.name(), n))
		}
	}
	fmt.Fprintf(w, "%s  jobs: %s\n\n", table.Stamp(t.At), cmp.Or(strings.Join(jobs, ", "), "none"))
	err := list(w, v, []column[*Model]{
		{name: "MODEL", text: func(m *Model) string { return m.Model }},
		{name: "NODES", right: true, text: func(m *Model) string { return fmt.Sprint(m.Nodes) }},
		{name: "GPUS", right: true, text: func(m *Model) string { return fmt.Sprint(m.GPUs) }},
		{name: "USED", right: true, text: func(m *Model) string { return m.Used.String() }},
		{name: "FREE", right: true, text: func(m *Model) string { return m.Free.String() }},
		{name: "", text: func(m *Model) string { return table.Bar(float64(m.Used) / float64(1000*max(m.GPUs, 1))) }},
		{name: "FRAGMENTED", right: true, text: func(m *Model) string { return fmt.Sprint(m.Fragmented) }},
		{name: "UNHEALTHY", right: true, text: func(m *Model) string { return fmt.Sprint(m.Unhealthy) }},
		{name: "CLOSED", right: true, text: func(m *Model) string { return fmt.Sprint(m.Closed) }},
		{name: "DOWN", right: true, text: func(m *Model) string { return fmt.Sprint(m.Down) }},
	}, pointers(t.Models))
	if err != nil || len(t.Queues) == 0 {
		return err
	}
	fmt.Fprintln(w)
	queues := slices.Clone(t.Queues)
	slices.SortStableFunc(queues, func(a, b QueueLine) int { return cmp.Compare(b.Used+b.Wanted, a.Used+a.Wanted) })
	amount := func(g *v1alpha1.GPUs) string {
		if g == nil {
			return "-"
		}
		return g.String()
	}
	err = list(w, v, []column[*QueueLine]{
		{name: "QUEUE", text: func(q *QueueLine) string { return q.Queue }},
		{name: "NOMINAL", right: true, text: func(q *QueueLine) string { return amount(q.Nominal) }},
		{name: "USED", right: true, text: func(q *QueueLine) string { return q.Used.String() }},
		{name: "BORROWED", right: true, text: func(q *QueueLine) string { return amount(q.Borrowed) }},
		{name: "WANTED", right: true, text: func(q *QueueLine) string { return q.Wanted.String() }},
		{name: "RUNNING", right: true, text: func(q *QueueLine) string { return fmt.Sprint(q.Running) }},
		{name: "WAITING", right: true, text: func(q *QueueLine) string { return fmt.Sprint(q.Waiting) }},
	}, pointers(queues))
	for _, text := range t.Warnings {
		fmt.Fprintln(w, "Warning: "+text)
	}
	return err
}
