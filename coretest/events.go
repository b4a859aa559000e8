package coretest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// events reads the events that a command stands for.
func events(l *line, tasks []*line, now core.Time) []core.Event {
	switch l.cmd {
	case "node":
		return readNodes(l)
	case "change":
		n := readNodes(l)[0].(core.NodeAdded).Node
		return []core.Event{core.NodeChanged{Node: n}}
	case "queue":
		return []core.Event{core.QueueSet{Queue: readQueue(l)}}
	case "submit":
		return []core.Event{core.JobSubmitted{Job: readJob(l, tasks, now)}}
	case "add":
		ev := core.PodsAdded{Job: l.name, Task: core.Task{
			Name: l.word("task", l.name), MinPods: readMinimum(l), Request: readRequest(l), Labels: l.list("labels"), Affinity: readTerms(l),
		}}
		ev.Pods = readPods(l)
		return []core.Event{ev}
	case "diagnosed":
		return []core.Event{core.JobDiagnosed{
			Job: l.name, Class: l.word("class", ""), At: l.time("failed", 0), Suspects: l.list("suspects"), Confidence: l.milli("confidence", 1000),
			Remedy: core.Remedy{Restarts: l.number("restarts", 0), Node: core.NodeRemedy(l.oneOf("node", core.NodeRemedies[:], 0))},
		}}
	case "release":
		return []core.Event{core.JobReleased{Job: l.name}}
	case "passed", "notpassed":
		return []core.Event{core.NodeTested{Node: l.name, Passed: l.cmd == "passed"}}
	case "failedbefore":
		is := core.FailedJob{Job: l.name, At: l.time("failed", 0), Held: strings.Join(l.list("held"), " ")}
		for range l.number("restarts", 0) {
			is.Restarts = append(is.Restarts, core.FailureRestart{Class: l.word("class", ""), At: is.At})
		}
		for _, node := range l.list("avoids") {
			is.Avoids = append(is.Avoids, core.AvoidedNode{Node: node, Until: l.time("until", 0)})
		}
		return []core.Event{core.FailuresFound{Jobs: []core.FailedJob{is}}}
	case "suspect":
		is := core.SuspectNode{Node: l.name, Cordoned: l.flag("cordoned")}
		for _, job := range l.list("jobs") {
			is.Strikes = append(is.Strikes, core.Strike{At: l.time("failed", 0), Class: l.word("class", ""), Job: job})
		}
		return []core.Event{core.FailuresFound{Nodes: []core.SuspectNode{is}}}
	case "end":
		return []core.Event{core.JobEnded{Job: l.name}}
	case "finish", "withdraw":
		return []core.Event{core.PodEnded{Job: l.name, Pod: l.number("pod", 0)}}
	case "fail":
		return []core.Event{core.PodEnded{Job: l.name, Pod: l.number("pod", 0), Failed: true}}
	case "losepod":
		return []core.Event{core.PodEnded{Job: l.name, Pod: l.number("pod", 0), Lost: true}}
	case "stale":
		return []core.Event{core.GangStale{Job: l.name, Since: l.time("since", now)}}
	case "bindfailed":
		return []core.Event{core.BindFailed{Job: l.name, Pod: l.number("pod", 0)}}
	case "gone":
		return []core.Event{core.PodsGone{Job: l.name, Pods: readPods(l)}}
	case "found":
		ev := core.PodRunning{Job: l.name, Pod: l.number("pod", 0), Node: l.word("node", ""), Started: l.time("started", 0)}
		for _, w := range l.list("gpus") {
			ev.GPUs = append(ev.GPUs, int(l.thousandths("gpus", w)/1000))
		}
		return []core.Event{ev}
	case "suspended":
		ev := core.JobSuspended{Job: l.name, Since: l.time("since", now)}
		for _, w := range l.list("on") { // a pod each: NODE:FIRST-LAST, its GPUs
			node, set := l.pair("on", w, ":")
			first, last := l.pair("on", set, "-")
			at := core.Placement{Pod: len(ev.Pods), Node: node}
			for g := l.thousandths("on", first) / 1000; g <= l.thousandths("on", last)/1000; g++ {
				at.GPUs |= 1 << g
			}
			ev.Pods = append(ev.Pods, at)
		}
		return []core.Event{ev}
	case "move":
		return []core.Event{core.MoveRequested{Job: l.name, Pod: l.number("pod", 0), Node: l.word("to", "")}}
	case "restart":
		return []core.Event{core.RestartRequested{Job: l.name, Pods: readPods(l), Nodes: l.list("to")}}
	case "moved":
		return []core.Event{core.PodMoved{Job: l.name, Pod: l.number("pod", 0)}}
	case "movefailed":
		return []core.Event{core.MoveFailed{Job: l.name, Pod: l.number("pod", 0)}}
	case "standby":
		return []core.Event{core.StandbyBegan{
			Job: l.name, Pods: readPods(l), Until: l.time("until", core.MaxTime), CPUMilli: l.milli("cpu", 0), MemMiB: int64(l.number("mem", 0)) * 1024,
		}}
	case "return":
		return []core.Event{core.StandbyEnded{Job: l.name, Pods: readPods(l)}}
	case "lost":
		return []core.Event{core.NodeLost{Node: l.name}}
	case "cordon", "uncordon":
		return []core.Event{core.NodeCordoned{Node: l.name, Cordoned: l.cmd == "cordon"}}
	case "broken", "repaired":
		return []core.Event{core.DeviceHealth{Node: l.name, GPU: l.number("gpu", 0), Healthy: l.cmd == "repaired"}}
	case "removequeue":
		return []core.Event{core.QueueRemoved{Queue: l.name}}
	case "relabel":
		return []core.Event{core.JobRelabelled{Job: l.name, Task: l.word("task", ""), Labels: l.list("labels"), Affinity: readTerms(l)}}
	case "shield", "unshield":
		return []core.Event{core.JobShielded{Job: l.name, Shielded: l.cmd == "shield"}}
	case "estimate":
		return []core.Event{core.JobEstimated{Job: l.name, Estimate: l.time("time", 0)}}
	case "measured":
		ev := core.JobMeasured{Job: l.name, Restart: l.time("restart", 0), Until: l.time("until", 0)}
		for _, w := range l.list("goodputs") {
			ev.Goodputs = append(ev.Goodputs, l.thousandths("goodputs", w))
		}
		return []core.Event{ev}
	case "slowed":
		return []core.Event{core.JobSlowed{Job: l.name, Share: int64(l.number("share", 0))}}
	case "checkpoint":
		return []core.Event{core.Checkpointed{Job: l.name, At: l.time("saved", 0)}}
	case "servedqueue":
		return []core.Event{core.GPUTimeCounted{At: l.time("until", now), Queues: []core.QueueTime{{
			Queue: l.name, All: readServed(l, "received", "deserved"), Own: readServed(l, "ownreceived", "owndeserved"),
		}}}}
	case "servedjob":
		return []core.Event{core.GPUTimeCounted{At: l.time("until", now), Jobs: []core.JobTime{{Job: l.name, Served: readServed(l, "received", "deserved")}}}}
	case "tick":
		return []core.Event{core.Tick{}}
	}
	l.wrong("command %s is unknown", l.cmd)
	return nil
}

