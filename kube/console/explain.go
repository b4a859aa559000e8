package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/hostlist"
	"github.com/muster-sched/muster/internal/spelling"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Explanation is everything that is known about one job. Its fields are what -o json
// prints.
type Explanation struct {
	Job
	// Turn says which queue, job or user comes before it.
	Turn string `json:"turn,omitempty"`
	// Ahead counts the waiting jobs before it, -1 when that is not known; [core.MostAhead] stands for as many or more.
	Ahead int `json:"ahead"`
	// Change says what would have to change for it to start.
	Change string `json:"change,omitempty"`
	// Estimate says how long it is expected to run, and why, if it was predicted.
	Estimate string `json:"estimate,omitempty"`
	// Nearest says what would free the nearest places, if what is free is in the wrong places;
	// the least first.
	Nearest []string `json:"nearest,omitempty"`
	// Usage is what its queue owns and uses; nil when the user may not see it.
	Usage  *v1alpha1.QueueStatus `json:"queue_status,omitempty"`
	Pods   []PodLine             `json:"pods"`
	Events []EventLine           `json:"events"`
}

// PodLine is a pod of a job that is explained.
type PodLine struct {
	Name  string        `json:"name"`
	Task  string        `json:"task"`
	State string        `json:"state"`
	Node  string        `json:"node,omitempty"`
	GPUs  v1alpha1.GPUs `json:"gpus"`
	// Devices are the indices of its GPUs on the node.
	Devices string `json:"devices,omitempty"`
	// Since is when it was bound or, before that, made.
	Since time.Time `json:"since"`
	// Why says why it waits, or was told to leave, or what that waits for.
	Why string `json:"why,omitempty"`
}

