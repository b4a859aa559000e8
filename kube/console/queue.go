package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/internal/hostlist"
	"github.com/muster-sched/muster/internal/table"
)

// View is how lists are written.
type View struct {
	Now time.Time
	// Screen is how many characters a line has room for, 0 for all.
	Screen int
	// Wide asks for more columns, NoHeaders for no header, AllNamespaces for a
	// column of the namespaces.
	Wide, NoHeaders, AllNamespaces bool
}

// column is a column of a list of T.
type column[T any] struct {
	name  string
	right bool
	text  func(T) string
	// when says whether the column is there; always, when it is nil.
	when func(*View) bool
}

// list writes rows under the columns that are there in the view.
func list[T any](w io.Writer, v *View, columns []column[T], rows []T) error {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.when != nil && !c.when(v) })
	t := new(table.Table)
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i] = c.name
		t.Align += map[bool]string{false: "l", true: "r"}[c.right]
	}
	if !v.NoHeaders {
		t.Add(header...)
	}
	for _, r := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = c.text(r)
		}
		t.Add(cells...)
	}
	return t.Write(w, v.Screen)
}

func wide(v *View) bool          { return v.Wide }
func allNamespaces(v *View) bool { return v.AllNamespaces }

// Queue writes jobs as squeue does.
func Queue(w io.Writer, v *View, jobs []Job) error {
	return list(w, v, []column[*Job]{
		{name: "JOBID", text: func(j *Job) string { return j.ID }},
		{name: "NAMESPACE", text: func(j *Job) string { return j.Namespace }, when: allNamespaces},
		{name: "QUEUE", text: func(j *Job) string { return j.Queue }},
		{name: "PRIORITY", right: true, text: func(j *Job) string { return strconv.Itoa(int(j.Priority)) }, when: wide},
		{name: "GROUP", text: func(j *Job) string { return j.Group }, when: wide},
		{name: "ST", text: func(j *Job) string { return string(j.State) }},
		{name: "TIME", right: true, text: func(j *Job) string { return table.Clock(j.ran(v.Now)) }},
		{name: "NODES", right: true, text: (*Job).nodes},
		{name: "GPUS", right: true, text: func(j *Job) string { return j.GPUs.String() }},
		{name: "NODELIST(REASON)", text: func(j *Job) string { return j.where(v) }},
	}, pointers(jobs))
}

// Starts writes when jobs that wait are expected to start, as squeue --start
// does.
func Starts(w io.Writer, v *View, jobs []Job) error {
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return j.State != Pending && j.State != Requeued })
	slices.SortStableFunc(jobs, func(a, b Job) int {
		switch {
		case a.Start != nil && b.Start != nil:
			return a.Start.Compare(*b.Start)
		case a.Start != nil:
			return -1
		case b.Start != nil:
			return 1
		}
		return 0
	})
	return list(w, v, []column[*Job]{
		{name: "JOBID", text: func(j *Job) string { return j.ID }},
		{name: "NAMESPACE", text: func(j *Job) string { return j.Namespace }, when: allNamespaces},
		{name: "QUEUE", text: func(j *Job) string { return j.Queue }},
		{name: "ST", text: func(j *Job) string { return string(j.State) }},
		{name: "START_TIME", text: func(j *Job) string {
			if j.Start == nil {
				return "N/A"
			}
			return table.Stamp(*j.Start)
		}},
		{name: "GPUS", right: true, text: func(j *Job) string { return j.GPUs.String() }},
		{name: "NODELIST(REASON)", text: func(j *Job) string { return j.where(v) }},
		{name: "EXPECTED", text: (*Job).expected},
	}, pointers(jobs))
}

// QueueShare is what a queue, with all below it, is owed of a GPU model, in GPUs, or of a resource.
type QueueShare struct {
	Queue    string `json:"queue"`
	Parent   string `json:"parent"`
	Weight   int64  `json:"weight"`
	Priority int32  `json:"priority"`
	// One of Model and Resource is empty.
	Model    string `json:"model,omitempty"`
	Resource string `json:"resource,omitempty"`
	// Nominal is what they own, Requested what their jobs have and wait for, Owed what they are
	// owed of that by quota and weight, Used what they have.
	Nominal   Amount `json:"nominal"`
	Requested Amount `json:"requested"`
	Owed      Amount `json:"owed"`
	Used      Amount `json:"used"`
	// GPUTime is the GPU time that the queue received and deserved, the same in all entries of the queue; nil if
	// the policy does not count it.
	GPUTime *v1alpha1.QueueStanding `json:"gpuTime,omitempty"`
	// Users is what users hold in the queue, the same in all its entries; nil if it is not fair between users.
	Users []v1alpha1.QueueUser `json:"users,omitempty"`
}

