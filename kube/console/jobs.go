package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/translate"
)

// Job is the pods that the scheduler takes for one job. Its fields are what
// -o json prints: keys are added, never renamed.
type Job struct {
	// ID is kind/name of the group of pods or, where the PodGroups of an object
	// are but one, of that object.
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	// Group is kind/name of the group: with the namespace, it is what the
	// scheduler calls the job.
	Group    string `json:"group"`
	Queue    string `json:"queue"`
	Kind     string `json:"kind"`
	Class    string `json:"class"`
	Priority int32  `json:"priority"`
	State    State  `json:"state"`
	// Reason, Code and Detail say why pods wait; empty when none does.
	Reason string `json:"reason,omitempty"`
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
	// ExitCode is that of the first pod that failed, of a job that did; 0 if it is not known.
	ExitCode int32 `json:"exit_code,omitempty"`
	// Hardware says of a job that runs which of its nodes are not ready, or have GPUs that are not healthy.
	Hardware string `json:"hardware,omitempty"`
	// GPUs is what its pods ask for, but for those that ended; once all have, what
	// those had that ended well or, if none did, all.
	GPUs v1alpha1.GPUs `json:"gpus"`
	// Gang is how many pods must run together, 0 when it is no gang or not said
	// by pods and PodGroup.
	Gang  int      `json:"gang"`
	Tasks []Task   `json:"tasks"`
	Nodes []string `json:"nodes"`
	// Created is when the Job that makes its pods was made or, without one, the
	// oldest of them. Started is when the first of those that run was bound, Ended
	// when the last ended.
	Created time.Time  `json:"created"`
	Started *time.Time `json:"started,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
	// Start is when it is expected to start, where that is known. Settled says that
	// it has its places, and that the pods on them must leave by then; else jobs
	// that run are taken to end by their walltimes. NoStart says why it is not known.
	Start   *time.Time `json:"expected_start,omitempty"`
	Settled bool       `json:"settled,omitempty"`
	NoStart string     `json:"no_expected_start,omitempty"`
	// Evicts names the jobs that it evicts at Start, when they have run for their minimum time.
	Evicts string `json:"evicts,omitempty"`

	pods     []*pod
	live     bool // not all of them ended
	group    translate.Group
	podGroup *schedulingv1beta1.PodGroup
	made     *batchv1.Job // that made its pods
	class    string       // the PriorityClass that a label names
	nearest  []string     // what would free the nearest places
}

// Task is the pods of one role.
type Task struct {
	Name    string `json:"name"`
	Pods    int    `json:"pods"`
	Running int    `json:"running"`
	Waiting int    `json:"waiting"`
	Leaving int    `json:"leaving,omitempty"`
	// Moving are those of Running that are to leave a node which is drained.
	Moving int `json:"moving,omitempty"`
	Ended  int `json:"ended,omitempty"`
}

// Filter says which jobs to list.
type Filter struct {
	// Namespace is empty for all.
	Namespace string
	// Queues are those to list, all when there are none.
	Queues []string
	// States are those to list; when there are none, those of jobs that are not
	// over.
	States []State
}

// Jobs lists the jobs that the filter picks: by queue, state, priority and age.
func (c *Client) Jobs(ctx context.Context, f Filter) ([]Job, error) {
	byGroup := map[translate.Group]*Job{}
	fields := ours
	if !over(f.States) {
		fields += "," + live
	}
	err := c.listPods(ctx, f.Namespace, fields, func() { clear(byGroup) }, func(p *v1.Pod) { gather(byGroup, p) })
	if err != nil {
		return nil, err
	}
	if err := c.complete(ctx, f.Namespace, byGroup); err != nil {
		return nil, err
	}
	expect(byGroup)
	all := make([]Job, 0, len(byGroup))
	for _, j := range byGroup {
		if (len(f.Queues) == 0 || slices.Contains(f.Queues, j.Queue)) && (len(f.States) == 0 || slices.Contains(f.States, j.State)) {
			all = append(all, *j)
		}
	}
	slices.SortFunc(all, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State.rank(), b.State.rank()), -cmp.Compare(a.Priority, b.Priority),
			a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// gather puts a pod into its job.
func gather(byGroup map[translate.Group]*Job, p *v1.Pod) {
	t := trim(p)
	j := byGroup[t.member.Group]
	if j == nil {
		id := t.member.Group.String()
		j = &Job{ID: id, Group: id, Namespace: t.namespace, group: t.member.Group}
		byGroup[t.member.Group] = j
	}
	j.pods = append(j.pods, &t)
}

// complete finishes jobs whose pods are there: with what PodGroups, owners and
// namespaces say.
func (c *Client) complete(ctx context.Context, namespace string, byGroup map[translate.Group]*Job) error {
	ran := map[translate.Group]bool{} // owners of PodGroups that were scheduled once
	err := pages(ctx, metav1.ListOptions{}, c.kube.SchedulingV1beta1().PodGroups(namespace).List, func() {}, func(l *schedulingv1beta1.PodGroupList) {
		for i := range l.Items {
			g := &l.Items[i]
			if j := byGroup[translate.Group{Namespace: g.Namespace, Kind: translate.ByPodGroup, Name: g.Name}]; j != nil {
				j.podGroup = g
			}
			if o := metav1.GetControllerOf(g); o != nil && meta.IsStatusConditionTrue(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled) {
				ran[translate.Group{Namespace: g.Namespace, Kind: translate.OwnerKind(o.APIVersion, o.Kind), Name: o.Name}] = true
			}
		}
	})
	if err != nil && !optional(err) {
		return c.say("list PodGroups", err)
	}
	owners := map[translate.Group]*batchv1.Job{}
	err = pages(ctx, metav1.ListOptions{}, c.kube.BatchV1().Jobs(namespace).List, func() {}, func(l *batchv1.JobList) {
		for i := range l.Items {
			if o := &l.Items[i]; o.Spec.Template.Spec.SchedulerName == v1alpha1.SchedulerName {
				owners[translate.Group{Namespace: o.Namespace, Kind: "job", Name: o.Name}] = o
			}
		}
	})
	if err != nil && !optional(err) {
		return c.say("list Jobs", err)
	}
	queues, err := c.namespaceQueues(ctx, namespace, len(owners) > 0 || lacksQueue(byGroup))
	if err != nil {
		return err
	}
	for _, j := range byGroup {
		if name, ok := strings.CutPrefix(j.pods[0].owner, "job/"); ok {
			j.made = owners[translate.Group{Namespace: j.Namespace, Kind: "job", Name: name}]
		}
		j.describe(queues)
	}
	if err := c.prioritize(ctx, byGroup); err != nil {
		return err
	}
	rename(byGroup)
	own(byGroup, owners, ran, queues)
	if err := c.notCreated(ctx, namespace, byGroup); err != nil {
		return err
	}
	return c.onHardware(ctx, byGroup)
}

// prioritize gives jobs the priority of the class that a label of theirs names.
func (c *Client) prioritize(ctx context.Context, byGroup map[translate.Group]*Job) error {
	classes := map[string]int32{}
	for _, j := range byGroup {
		if j.class == "" || j.podGroup != nil && j.podGroup.Spec.PriorityClassName != "" {
			continue
		}
		if len(classes) == 0 {
			l, err := c.kube.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
			if optional(err) {
				return nil
			}
			if err != nil {
				return c.say("list PriorityClasses", err)
			}
			for i := range l.Items {
				classes[l.Items[i].Name] = l.Items[i].Value
			}
		}
		if value, ok := classes[j.class]; ok && translate.MayNameClass(j.class, j.Namespace) {
			j.Priority = value
		}
	}
	return nil
}

// rename gives PodGroups and gangs that an object made, such as a Job, the name of that
// object, unless it made several.
func rename(byGroup map[translate.Group]*Job) {
	owned := map[string][]*Job{}
	for _, j := range byGroup {
		if (j.group.Kind == translate.ByPodGroup || j.group.Kind == translate.ByGang) && j.pods[0].owner != "" {
			id := j.Namespace + "/" + j.pods[0].owner
			owned[id] = append(owned[id], j)
		}
	}
	for _, list := range owned {
		if len(list) == 1 {
			list[0].ID = list[0].pods[0].owner
		}
	}
}

// lacksQueue reports whether any job names no queue.
func lacksQueue(byGroup map[translate.Group]*Job) bool {
	for _, j := range byGroup {
		if j.attributes().Queue == "" {
			return true
		}
	}
	return false
}

// namespaceQueues returns the queues that namespaces name, if they are needed
// and the user may read them.
func (c *Client) namespaceQueues(ctx context.Context, namespace string, needed bool) (map[string]string, error) {
	queues := map[string]string{}
	if !needed {
		return queues, nil
	}
	if namespace != "" {
		n, err := c.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil {
			queues[namespace] = translate.NamespaceQueue(n.Labels)
		} else if !optional(err) {
			return nil, c.say("get namespace "+namespace, err)
		}
		return queues, nil
	}
	err := pages(ctx, metav1.ListOptions{}, c.kube.CoreV1().Namespaces().List, func() {}, func(l *v1.NamespaceList) {
		for i := range l.Items {
			queues[l.Items[i].Name] = translate.NamespaceQueue(l.Items[i].Labels)
		}
	})
	if err != nil && !optional(err) {
		return nil, c.say("list namespaces", err)
	}
	return queues, nil
}

// attributes returns the attributes of the job: from its first pod, the Job that created
// it, and its PodGroup.
func (j *Job) attributes() translate.Attributes {
	a := j.pods[0].attributes
	if j.made != nil {
		var b translate.Attributes
		_ = b.Read(j.made)
		a = a.Over(&b)
	}
	if j.podGroup != nil {
		var b translate.Attributes
		_ = b.Read(j.podGroup)
		a = a.Over(&b)
	}
	return a
}

// describe fills in a job from its pods.
func (j *Job) describe(namespaceQueues map[string]string) {
	slices.SortFunc(j.pods, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(len(a.name), len(b.name)), cmp.Compare(a.name, b.name))
	})
	first, a := j.pods[0], j.attributes()
	j.class = a.PriorityClass
	j.Queue = cmp.Or(a.Queue, namespaceQueues[j.Namespace], queues.Default)
	kind := first.member.Kind
	if a.KindGiven {
		kind = a.Kind
	}
	j.Kind, j.Class, j.Priority = kind.String(), a.Class.String(), first.priority
	for _, p := range j.pods {
		j.Gang = max(j.Gang, p.member.Minimum())
	}
	if g := j.podGroup; g != nil {
		if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
			j.Gang = int(gang.MinCount)
		}
		if g.Spec.Priority != nil {
			j.Priority = *g.Spec.Priority
		}
	}
	if j.Gang == 1 {
		j.Gang = 0
	}
	j.count()
	switch j.State = j.state(); j.State {
	case NodeFailed:
		j.Code = "NodeDown"
	case Failed:
		j.howEnded()
	}
	if slices.ContainsFunc(j.pods, func(p *pod) bool { return p.phase == waiting }) {
		j.whyWaiting()
	}
}

// howEnded fills in the exit code of the pod that failed first: the others were ended because of it.
func (j *Job) howEnded() {
	var first *pod
	for _, p := range j.pods {
		if p.phase == failed && p.exit != 0 && (first == nil || p.over.Before(first.over)) {
			first = p
		}
	}
	if first == nil {
		return
	}
	j.ExitCode, j.Code, j.Reason = first.exit, "NonZeroExitCode", fmt.Sprintf("exit code %d", first.exit)
	if first.how == "OOMKilled" {
		j.Code, j.Reason = "OutOfMemory", j.Reason+", OOMKilled"
	}
	j.Detail = "pod " + first.name
}

// count fills in what is summed over the pods.
func (j *Job) count() {
	tasks := map[string]*Task{}
	nodes := map[string]bool{}
	var gpus [failed + 1]core.Milli // by phase
	for _, p := range j.pods {
		gpus[p.phase] += p.gpus
		name := cmp.Or(p.member.Role, translate.MainRole)
		t := tasks[name]
		if t == nil {
			t = &Task{Name: name}
			tasks[name] = t
		}
		t.Pods++
		switch p.phase {
		case waiting:
			t.Waiting++
		case running:
			t.Running++
			if p.moving != "" {
				t.Moving++
			}
		case leaving:
			t.Leaving++
		default:
			t.Ended++
		}
		if p.phase == running || p.phase == leaving {
			nodes[p.node] = true
		}
		if j.Created.IsZero() || p.created.Before(j.Created) {
			j.Created = p.created
		}
		if !p.started.IsZero() && (j.Started == nil || p.started.Before(*j.Started)) {
			j.Started = &p.started
		}
		if !p.over.IsZero() && (j.Ended == nil || p.over.After(*j.Ended)) {
			j.Ended = &p.over
		}
	}
	if j.live = slices.ContainsFunc(j.pods, func(p *pod) bool { return p.phase < succeeded }); j.live {
		j.Ended = nil
	}
	j.GPUs = v1alpha1.GPUs(cmp.Or(gpus[waiting]+gpus[withdrawn]+gpus[running]+gpus[leaving], gpus[succeeded], gpus[failed]))
	j.Nodes = sorted(nodes)
	for _, name := range sorted(tasks) {
		j.Tasks = append(j.Tasks, *tasks[name])
	}
}

// sorted returns the keys in order.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// has counts the pods of the phase.
func (j *Job) has(phase podPhase) int {
	n := 0
	for _, p := range j.pods {
		if p.phase == phase {
			n++
		}
	}
	return n
}

// state tells where a job stands from where its pods do.
func (j *Job) state() State {
	switch {
	case j.has(running) > 0:
		return Running
	case j.has(waiting) > 0 && j.has(leaving) > 0:
		return Requeued
	case j.has(waiting) > 0:
		for _, p := range j.pods {
			if p.phase == waiting && (p.reason == core.BackOff.String() || p.reason == core.MemberLost.String()) {
				return Requeued
			}
		}
		return Pending
	case j.has(leaving) > 0:
		if slices.ContainsFunc(j.pods, func(p *pod) bool { return p.phase == leaving && p.ended == Preempted }) {
			return Preempted
		}
		return Completing
	}
	for _, s := range []State{TimedOut, NodeFailed, Preempted, Failed} {
		if slices.ContainsFunc(j.pods, func(p *pod) bool { return p.ended == s }) {
			return s
		}
	}
	if j.has(succeeded) > 0 {
		return Completed
	}
	return Cancelled
}

// whyWaiting takes over what the scheduler says about the pods that wait.
func (j *Job) whyWaiting() {
	name, detail := NotSeen, "the scheduler has not reported on it yet"
	if slices.ContainsFunc(j.pods, func(p *pod) bool { return p.phase == waiting && p.gated }) {
		name, detail = Gated, "its pods have scheduling gates of other controllers"
	}
	var told bool
	if j.podGroup != nil {
		if k := meta.FindStatusCondition(j.podGroup.Status.Conditions, v1alpha1.WaitingCondition); k != nil && k.Status == metav1.ConditionTrue {
			name, detail, told = k.Reason, k.Message, true
		}
	}
	var since time.Time
	for _, p := range j.pods {
		// The scheduler writes new numbers on the first pod alone.
		if p.phase == waiting && p.reason != "" && !told && p.since.After(since) {
			name, detail, since = p.reason, p.detail, p.since
		}
	}
	r := reasonOf(name)
	if text, places, ok := strings.Cut(detail, translate.NearestMark); ok {
		detail, j.nearest = text, strings.Split(places, translate.NearestSeparator)
	}
	detail, ran := strings.CutSuffix(detail, translate.RequeuedMark)
	ran = ran || j.podGroup != nil && meta.IsStatusConditionTrue(j.podGroup.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
	if ran && j.State == Pending {
		j.State = Requeued
	}
	if text, queue, ok := strings.Cut(detail, translate.QueueMark); ok {
		detail, j.Queue = text, queue
	}
	if text, evicts, ok := strings.Cut(detail, translate.EvictsMark); ok {
		at, who, _ := strings.Cut(evicts, translate.EvictsSeparator)
		if t, err := time.Parse(time.RFC3339, at); err == nil {
			detail, j.Start, j.Evicts = text, &t, who
		}
	} else if text, at, ok := strings.Cut(detail, translate.StartMark); ok {
		if t, err := time.Parse(time.RFC3339, at); err == nil {
			detail, j.Start = text, &t
		}
	} else if text, why, ok := strings.Cut(detail, translate.NoStartMark); ok {
		detail, j.NoStart = text, why
	}
	j.Reason, j.Code, j.Detail = r.Name, r.Code, detail
	if j.State == Pending || j.State == Requeued {
		j.Started = nil
	}
}

// gang says how much of a gang runs, as "3 of 4"; "-" when it is none.
func (j *Job) gang() string {
	if j.Gang == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", j.has(running), j.Gang)
}

// tasks says what runs of each role.
func (j *Job) tasks() string {
	var parts []string
	for _, t := range j.Tasks {
		part := fmt.Sprintf("%s %d/%d", t.Name, t.Running, t.Pods-t.Ended)
		if t.Moving > 0 {
			part += fmt.Sprintf(" (moving: %d)", t.Moving)
		}
		parts = append(parts, part)
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}