// readServed reads GPU time received and deserved, in GPU-seconds.
func readServed(l *line, received, deserved string) core.Served {
	text := func(key string) string {
		if n := l.number(key, 0); n > 0 {
			return fmt.Sprint(n) + strings.Repeat("0", 15)
		}
		return ""
	}
	return core.Served{Received: text(received), Deserved: text(deserved)}
}

// readPods reads the numbers of pods, nil if none are named.
func readPods(l *line) []int {
	var out []int
	for _, w := range l.list("pods") {
		out = append(out, int(l.thousandths("pods", w)/1000))
	}
	return out
}

// readNodes reads one node, or count alike that are numbered from 0.
func readNodes(l *line) []core.Event {
	n := core.Node{
		Name: l.name, GPUs: l.number("gpus", 8), CPUMilli: l.milli("cpu", 128000), MemMiB: int64(l.number("mem", 1024)) * 1024,
		MaxPods: l.number("maxpods", 0), HBD: l.word("hbd", ""), Cordoned: l.flag("cordoned"), Blind: l.flag("blind"), Labels: pairs(l, "labels"),
		Others: readOthers(l, "others"),
	}
	for _, w := range l.list("sets") {
		name, devices := l.pair("sets", w, ":")
		set := core.DeviceSet{Name: name}
		for d := range strings.SplitSeq(devices, "+") {
			set.Devices |= 1 << (l.thousandths("sets", d) / 1000)
		}
		n.Sets = append(n.Sets, set)
	}
	slices.SortFunc(n.Sets, func(a, b core.DeviceSet) int { return strings.Compare(a.Name, b.Name) })
	if n.GPUs > 0 {
		n.Model = "H800"
	}
	n.Model = l.word("model", n.Model)
	n.Domains = []string{l.word("superspine", "ss"), l.word("spine", "s"), l.word("leaf", "l")}
	for i, d := range n.Domains {
		if d == "unknown" {
			n.Domains[i] = ""
		}
	}
	for _, w := range l.list("taints") {
		k, v := l.pair("taints", w, "=")
		v, effect, _ := strings.Cut(v, ":")
		n.Taints = append(n.Taints, core.Taint{Key: k, Value: v, Effect: effect})
	}
	for _, w := range l.list("broken") {
		n.Unhealthy = append(n.Unhealthy, int(l.thousandths("broken", w)/1000))
	}
	n.Devices = readDevices(l, n.GPUs)
	count, evictions := l.number("count", 0), l.number("evictions", 0)
	if count == 0 {
		return []core.Event{core.NodeAdded{Node: n, Evictions: evictions}}
	}
	var out []core.Event
	for i := range count {
		m := n
		m.Name = fmt.Sprintf("%s%d", n.Name, i)
		out = append(out, core.NodeAdded{Node: m, Evictions: evictions})
	}
	return out
}

