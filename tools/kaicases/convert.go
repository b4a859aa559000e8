package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// How a case becomes a snapshot:
//
//   - Memory is counted in MB (10^6 bytes) instead of MiB on nodes, in requests and in quotas alike; in bytes, if a node
//     has less than that. What a node and a pod have that do not say is what KAI's tests give them.
//   - A job is a gang of priority as in KAI. Of priority 100 and above it cannot be evicted, unless it says so. A
//     minimum is minPods. A job is a minute older than the next one, first those of higher priority.
//   - What a queue deserves is its nominal quota, its limit the borrowing limit. In KAI a queue shares what it deserves
//     with those above it: a queue above owns what is left of it, and where it deserves less than those below they own
//     less in proportion. If some queue is limited in CPU or memory, a queue that is not, nor one above it, owns all that
//     the nodes have. Weights are whole numbers.
//   - A pod that is leaving as the case begins also waits, as KAI's tests let it come back, unless it is leaving in the end.

// What KAI's tests give to nodes and pods.
const (
	nodeCores, nodeMB = 20000, 20000
	podCores, podMB   = 1, 1000
	gpuMB             = 100
)

// nodeKey is the label of nodes by which the pods of KAI's tests name them.
const nodeKey = "kai.scheduler/type"

type snapshot struct {
	Topology struct {
		Levels []string `json:"levels,omitempty"`
	} `json:"topology"`
	Nodes  []node  `json:"nodes"`
	Queues []queue `json:"queues"`
	Jobs   []job   `json:"jobs"`
}

type node struct {
	Name     string            `json:"name"`
	Model    string            `json:"model,omitempty"`
	GPUs     int               `json:"gpus"`
	CPUMilli int64             `json:"cpuMilli"`
	MemMiB   int64             `json:"memMiB"`
	Labels   map[string]string `json:"labels"`

	gpuMB float64
	group map[string]int // the GPU of a group of pods that share one
	taken int            // GPUs
}

type job struct {
	Name         string   `json:"name"`
	Queue        string   `json:"queue"`
	Priority     int      `json:"priority"`
	Gang         bool     `json:"gang"`
	Preemptible  bool     `json:"preemptible"`
	SubmittedAgo int      `json:"submittedAgo"` // seconds
	StaleFor     int      `json:"staleFor,omitempty"`
	StaleGrace   int      `json:"staleGrace,omitempty"`
	Topology     request  `json:"topology"`
	Tasks        []*group `json:"tasks"`
}

type request struct {
	Required  string `json:"required,omitempty"`
	Preferred string `json:"preferred,omitempty"`
}

// group are the pods of a job that are alike.
type group struct {
	Name             string       `json:"name,omitempty"`
	Pods             int          `json:"pods"` // without those that do not come back
	MinPods          int          `json:"minPods,omitempty"`
	GPUMilli         int64        `json:"gpuMilli"`
	CPUMilli         int64        `json:"cpuMilli"`
	MemMiB           int64        `json:"memMiB"`
	MatchExpressions []expression `json:"matchExpressions,omitempty"`
	Labels           []string     `json:"labels,omitempty"`
	Affinity         []affinity   `json:"affinity,omitempty"`
	Running          []running    `json:"running,omitempty"`
	Leaving          []running    `json:"leaving,omitempty"`

	set   string   // the group of pods that the case names, "" for none
	want  int      // pods that run in the end
	nodes []string // where, of those that the case says
	said  bool     // the case says what becomes of them
}

type expression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

type affinity struct {
	Level string `json:"level"`
	Label string `json:"label"`
	Anti  bool   `json:"anti,omitempty"`
}

type running struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	GPUs []int  `json:"gpus,omitempty"`
}

// converted is a case as a snapshot, with what is expected in the groups of its jobs.
type converted struct {
	snapshot
	deserved map[string]float64 // GPUs by queue
	unit     float64            // of memory, in bytes
	body     fields
}