// Amount is [v1alpha1.GPUs] or a [v1alpha1.Quantity].
type Amount interface {
	String() string
	MarshalJSON() ([]byte, error)
}

// Shares returns what queues are owed, as the scheduler wrote it to their status: those named, or
// all, by name, then by model, then by resource.
func (c *Client) Shares(ctx context.Context, names []string) ([]QueueShare, error) {
	var l v1alpha1.QueueList
	if err := c.muster.Get().Resource("queues").Do(ctx).Into(&l); err != nil {
		return nil, c.say("list queues", err)
	}
	queues := l.Items
	slices.SortFunc(queues, func(a, b v1alpha1.Queue) int { return cmp.Compare(a.Name, b.Name) })
	out := []QueueShare{}
	for i := range queues {
		q := &queues[i]
		if len(names) > 0 && !slices.Contains(names, q.Name) {
			continue
		}
		weight := int64(1)
		if q.Spec.Weight != nil {
			weight = *q.Spec.Weight
		}
		add := func(model, resource string, nominal, requested, owed, used Amount) {
			out = append(out, QueueShare{q.Name, q.Spec.Parent, weight, q.Spec.Priority, model, resource, nominal, requested, owed, used, q.Status.GPUTime, q.Status.Users})
		}
		for _, u := range q.Status.Usage {
			add(u.Model, "", u.Nominal, u.Requested, u.Owed, u.Used)
		}
		for _, u := range q.Status.Resources {
			add("", string(u.Name), u.Nominal, u.Requested, u.Owed, u.Used)
		}
		if none := v1alpha1.GPUs(0); (q.Status.GPUTime != nil || len(q.Status.Users) > 0) && len(q.Status.Usage)+len(q.Status.Resources) == 0 {
			add("*", "", none, none, none, none)
		}
	}
	return out, nil
}

// Shares writes what queues are owed and, if the policy counts it, the GPU time that they received and deserved; then what users hold in
// queues that are fair between users.
func Shares(w io.Writer, v *View, shares []QueueShare) error {
	if err := queueShares(w, v, shares); err != nil {
		return err
	}
	type holds struct {
		queue string
		v1alpha1.QueueUser
	}
	var users []holds
	for i := range shares {
		if i > 0 && shares[i].Queue == shares[i-1].Queue {
			continue
		}
		for _, u := range shares[i].Users {
			users = append(users, holds{shares[i].Queue, u})
		}
	}
	if len(users) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return list(w, v, []column[*holds]{
		{name: "QUEUE", text: func(h *holds) string { return h.queue }},
		{name: "USER", text: func(h *holds) string { return cmp.Or(h.Name, "-") }},
		{name: "GPUS", right: true, text: func(h *holds) string { return h.GPUs.String() }},
		{name: "CPU-ONLY", right: true, text: func(h *holds) string { return h.CPU.String() }},
	}, pointers(users))
}