// readOthers reads what a node has, or a pod takes, of other resources, as NAME:VALUE; or of device sets.
func readOthers(l *line, key string) []core.Amount {
	var out []core.Amount
	for _, w := range l.list(key) {
		name, v := l.pair(key, w, ":")
		out = append(out, core.Amount{Name: name, Value: l.thousandths(key, v) / 1000})
	}
	slices.SortFunc(out, func(a, b core.Amount) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// readDevices reads the layout: nvlink, pcie, numa and nic give a number for each
// GPU, "-" for none.
func readDevices(l *line, gpus int) []core.Device {
	var out []core.Device
	for key, set := range map[string]func(d *core.Device, v int8){
		"nvlink": func(d *core.Device, v int8) { d.Island = v },
		"pcie":   func(d *core.Device, v int8) { d.PCIe = v },
		"numa":   func(d *core.Device, v int8) { d.NUMA = v },
		"nic":    func(d *core.Device, v int8) { d.NIC = v },
	} {
		vals := l.list(key)
		if vals == nil {
			continue
		}
		if len(vals) != gpus {
			l.wrong("%s: %d values for %d GPUs", key, len(vals), gpus)
			return nil
		}
		if out == nil {
			for i := range gpus {
				out = append(out, core.Device{Island: -1, PCIe: -1, NUMA: -1, NIC: int8(i)})
			}
		}
		for i, v := range vals {
			if v == "-" {
				set(&out[i], -1)
			} else {
				set(&out[i], int8(l.thousandths(key, v)/1000))
			}
		}
	}
	return out
}

// readQueue reads a queue; nominal, borrow and lend are MODEL:GPUs, resources RESOURCE:AMOUNT, and borrow
// and lend also that.
func readQueue(l *line) core.Queue {
	q := core.Queue{Name: l.name, Parent: l.word("parent", ""), Weight: int64(l.number("weight", 1)), Priority: int32(l.number("priority", 0))}
	if l.flag("isolated") {
		q.Mode = 1
	}
	q.MaxRunning = core.Running{Jobs: l.number("maxjobs", 0), GPU: core.Milli(l.milli("maxgpus", 0))}
	q.MaxRunningPerUser = core.Running{Jobs: l.number("usermaxjobs", 0), GPU: core.Milli(l.milli("usermaxgpus", 0))}
	q.FairUsers = l.flag("fairusers")
	at := map[string]int{}
	for _, w := range l.list("nominal") {
		model, v := l.pair("nominal", w, ":")
		at[model] = len(q.Quota)
		q.Quota = append(q.Quota, core.Quota{
			Model: model, Nominal: core.Milli(l.thousandths("nominal", v)), BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited,
		})
	}
	beside := map[string]int{}
	for _, w := range l.list("resources") {
		name, v := l.pair("resources", w, ":")
		beside[name] = len(q.Resources)
		q.Resources = append(q.Resources, core.ResourceQuota{
			Resource: name, Nominal: resourceAmount(name, l.thousandths("resources", v)), BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited,
		})
	}
	for _, key := range [...]string{"borrow", "lend"} {
		for _, w := range l.list(key) {
			name, v := l.pair(key, w, ":")
			milli := l.thousandths(key, v)
			if i, ok := at[name]; ok {
				*map[string]*core.Milli{"borrow": &q.Quota[i].BorrowingLimit, "lend": &q.Quota[i].LendingLimit}[key] = core.Milli(milli)
			} else if i, ok := beside[name]; ok {
				*map[string]*core.Milli{"borrow": &q.Resources[i].BorrowingLimit, "lend": &q.Resources[i].LendingLimit}[key] = resourceAmount(name, milli)
			} else {
				l.wrong("%s: no nominal quota for %s", key, name)
			}
		}
	}
	return q
}

// resourceAmount converts thousandths of cores, of GiB of memory, or of units of another resource to
// the unit of its account.
func resourceAmount(resource string, thousandths int64) core.Milli {
	switch resource {
	case cluster.CPU:
		return core.Milli(thousandths)
	case cluster.Memory:
		return core.Milli(thousandths * 1024 / 1000)
	}
	return core.Milli(thousandths / 1000)
}

// readJob reads a job. Without task lines it has one task, described on the
// line itself.
func readJob(l *line, tasks []*line, now core.Time) core.Job {
	j := core.Job{
		Name: l.name, Queue: l.word("queue", "q"), User: l.word("user", ""), Gang: l.flag("gang"), Alternatives: l.flag("alternatives"),
		Kind: core.Kind(l.oneOf("kind", core.Kinds[:], 0)), Class: core.Class(l.oneOf("class", []string{"HP", "LP"}, 0)),
		Priority: int32(l.number("priority", 0)), Locked: l.flag("locked"), NotPreemptible: l.flag("notpreemptible"), NeverPreempts: l.flag("neverpreempts"),
		NeverOnLent: l.flag("neveronlent"), Lends: l.flag("lends"), NeverRestarts: l.flag("neverrestarts"),
		Mobility: core.Mobility(l.oneOf("mobility", core.Mobilities[:], 0)),
		Foreign:  l.flag("foreign"),
		Topology: core.TopologyRequest{Required: l.word("required", ""), Preferred: l.word("preferred", ""), Closeness: l.milli("closeness", 0)},
		Estimate: l.time("estimate", 0), Checkpoint: l.time("checkpoint", 0), SaveWithin: l.time("savewithin", 0), MinRuntime: l.time("minruntime", 0), StaleGrace: l.time("stalegrace", 0),
		Suspend:   core.Suspension{Pause: l.time("pause", 0), Resume: l.time("resume", 0), HostMemMiB: int64(l.number("hostmem", 0)) * 1024},
		Submitted: l.time("submitted", now),
	}
	if l.flag("neverstale") {
		j.StaleGrace = -1
	}
	if len(tasks) == 0 {
		j.Tasks = []core.Task{readTask(l)}
	}
	for _, t := range tasks {
		j.Tasks = append(j.Tasks, readTask(t))
	}
	var err error
	if j.Combinations, err = core.ParseCombinations(l.list("combinations"), j.Tasks); err != nil {
		l.wrong("combinations: %v", err)
	}
	for t := range j.Tasks {
		if len(j.Tasks[t].Models) == 0 {
			j.Tasks[t].Models = core.CombinedModels(j.Combinations, t)
		}
	}
	return j
}

// readTerms reads near and apart, of LEVEL:LABEL, and even, of LEVEL:LABEL:SKEW or
// LEVEL:LABEL:SKEW:DOMAINS, either with :anytaint and :anylabel after it.
func readTerms(l *line) []core.Term {
	var out []core.Term
	for _, key := range []string{"near", "apart"} {
		for _, w := range l.list(key) {
			level, label := l.pair(key, w, ":")
			out = append(out, core.Term{Level: level, Label: label, Anti: key == "apart"})
		}
	}
	for _, w := range l.list("even") {
		level, rest := l.pair("even", w, ":")
		label, skew := l.pair("even", rest, ":")
		skew, anyLabel := strings.CutSuffix(skew, ":anylabel")
		skew, anyTaint := strings.CutSuffix(skew, ":anytaint")
		skew, domains, _ := strings.Cut(skew, ":")
		t := core.Term{Level: level, Label: label, MaxSkew: int(l.thousandths("even", skew) / 1000), AnyTaint: anyTaint, AnyLabel: anyLabel}
		if domains != "" {
			t.MinDomains = int(l.thousandths("even", domains) / 1000)
		}
		out = append(out, t)
	}
	return out
}

func readTask(l *line) core.Task {
	return core.Task{Name: l.name, Pods: l.number("pods", 1), MinPods: readMinimum(l), Request: readRequest(l), Labels: l.list("labels"), Affinity: readTerms(l), Prefers: readPreferences(l)}
}

func readPreferences(l *line) []core.Preference {
	var out []core.Preference
	for _, w := range l.list("prefers") {
		p, err := cluster.ParsePreference(w)
		if err != nil {
			l.wrong("prefers=%s: %v", w, err)
		}
		out = append(out, p)
	}
	return out
}

// readMinimum reads how many pods of a task start with its gang.
func readMinimum(l *line) int {
	if l.word("min", "") == "none" {
		return core.Elastic
	}
	return l.number("min", 0)
}

func readRequest(l *line) core.Request {
	r := core.Request{
		GPU: core.Milli(l.milli("gpus", 1000)), CPUMilli: l.milli("cpu", 0), MemMiB: int64(l.number("mem", 0)) * 1024,
		Others: readOthers(l, "others"), From: readOthers(l, "from"),
	}
	if err := r.Accept(l.list("model")); err != nil {
		l.wrong("model: %v", err)
	}
	picks := slices.Index(cluster.Pickers[:], l.word("picks", "any"))
	if picks < 0 {
		l.wrong("picks: one of %v is expected", cluster.Pickers)
	}
	r.Picker = core.Picker(max(picks, 0))
	for _, w := range l.list("select") {
		r.Selector = append(r.Selector, readRequirement(l, w))
	}
	for _, w := range l.list("anyof") {
		var all []core.Requirement
		for w := range strings.SplitSeq(w, "&") {
			all = append(all, readRequirement(l, w))
		}
		r.AnyOf = append(r.AnyOf, all)
	}
	for _, w := range l.list("tolerate") {
		w, effect, _ := strings.Cut(w, ":")
		k, v, _ := strings.Cut(w, "=")
		r.Tolerations = append(r.Tolerations, core.Toleration{Key: k, Value: v, Effect: effect})
	}
	return r
}

func readRequirement(l *line, w string) core.Requirement {
	r, ok := cluster.ParseRequirement(w)
	if !ok {
		l.wrong("%q: a condition on a label is expected", w)
	}
	return r
}