// The fields of KAI's types that matter here, and those that do not change what is decided. A case that sets
// another one is outside.
var (
	caseFields = []string{"Name", "Jobs", "Nodes", "Queues", "Departments", "JobExpectedResults", "TaskExpectedResults",
		"ExpectedNodesResources", "Mocks", "Topologies", "DisableDefaultDepartment"}
	nodeFields = []string{"GPUs", "GPUName", "CPUMemory", "CPUMillis", "GPUMemory", "Labels"}
	jobFields  = []string{"Name", "Namespace", "QueueName", "Priority", "Preemptibility", "RequiredGPUsPerTask",
		"RequiredGpuMemory", "RequiredCPUsPerTask", "RequiredMemoryPerTask", "IsBestEffortJob", "JobAgeInMinutes",
		"MinAvailable", "RootSubGroupSet", "StaleDuration", "DeleteJobInTest", "Tasks"}
	taskFields = []string{"Name", "State", "NodeName", "GPUGroups", "SubGroupName", "RequiredGPUs", "NodeAffinityNames",
		"PodAffinityLabels", "PodAffinityTopologyKey", "PodAntiAffinityTopologyKey", "Priority"}
)

// only returns an error that names a field of f that is set and not known, or that is not evaluated.
func only(f fields, known []string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		switch v := f[name].(type) {
		case nil, unknown:
			if v != nil {
				return fmt.Errorf("%s is %v", name, v)
			}
			continue
		case bool:
			if !v {
				continue
			}
		case float64:
			if v == 0 {
				continue
			}
		}
		if !slices.Contains(known, name) {
			return fmt.Errorf("it sets %s", name)
		}
	}
	return nil
}

func number(f fields, name string) float64 {
	v, _ := f[name].(float64)
	return v
}

func text(f fields, name string) string {
	v, _ := f[name].(string)
	return v
}

func texts(f fields, name string) []string {
	var all []string
	list, _ := f[name].([]any)
	for _, v := range list {
		s, _ := v.(string)
		all = append(all, s)
	}
	return all
}

// each returns the structs of a list.
func each(f fields, name string) []fields {
	var all []fields
	list, _ := f[name].([]any)
	for _, v := range list {
		if s, ok := v.(fields); ok {
			all = append(all, s)
		}
	}
	return all
}

// literal returns an error if a field is not a list of literals.
func literal(f fields, names ...string) error {
	for _, name := range names {
		if list, ok := f[name].([]any); !ok || len(each(f, name)) != len(list) {
			return fmt.Errorf("%s are made by code", strings.ToLower(name))
		}
	}
	return nil
}

// convert returns the case as a snapshot, or an error that says why it is outside.
func convert(f *found) (*converted, error) {
	if err := only(f.body, caseFields); err != nil {
		return nil, err
	}
	if mocks, ok := f.body["Mocks"].(fields); ok && mocks["SchedulerConf"] != nil {
		return nil, errors.New("it changes the configuration of the scheduler")
	}
	if err := literal(f.body, "Jobs", "Queues"); err != nil {
		return nil, err
	}
	c := &converted{body: f.body}
	for _, t := range each(f.body, "Topologies") {
		if len(c.Topology.Levels) > 0 {
			return nil, errors.New("it has several topologies")
		}
		spec, _ := t["Spec"].(fields)
		for _, l := range each(spec, "Levels") {
			if label := level(text(l, "NodeLabel")); label != "node" {
				c.Topology.Levels = append(c.Topology.Levels, label)
			}
		}
	}
	if err := c.addNodes(f.body); err != nil {
		return nil, err
	}
	if err := c.addQueues(f.body); err != nil {
		return nil, err
	}
	if err := c.addJobs(f); err != nil {
		return nil, err
	}
	if err := c.expect(f.body); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(c.Jobs, func(j job) bool { return slices.ContainsFunc(j.Tasks, func(g *group) bool { return g.said }) }) {
		return nil, errors.New("it expects nothing of any job")
	}
	return c, nil
}

// level returns the level that a label of nodes is.
func level(label string) string {
	if label == "kubernetes.io/hostname" {
		return "node"
	}
	return label
}