// EventLine is an event about a job or a pod of it.
type EventLine struct {
	Last    time.Time `json:"last"`
	Count   int32     `json:"count"`
	Object  string    `json:"object"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// NoJobError reports that there is no job with a name.
type NoJobError struct {
	Namespace, Name string
	// Known are the jobs there are.
	Known []string
}

func (e *NoJobError) Error() string {
	return fmt.Sprintf("namespace %s has no job or pod %q that Muster schedules", e.Namespace, e.Name)
}

// Explain returns the state of a job and why it waits. name is the name of the job or of
// one of its pods, as in train, job/train or, with the namespace, team-a/job/train. The
// error is a [NoJobError] if there is no such job.
func (c *Client) Explain(ctx context.Context, namespace, name string) (*Explanation, error) {
	j, err := c.job(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	x := &Explanation{Job: *j, Ahead: -1, Pods: []PodLine{}, Events: []EventLine{}}
	x.Change, x.Nearest = j.change(), j.nearest
	if j.Evicts != "" {
		x.Change = core.EvictsAdvice
	}
	if detail, ahead, ok := strings.Cut(j.Detail, translate.AheadMark); ok {
		count, _, _ := strings.Cut(ahead, " ") // 1000 or more
		if n, err := strconv.Atoi(count); err == nil {
			x.Detail, x.Ahead = detail, n
		}
	}
	x.Detail, x.Turn, _ = strings.Cut(x.Detail, translate.TurnMark)
	for _, p := range j.pods {
		x.Pods = append(x.Pods, p.line())
		x.Estimate = cmp.Or(p.estimate, x.Estimate)
	}
	queues, err := c.queues(ctx)
	if err != nil {
		return nil, c.say("list queues", err)
	}
	if i := slices.IndexFunc(queues, func(q v1alpha1.Queue) bool { return q.Name == j.Queue }); i >= 0 {
		x.Usage = &queues[i].Status
	} else if j.Reason == tables.ReasonQueueNotFound {
		names := make([]string, len(queues))
		for i := range queues {
			names[i] = queues[i].Name
		}
		if meant := spelling.Nearest(j.Queue, names); meant != "" {
			x.Change += " Did you mean " + meant + "?"
		}
	}
	x.Events, err = c.events(ctx, j)
	return x, err
}

// job reads a job by the name that [Client.Explain] takes.
func (c *Client) job(ctx context.Context, namespace, name string) (*Job, error) {
	if parts := strings.SplitN(name, "/", 3); len(parts) == 3 {
		namespace, name = parts[0], parts[1]+"/"+parts[2]
	}
	byGroup := map[translate.Group]*Job{}
	err := c.listPods(ctx, namespace, ours, func() { clear(byGroup) }, func(p *v1.Pod) { gather(byGroup, p) })
	if err != nil {
		return nil, err
	}
	if err := c.complete(ctx, namespace, byGroup); err != nil {
		return nil, err
	}
	expect(byGroup)
	return find(byGroup, namespace, name)
}

// find finds a job by its name, its kind and name, or a pod of it.
func find(byGroup map[translate.Group]*Job, namespace, name string) (*Job, error) {
	var found []*Job
	var known []string
	for _, j := range byGroup {
		known = append(known, j.ID)
		_, made, _ := strings.Cut(j.ID, "/")
		if j.ID == name || j.Group == name || j.group.Name == name || made == name || slices.ContainsFunc(j.pods, func(p *pod) bool { return p.name == name || "pod/"+p.name == name }) {
			found = append(found, j)
		}
	}
	if len(found) == 0 {
		found = ofDeployment(byGroup, strings.TrimPrefix(name, "deployment/"))
	}
	switch len(found) {
	case 0:
		slices.Sort(known)
		return nil, &NoJobError{namespace, name, known}
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, j := range found {
		ids = append(ids, j.ID)
	}
	slices.Sort(ids)
	return nil, fmt.Errorf("%q is ambiguous: name one of %s", name, strings.Join(ids, ", "))
}

// ofDeployment finds the jobs of a Deployment: those of its ReplicaSets, which have
// its name and a hash.
func ofDeployment(byGroup map[translate.Group]*Job, name string) []*Job {
	var found []*Job
	for _, j := range byGroup {
		i := strings.LastIndexByte(j.group.Name, '-')
		if j.group.Kind == "replicaset" && i >= 0 && j.group.Name[:i] == name {
			found = append(found, j)
		}
	}
	return found
}

// expect says when jobs start whose places are settled: when the last pod that
// leaves for them must be gone.
func expect(byGroup map[translate.Group]*Job) {
	settled := map[string]*Job{}
	for _, j := range byGroup {
		if j.Reason == "Victims" {
			settled[j.group.Job()] = j
		}
	}
	if len(settled) == 0 {
		return
	}
	for _, v := range byGroup {
		for _, p := range v.pods {
			if p.phase != leaving {
				continue
			}
			job := settled[p.disrupted[strings.LastIndexByte(p.disrupted, ' ')+1:]]
			if job != nil && (job.Start == nil || p.deadline.After(*job.Start)) {
				job.Start, job.Settled = &p.deadline, true
			}
		}
	}
}

func (p *pod) line() PodLine {
	l := PodLine{
		Name: p.name, Task: cmp.Or(p.member.Role, translate.MainRole), Node: p.node, GPUs: v1alpha1.GPUs(p.gpus), Devices: p.devices,
		Since: p.created, Why: p.disrupted,
	}
	l.State = [...]string{"waiting", "withdrawn", "running", "leaving", "succeeded", "failed"}[p.phase]
	switch {
	case p.phase == waiting && p.reason != "":
		l.Why = p.reason + ": " + p.detail
	case p.moving != "":
		l.State, l.Why = "moving", p.moving
	case p.standby != "":
		l.State, l.Why = "standby", p.standby
	case p.paused != "":
		l.State, l.Why = "paused", p.paused
	case p.phase == failed && p.ended != Failed:
		l.State = p.ended.name()
	}
	if !p.started.IsZero() {
		l.Since = p.started
	}
	return l
}

// events reads what was said about a job and its pods, the latest last; nothing
// where the user may not read it.
func (c *Client) events(ctx context.Context, j *Job) ([]EventLine, error) {
	// Things of the same name that were there before are others.
	about := map[string]types.UID{j.Group: "", j.ID: ""}
	if len(j.pods) > 0 {
		about[j.ID] = j.pods[0].ownerUID
	}
	if j.podGroup != nil {
		about[j.Group] = j.podGroup.UID
	}
	// Pods that a Job had before are named as those that it has.
	before := regexp.MustCompile("^$")
	if name, ok := strings.CutPrefix(j.ID, "job/"); ok {
		before = regexp.MustCompile("^pod/" + regexp.QuoteMeta(name) + "(-[0-9]+)?-[a-z0-9]{5}$")
	}
	for _, p := range j.pods {
		about["pod/"+p.name] = p.uid
	}
	lines := []EventLine{}
	err := pages(ctx, metav1.ListOptions{}, c.kube.CoreV1().Events(j.Namespace).List, func() { lines = lines[:0] }, func(l *v1.EventList) {
		for i := range l.Items {
			e := &l.Items[i]
			object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
			if uid, ok := about[object]; ok && uid != "" && e.InvolvedObject.UID != "" && uid != e.InvolvedObject.UID || !ok && !before.MatchString(object) {
				continue
			}
			line := EventLine{Count: max(1, e.Count), Object: object, Type: e.Type, Reason: e.Reason, Message: e.Message}
			for _, t := range []time.Time{e.CreationTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time} {
				if t.After(line.Last) {
					line.Last = t
				}
			}
			if s := e.Series; s != nil {
				line.Count, line.Last = max(line.Count, s.Count), s.LastObservedTime.Time
			}
			if !line.Last.Before(j.Created) {
				lines = append(lines, line)
			}
		}
	})
	if err != nil && !optional(err) {
		return nil, c.say("list the events of namespace "+j.Namespace, err)
	}
	slices.SortStableFunc(lines, func(a, b EventLine) int { return a.Last.Compare(b.Last) })
	return lines, nil
}

// few is how many pods and events are written unless all are asked for.
const few = 12

// Write writes the explanation for people to read.
func (x *Explanation) Write(w io.Writer, v *View) error {
	t := &table.Table{Align: "ll"}
	t.Add("Job", x.Namespace+"/"+x.ID+", "+x.State.name())
	if x.ID != x.Group {
		t.Add("Pods in", x.Group)
	}
	t.Add("Queue", x.queueLine())
	t.Add("Kind", fmt.Sprintf("%s %s, priority %d", x.Class, x.Kind, x.Priority))
	size := fmt.Sprintf("GPUs: %s, tasks running: %s", x.GPUs, x.tasks())
	if x.Gang > 0 {
		size += ", gang running: " + x.gang()
	}
	t.Add("Size", size)
	t.Add("Created", fmt.Sprintf("%s, %s ago", table.Stamp(x.Created), table.Span(v.Now.Sub(x.Created))))
	if x.Estimate != "" {
		t.Add("Estimate", x.Estimate)
	}
	if x.Started != nil {
		t.Add("Started", fmt.Sprintf("%s, %s ago", table.Stamp(*x.Started), table.Span(v.Now.Sub(*x.Started))))
	}
	if x.Ended != nil {
		t.Add("Ended", fmt.Sprintf("%s, %s ago", table.Stamp(*x.Ended), table.Span(v.Now.Sub(*x.Ended))))
	}
	if len(x.Nodes) > 0 {
		t.Add("Nodes", fmt.Sprintf("%d: %s", len(x.Nodes), hostlist.Format(x.Nodes)))
	}
	if x.Reason != "" {
		t.Add("Waits for", table.Span(x.waited(v.Now)))
		t.Add("Reason", fmt.Sprintf("%s (%s): %s", x.Reason, x.Code, x.Detail))
		if x.Turn != "" {
			t.Add("Turn", x.Turn)
		}
		if x.Ahead >= 0 {
			t.Add("Ahead", "waiting jobs before it: "+core.AheadText(x.Ahead))
		}
		switch {
		case x.Settled:
			t.Add("Starts by", table.Stamp(*x.Start))
		case x.Evicts != "":
			t.Add("Starts", "soon after "+table.Stamp(*x.Start)+", when it evicts "+x.Evicts)
		case x.Start != nil:
			t.Add("Starts", table.Stamp(*x.Start)+", if running jobs end within their walltimes")
		case x.NoStart != "":
			t.Add("Starts", "unknown: "+x.NoStart)
		}
		t.Add("To change", x.Change)
		for i, place := range x.Nearest {
			t.Add([]string{"Nearest", ""}[min(i, 1)], place)
		}
	}
	if err := t.Write(w, v.Screen); err != nil {
		return err
	}
	if err := x.writePods(w, v); err != nil {
		return err
	}
	return x.writeEvents(w, v)
}

// queueLine names the queue and says what it owns and uses.
func (x *Explanation) queueLine() string {
	line := x.Queue
	if x.Usage == nil || len(x.Usage.Conditions) == 0 {
		return line // the user may not see it, or the scheduler has said nothing yet
	}
	line += fmt.Sprintf(", jobs waiting: %d, running: %d", x.Usage.PendingJobs, x.Usage.RunningJobs)
	if t := x.Usage.GPUTime; t != nil {
		line += fmt.Sprintf("; GPU-hours received: %s, deserved: %s, index %s", t.Received, t.Deserved, t.Index)
	}
	for _, u := range x.Usage.Usage {
		line += fmt.Sprintf("; %s: %s of %s used", u.Model, u.Used, u.Nominal)
		if u.Borrowed > 0 {
			line += fmt.Sprintf(", %s borrowed", u.Borrowed)
		}
	}
	return line
}

func (x *Explanation) writePods(w io.Writer, v *View) error {
	pods, more := x.Pods, 0
	if !v.Wide && len(pods) > few {
		// Those that wait say most, then those that leave.
		pods = slices.Clone(pods)
		slices.SortStableFunc(pods, func(a, b PodLine) int { return cmp.Compare(telling(a), telling(b)) })
		more = len(pods) - few
		pods = pods[:few]
	}
	if len(pods) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	err := list(w, v, []column[*PodLine]{
		{name: "POD", text: func(p *PodLine) string { return p.Name }},
		{name: "TASK", text: func(p *PodLine) string { return p.Task }},
		{name: "STATE", text: func(p *PodLine) string { return p.State }},
		{name: "NODE", text: func(p *PodLine) string { return cmp.Or(p.Node, "-") }},
		{name: "GPUS", right: true, text: func(p *PodLine) string { return p.GPUs.String() }},
		{name: "DEVICES", text: func(p *PodLine) string { return cmp.Or(p.Devices, "-") }},
		{name: "SINCE", right: true, text: func(p *PodLine) string { return table.Span(v.Now.Sub(p.Since)) }},
		{name: "WHY", text: func(p *PodLine) string {
			if strings.HasPrefix(p.Why, x.Reason+": "+x.Detail) {
				return cmp.Or(x.Reason, "-") // the rest is said above
			}
			return cmp.Or(p.Why, "-")
		}},
	}, pointers(pods))
	if err == nil && more > 0 {
		_, err = fmt.Fprintf(w, "and %d more; -o wide lists all\n", more)
	}
	return err
}

// telling says how much is to be learned from a pod: 0 for most.
func telling(p PodLine) int {
	switch p.State {
	case "waiting":
		return 0
	case "leaving", "moving", "standby", "paused":
		return 1
	case "running":
		return 2
	}
	return 3
}

func (x *Explanation) writeEvents(w io.Writer, v *View) error {
	events := x.Events
	if !v.Wide {
		events = together(events)
		events = events[max(0, len(events)-few):]
	}
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return list(w, v, []column[*EventLine]{
		{name: "LAST", right: true, text: func(e *EventLine) string { return table.Span(v.Now.Sub(e.Last)) }},
		{name: "TIMES", right: true, text: func(e *EventLine) string { return strconv.Itoa(int(e.Count)) }},
		{name: "ABOUT", text: func(e *EventLine) string {
			if e.Object == x.Group && x.Group != x.ID {
				return string(x.group.Kind) // its name is long, and made up
			}
			return e.Object
		}},
		{name: "EVENT", text: func(e *EventLine) string { return e.Reason }},
		{name: "MESSAGE", text: func(e *EventLine) string { return e.Message }},
	}, pointers(events))
}

// together puts events that say the same of several objects into one.
func together(events []EventLine) []EventLine {
	type said struct{ reason, message string }
	objects := map[said]int{}
	var out []EventLine
	for _, e := range slices.Backward(events) { // the latest stays
		s := said{e.Reason, e.Message}
		objects[s]++
		if i := slices.IndexFunc(out, func(o EventLine) bool { return o.Reason == e.Reason && o.Message == e.Message }); i >= 0 {
			out[i].Count += e.Count
			out[i].Object = fmt.Sprintf("%d objects", objects[s])
			continue
		}
		out = append(out, e)
	}
	slices.Reverse(out)
	return out
}