func queueShares(w io.Writer, v *View, shares []QueueShare) error {
	counts := func(*View) bool {
		return slices.ContainsFunc(shares, func(s QueueShare) bool { return s.GPUTime != nil })
	}
	of := func(field func(*v1alpha1.QueueStanding) string) func(*QueueShare) string {
		return func(s *QueueShare) string {
			if s.GPUTime == nil {
				return "-"
			}
			return field(s.GPUTime)
		}
	}
	return list(w, v, []column[*QueueShare]{
		{name: "QUEUE", text: func(s *QueueShare) string { return s.Queue }},
		{name: "PARENT", text: func(s *QueueShare) string { return cmp.Or(s.Parent, "-") }},
		{name: "WEIGHT", right: true, text: func(s *QueueShare) string { return strconv.FormatInt(s.Weight, 10) }},
		{name: "PRIORITY", right: true, text: func(s *QueueShare) string { return strconv.Itoa(int(s.Priority)) }},
		{name: "MODEL", text: func(s *QueueShare) string { return s.Model + s.Resource }},
		{name: "NOMINAL", right: true, text: func(s *QueueShare) string { return s.Nominal.String() }},
		{name: "REQUESTED", right: true, text: func(s *QueueShare) string { return s.Requested.String() }},
		{name: "OWED", right: true, text: func(s *QueueShare) string { return s.Owed.String() }},
		{name: "USED", right: true, text: func(s *QueueShare) string { return s.Used.String() }},
		{name: "RECEIVED", right: true, text: of(func(s *v1alpha1.QueueStanding) string { return s.Received }), when: counts},
		{name: "DESERVED", right: true, text: of(func(s *v1alpha1.QueueStanding) string { return s.Deserved }), when: counts},
		{name: "INDEX", right: true, text: of(func(s *v1alpha1.QueueStanding) string { return s.Index }), when: counts},
	}, pointers(shares))
}

// expected says on what the expected start rests, or why there is none.
func (j *Job) expected() string {
	switch {
	case j.Settled:
		return "at the latest: its places are reserved"
	case j.Evicts != "":
		return "soon after it evicts " + j.Evicts
	case j.Start != nil:
		return "if walltimes hold"
	case j.NoStart != "":
		return j.NoStart
	}
	return cmp.Or(j.change(), "-")
}

// List writes jobs with their tasks and gangs.
func List(w io.Writer, v *View, jobs []Job) error {
	return list(w, v, []column[*Job]{
		{name: "NAMESPACE", text: func(j *Job) string { return j.Namespace }, when: allNamespaces},
		{name: "JOB", text: func(j *Job) string { return j.ID }},
		{name: "QUEUE", text: func(j *Job) string { return j.Queue }},
		{name: "KIND", text: func(j *Job) string { return j.Kind }},
		{name: "CLASS", text: func(j *Job) string { return j.Class }, when: wide},
		{name: "PRIORITY", right: true, text: func(j *Job) string { return strconv.Itoa(int(j.Priority)) }, when: wide},
		{name: "STATE", text: func(j *Job) string { return j.State.name() }},
		{name: "GANG", text: (*Job).gang},
		{name: "TASKS", text: (*Job).tasks},
		{name: "GPUS", right: true, text: func(j *Job) string { return j.GPUs.String() }},
		{name: "RUNNING", right: true, text: func(j *Job) string { return table.Span(j.ran(v.Now)) }},
		{name: "WAITING", right: true, text: func(j *Job) string { return table.Span(j.waited(v.Now)) }},
		{name: "REASON", text: func(j *Job) string {
			if v.Wide && j.Detail != "" {
				return j.Reason + ": " + j.Detail
			}
			return cmp.Or(j.Reason, "-")
		}},
	}, pointers(jobs))
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// ran is how long the job has run, or ran; 0 when it has not.
func (j *Job) ran(now time.Time) time.Duration {
	switch {
	case j.Started == nil:
		return 0
	case j.Ended != nil:
		return j.Ended.Sub(*j.Started)
	}
	return max(0, now.Sub(*j.Started))
}

// waited is how long the oldest pod that waits has; 0 when none does.
func (j *Job) waited(now time.Time) time.Duration {
	var oldest time.Time
	for _, p := range j.pods {
		if p.phase == waiting && (oldest.IsZero() || p.created.Before(oldest)) {
			oldest = p.created
		}
	}
	if oldest.IsZero() {
		return 0
	}
	return max(time.Second, now.Sub(oldest))
}

func (j *Job) nodes() string {
	if len(j.Nodes) == 0 {
		return "-"
	}
	return strconv.Itoa(len(j.Nodes))
}

// where is where the job runs or, in brackets, why it does not.
func (j *Job) where(v *View) string {
	text := hostlist.Format(j.Nodes)
	if j.Hardware != "" {
		return text + " (" + j.Hardware + ")"
	}
	if j.State == Running || j.Code == "" {
		return text
	}
	why := j.Code
	if j.Reason != "" && j.Reason != j.Code {
		why += ": " + j.Reason
	}
	if v.Wide && j.Detail != "" {
		why += ": " + j.Detail
	}
	if text != "" {
		text += " "
	}
	return text + "(" + why + ")"
}