func (c *converted) addNodes(body fields) error {
	nodes, ok := body["Nodes"].(fields)
	if !ok {
		return errors.New("nodes are made by code")
	}
	c.unit = 1e6
	for _, v := range nodes {
		if f, ok := v.(fields); ok && number(f, "CPUMemory") > 0 && number(f, "CPUMemory") < c.unit {
			c.unit = 1
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		f, ok := nodes[name].(fields)
		if !ok {
			return fmt.Errorf("node %s is not a literal", name)
		}
		if err := only(f, nodeFields); err != nil {
			return err
		}
		n := node{Name: name, GPUs: int(number(f, "GPUs")), CPUMilli: int64(1000 * cmp.Or(number(f, "CPUMillis"), nodeCores)),
			MemMiB: int64(cmp.Or(number(f, "CPUMemory"), nodeMB*1e6) / c.unit), Labels: map[string]string{nodeKey: name}, gpuMB: cmp.Or(number(f, "GPUMemory"), gpuMB), group: map[string]int{}}
		if n.GPUs > 0 {
			n.Model = cmp.Or(text(f, "GPUName"), "G")
		}
		labels, _ := f["Labels"].(fields)
		for key, v := range labels {
			if key == "NodeAffinityKey" { // the name of KAI's constant
				key = nodeKey
			}
			n.Labels[key], _ = v.(string)
		}
		c.Nodes = append(c.Nodes, n)
	}
	return nil
}

func (c *converted) addJobs(f *found) error {
	jobs := each(f.body, "Jobs")
	slices.SortStableFunc(jobs, func(a, b fields) int { return cmp.Compare(number(b, "Priority"), number(a, "Priority")) })
	for i, j := range jobs {
		if err := only(j, jobFields); err != nil {
			return err
		}
		priority := int(number(j, "Priority"))
		made := job{Name: text(j, "Name"), Queue: text(j, "QueueName"), Priority: priority, Gang: true, Preemptible: priority < 100,
			SubmittedAgo: 60 * int(cmp.Or(number(j, "JobAgeInMinutes"), float64(len(jobs)-i)))}
		switch p, _ := j["Preemptibility"].(symbol); p {
		case "Preemptible":
			made.Preemptible = true
		case "NonPreemptible":
			made.Preemptible = false
		case "SemiPreemptible":
			return errors.New("a job is preemptible beyond its minimum only")
		}
		sets, err := made.subGroups(j)
		if err != nil {
			return err
		}
		if err := c.addTasks(&made, j, sets); err != nil {
			return err
		}
		c.Jobs = append(c.Jobs, made)
	}
	if err := c.run(jobs); err != nil {
		return err
	}
	if strings.Contains(f.file, "stalegang") {
		for i, j := range jobs {
			c.Jobs[i].stale(number(j, "StaleDuration"))
		}
	}
	return nil
}

// stale marks a gang that runs with too few pods. KAI gives it a minute; where the case does not say for how long
// the gang is one, it has been for longer.
func (j *job) stale(seconds float64) {
	for _, g := range j.Tasks {
		if least := cmp.Or(g.MinPods, g.Pods); len(g.Running) > 0 && len(g.Running) < least {
			j.StaleGrace, j.StaleFor = 60, int(cmp.Or(seconds, 120))
		}
	}
}

// subGroups returns the minimum of each group of pods that the job names, "" for those in none.
func (j *job) subGroups(f fields) (map[string]int, error) {
	sets := map[string]int{}
	if n := number(f, "MinAvailable"); n > 0 {
		sets[""] = int(n)
	}
	tops := 0
	var walk func(v any) error
	walk = func(v any) error {
		c, ok := v.(call)
		if !ok {
			return nil
		}
		switch {
		case c.name == "DefaultSubGroup" && len(c.args) == 1:
			n, _ := c.args[0].(float64)
			sets[""] = int(n)
		case c.name == "NewPodSet" && len(c.args) == 3:
			if c.args[2] != nil {
				return errors.New("a group of pods in a job has a topology of its own")
			}
			name, _ := c.args[0].(string)
			n, _ := c.args[1].(float64)
			sets[name] = int(n)
		case c.name == "NewSubGroupSet" && len(c.args) == 2:
			if tops++; tops > 1 {
				return errors.New("a job has groups of groups of pods")
			}
			if t, ok := c.args[1].(fields); ok {
				j.Topology = request{Required: level(text(t, "RequiredLevel")), Preferred: level(text(t, "PreferredLevel"))}
			}
		}
		for _, a := range c.args {
			if err := walk(a); err != nil {
				return err
			}
		}
		return nil
	}
	return sets, walk(f["RootSubGroupSet"])
}

// addTasks adds the pods of a job, in groups of those that are alike.
func (c *converted) addTasks(made *job, j fields, sets map[string]int) error {
	if err := literal(j, "Tasks"); err != nil {
		return err
	}
	for k, t := range each(j, "Tasks") {
		if err := only(t, taskFields); err != nil {
			return err
		}
		g, err := c.group(made, j, t)
		if err != nil {
			return err
		}
		if c.goes(made.Name, k, t) {
			g.Pods = 0
		}
		at := slices.IndexFunc(made.Tasks, func(o *group) bool { return o.same(g) })
		if at < 0 {
			made.Tasks = append(made.Tasks, g)
		} else {
			made.Tasks[at].Pods += g.Pods
		}
	}
	for i, g := range made.Tasks {
		least, ok := sets[g.set]
		if ok && least < g.Pods {
			if g.MinPods = least; least == 0 {
				return errors.New("a group of pods has no minimum")
			}
		}
		if len(made.Tasks) > 1 {
			g.Name = fmt.Sprintf("%s%d", g.Name, i)
		}
	}
	return nil
}

// same reports whether two pods are of one group.
func (g *group) same(o *group) bool {
	return g.set == o.set && g.GPUMilli == o.GPUMilli && g.CPUMilli == o.CPUMilli && g.MemMiB == o.MemMiB &&
		fmt.Sprint(g.MatchExpressions, g.Labels, g.Affinity) == fmt.Sprint(o.MatchExpressions, o.Labels, o.Affinity)
}

// group returns a group with one pod, t.
func (c *converted) group(made *job, j, t fields) (*group, error) {
	g := &group{Name: text(t, "SubGroupName"), set: text(t, "SubGroupName"), Pods: 1}
	if best, _ := j["IsBestEffortJob"].(bool); !best {
		g.CPUMilli = int64(math.Ceil(1000 * cmp.Or(number(j, "RequiredCPUsPerTask"), podCores)))
		g.MemMiB = int64(math.Ceil(cmp.Or(number(j, "RequiredMemoryPerTask"), podMB*1e6) / c.unit))
		g.GPUMilli = int64(math.Round(1000 * number(j, "RequiredGPUsPerTask")))
		if n, ok := t["RequiredGPUs"].(float64); ok {
			g.GPUMilli = int64(1000 * n)
		}
	}
	if mb := number(j, "RequiredGpuMemory"); mb > 0 {
		for _, n := range c.Nodes {
			if n.gpuMB != c.Nodes[0].gpuMB {
				return nil, errors.New("it requests memory of GPUs, of which nodes have different amounts")
			}
		}
		if g.GPUMilli = int64(math.Ceil(1000 * mb / c.Nodes[0].gpuMB)); g.GPUMilli > 1000 {
			return nil, errors.New("it requests more memory than a GPU has")
		}
	}
	if g.GPUMilli > 1000 && g.GPUMilli%1000 != 0 {
		return nil, errors.New("a pod requests a GPU and a part of one")
	}
	if names := texts(t, "NodeAffinityNames"); len(names) > 0 {
		g.MatchExpressions = []expression{{nodeKey, "In", names}}
	}
	labels, _ := t["PodAffinityLabels"].(fields)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		g.Labels = append(g.Labels, fmt.Sprintf("%s=%v", key, labels[key]))
	}
	if len(g.Labels) > 1 {
		return nil, errors.New("an affinity has several labels")
	}
	for _, x := range []struct {
		key  string
		anti bool
	}{{"PodAffinityTopologyKey", false}, {"PodAntiAffinityTopologyKey", true}} {
		if key := text(t, x.key); key != "" && len(g.Labels) > 0 {
			l := level(key)
			if l != "node" && !slices.Contains(c.Topology.Levels, l) {
				c.Topology.Levels = append(c.Topology.Levels, l)
			}
			g.Affinity = append(g.Affinity, affinity{l, g.Labels[0], x.anti})
		}
	}
	return g, nil
}

// run adds the running pods: first those that share a GPU with pods that the case names, then the others.
func (c *converted) run(jobs []fields) error {
	for _, shares := range []bool{true, false} {
		for i, j := range jobs {
			made := &c.Jobs[i]
			for k, t := range each(j, "Tasks") {
				g, pod, err := c.locate(made, j, t, k)
				if err != nil {
					return err
				}
				name := texts(t, "GPUGroups")
				switch s, _ := t["State"].(symbol); s {
				case "Running", "Bound", "Binding", "Allocated":
					if shared := g.GPUMilli < 1000 && len(name) > 0; shared == shares {
						err = c.place(g, &g.Running, pod, text(t, "NodeName"), name)
					}
				case "Releasing":
					if shared := g.GPUMilli < 1000 && len(name) > 0; shared == shares {
						err = c.place(g, &g.Leaving, pod+"-leaving", text(t, "NodeName"), name)
					}
				case "Pending", "Gated", "":
				default:
					err = fmt.Errorf("a pod is %s", s)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// locate returns the group of the k-th pod of a job, and the name of the pod here.
func (c *converted) locate(made *job, j, t fields, k int) (*group, string, error) {
	find := func(t fields) (int, error) {
		g, err := c.group(made, j, t)
		if err != nil {
			return 0, err
		}
		return slices.IndexFunc(made.Tasks, g.same), nil
	}
	at, err := find(t)
	if err != nil {
		return nil, "", err
	}
	before := 0
	for i := range at {
		before += made.Tasks[i].Pods
	}
	for i, o := range each(j, "Tasks") {
		if other, _ := find(o); i < k && other == at {
			before++
		}
	}
	return made.Tasks[at], fmt.Sprintf("%s-%d", made.Name, before), nil
}

// goes reports whether the k-th pod of a job is leaving, and is so in the end: it does not come back.
func (c *converted) goes(job string, k int, t fields) bool {
	want, _ := c.wanted(job, k)
	is, _ := t["State"].(symbol)
	ends, _ := want["Status"].(symbol)
	return is == "Releasing" && ends == "Releasing"
}

// wanted returns what the case expects of the k-th pod of a job, and whether it says anything of it.
func (c *converted) wanted(job string, k int) (fields, bool) {
	tasks, _ := c.body["TaskExpectedResults"].(fields)
	if want, ok := tasks[fmt.Sprintf("%s-%d", job, k)].(fields); ok {
		return want, true
	}
	jobs, _ := c.body["JobExpectedResults"].(fields)
	want, ok := jobs[job].(fields)
	return want, ok
}

// place puts a pod of g on GPUs of a node, and in a list.
func (c *converted) place(g *group, to *[]running, pod, name string, shared []string) error {
	at := slices.IndexFunc(c.Nodes, func(n node) bool { return n.Name == name })
	if at < 0 {
		return fmt.Errorf("a pod runs on the node %q", name)
	}
	n := &c.Nodes[at]
	r := running{Pod: pod, Node: name}
	if len(shared) > 0 && g.GPUMilli > 0 && g.GPUMilli < 1000 {
		gpu, ok := n.group[shared[0]]
		if !ok {
			gpu = n.taken
			n.taken++
			n.group[shared[0]] = gpu
		}
		r.GPUs = []int{gpu}
	} else {
		for range (g.GPUMilli + 999) / 1000 {
			r.GPUs = append(r.GPUs, n.taken)
			n.taken++
		}
	}
	if n.taken > n.GPUs {
		return fmt.Errorf("more GPUs of %s are in use than it has", name)
	}
	*to = append(*to, r)
	return nil
}

// expect notes what the case expects of each group.
func (c *converted) expect(body fields) error {
	source := map[string]fields{}
	for _, j := range each(body, "Jobs") {
		source[text(j, "Name")] = j
	}
	for i := range c.Jobs {
		made := &c.Jobs[i]
		j := source[made.Name]
		for k, t := range each(j, "Tasks") {
			want, ok := c.wanted(made.Name, k)
			if !ok {
				continue
			}
			g, _, err := c.locate(made, j, t, k)
			if err != nil {
				return err
			}
			g.said = true
			switch s, _ := want["Status"].(symbol); s {
			case "Running", "Bound", "Binding", "Allocated", "Pipelined":
				g.want++
				if n := text(want, "NodeName"); n != "" {
					g.nodes = append(g.nodes, n)
				}
			case "Pending", "Gated", "Releasing":
			default:
				return fmt.Errorf("it expects a pod to be %s", s)
			}
		}
	}
	return nil
}
