package audit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/runlog"
)

// dice makes up a run that breaks nothing: a naive scheduler that knows which
// GPUs are free, jobs of all kinds, evictions, failures, lost nodes.
type dice struct {
	*rand.Rand
	jobs, script strings.Builder
	free         map[string][]int // milli by node and GPU
	down         map[string]bool
	names        []string
	running      []*roll
	waiting      []*roll
}

// roll is a made-up job.
type roll struct {
	name  string
	gang  bool
	lp    bool
	pods  int
	milli int
	on    map[int]string // pod to node
	left  map[int]string // where a pod was evicted from last: it does not go back
	gpus  map[int][]int
	to    map[int]string // where a pod is being moved
	held  map[int][]int  // GPUs there
}

func newDice(seed uint64) *dice {
	d := &dice{Rand: rand.New(rand.NewPCG(seed, 0)), free: map[string][]int{}, down: map[string]bool{}}
	for _, n := range []string{"a0", "a1", "b0", "b1"} {
		d.names = append(d.names, n)
		d.free[n] = []int{1000, 1000, 1000, 1000}
	}
	return d
}

func (d *dice) say(t int, format string, args ...any) {
	fmt.Fprintf(&d.script, "%d "+format+"\n", append([]any{t}, args...)...)
}

// submit submits a job at t.
func (d *dice) submit(t int) {
	r := &roll{name: fmt.Sprintf("j%d", t), pods: 1 + d.IntN(3), gang: d.IntN(2) == 0, lp: d.IntN(3) == 0}
	r.milli = []int{250, 500, 1000, 2000, 4000}[d.IntN(5)]
	r.on, r.left, r.gpus = map[int]string{}, map[int]string{}, map[int][]int{}
	r.to, r.held = map[int]string{}, map[int][]int{}
	class := "HP"
	if r.lp {
		class = "LP"
	}
	fmt.Fprintf(&d.jobs, "%s,w,q,training,%s,0,%v,%d,%d,100,64,A100,%d,100,completed,0,false,,,replaceable\n",
		r.name, class, r.gang, r.pods, r.milli, t)
	d.waiting = append(d.waiting, r)
}

// fit finds GPUs for a pod, on another node than not.
func (d *dice) fit(milli int, not string) (node string, gpus []int) {
	for _, n := range d.names {
		if d.down[n] || n == not {
			continue
		}
		gpus = nil
		for g, free := range d.free[n] {
			if free >= min(milli, 1000) && len(gpus) < max(1, milli/1000) {
				gpus = append(gpus, g)
			}
		}
		if len(gpus) == max(1, milli/1000) {
			return n, gpus
		}
	}
	return "", nil
}

// start binds what pods of r fit; a gang's only if all do.
func (d *dice) start(t int, r *roll) {
	var lines []string
	var bound []int
	for pod := range r.pods {
		if r.on[pod] != "" {
			continue
		}
		n, gpus := d.fit(r.milli, r.left[pod])
		if n == "" {
			continue
		}
		d.take(r, pod, n, gpus)
		bound = append(bound, pod)
		lines = append(lines, fmt.Sprintf("%d bind %s-%d %s %s\n", t, r.name, pod, n, strings.Trim(strings.ReplaceAll(fmt.Sprint(gpus), " ", ","), "[]")))
	}
	if r.gang && len(r.on) < r.pods {
		for _, pod := range bound {
			d.give(r, pod)
		}
		return
	}
	d.script.WriteString(strings.Join(lines, ""))
}

func (d *dice) take(r *roll, pod int, n string, gpus []int) {
	for _, g := range gpus {
		d.free[n][g] -= min(r.milli, 1000)
	}
	r.on[pod], r.gpus[pod] = n, gpus
}

func (d *dice) give(r *roll, pod int) {
	for _, g := range r.gpus[pod] {
		d.free[r.on[pod]][g] += min(r.milli, 1000)
	}
	delete(r.on, pod)
}

// move begins to move a pod of r, or ends its move.
func (d *dice) move(t int, r *roll) {
	pod := d.IntN(r.pods)
	switch {
	case r.on[pod] == "":
	case r.to[pod] == "":
		n, gpus := d.fit(r.milli, r.on[pod])
		if n == "" {
			return
		}
		for _, g := range gpus {
			d.free[n][g] -= min(r.milli, 1000)
		}
		r.to[pod], r.held[pod] = n, gpus
		d.say(t, "migrate %s-%d %s %s", r.name, pod, n, strings.Trim(strings.ReplaceAll(fmt.Sprint(gpus), " ", ","), "[]"))
	case d.IntN(2) == 0:
		d.giveUp(t, r, pod)
	default:
		d.say(t, "moved %s-%d", r.name, pod)
		to, held := r.to[pod], r.held[pod]
		d.give(r, pod)
		r.on[pod], r.gpus[pod] = to, held
		delete(r.to, pod)
	}
}

// giveUp gives up where a pod of r is being moved.
func (d *dice) giveUp(t int, r *roll, pod int) {
	d.say(t, "movefailed %s-%d", r.name, pod)
	for _, g := range r.held[pod] {
		d.free[r.to[pod]][g] += min(r.milli, 1000)
	}
	delete(r.to, pod)
}

// stop releases the pods of r that are on the node, or all.
func (d *dice) stop(t int, r *roll, node, why string) {
	for pod := range r.pods {
		n := r.on[pod]
		leaves := n != "" && (node == "" || n == node)
		if to := r.to[pod]; to != "" && (leaves || to == node) {
			d.giveUp(t, r, pod)
		}
		if leaves {
			d.give(r, pod)
			d.say(t, "release %s-%d %s", r.name, pod, why)
		}
	}
}

// step lets something happen at t.
func (d *dice) step(t int) {
	all := slices.Concat(d.waiting, d.running)
	switch r := all[d.IntN(len(all))]; d.IntN(10) {
	case 8, 9:
		for _, r := range all {
			d.move(t, r)
		}
	case 0:
		n := d.names[d.IntN(len(d.names))]
		d.toggle(t, n, all)
	case 1:
		if r.lp {
			maps.Copy(r.left, r.on)
			d.stop(t, r, "", "preempted "+all[0].name)
		}
	case 2:
		d.stop(t, r, "", "failed")
	case 3, 4:
		if len(r.on) == r.pods {
			d.stop(t, r, "", "finished")
			d.say(t, "end %s", r.name)
			d.waiting = slices.DeleteFunc(d.waiting, func(x *roll) bool { return x == r })
			return
		}
	}
	for _, r := range d.waiting {
		d.start(t, r)
	}
}

// toggle loses a node or gets it back.
func (d *dice) toggle(t int, n string, all []*roll) {
	if d.down[n] {
		d.down[n] = false
		d.say(t, "back %s", n)
		return
	}
	d.down[n] = true
	d.say(t, "lost %s", n)
	for _, r := range all {
		if r.gang && slices.Contains(mapValues(r.on), n) {
			d.stop(t, r, "", "node_lost")
		}
		d.stop(t, r, n, "node_lost")
	}
}

// check compares what the files of the run say is free at its end with what is.
func (d *dice) check(t *testing.T, dir string) {
	t.Helper()
	idle, _, err := runlog.ReadIdle(dir, 1000*core.Second)
	must(t, err)
	for k := range idle {
		name := idle[k].Spec.Name
		if d.down[name] {
			t.Errorf("node %s is lost, and is there", name)
		}
		for g, free := range idle[k].Free {
			if int(free) != d.free[name][g] {
				t.Errorf("GPU %d of %s: %d milli are free by the files, expected %d", g, name, free, d.free[name][g])
			}
		}
	}
}

func mapValues(m map[int]string) []string {
	var all []string
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// Whatever happens, the metrics of the run and those of the audit, which are
// computed in different ways, agree; and the audit notices when a line is lost.
func TestRandomRuns(t *testing.T) {
	for seed := range uint64(30) {
		d := newDice(seed)
		d.jobs.WriteString(strings.TrimSuffix(workloadHeader, "\n") + ",mobility\n")
		for at := 1; at < 120; at++ {
			d.submit(at)
			d.step(at)
		}
		dir := write(t, strings.TrimSuffix(nodes, "h0,H800,4,16000,65536,b,s,,,taint:only=llm\n"), nil, d.jobs.String(), d.script.String())
		r, err := Audit(dir)
		must(t, err)
		if !r.OK() {
			t.Fatalf("seed %d: %v\n%s", seed, r, d.script.String())
		}
		d.check(t, dir)
		lines := strings.SplitAfter(contents(t, filepath.Join(dir, "decisions.jsonl.gz")), "\n")
		lost := lines[d.IntN(len(lines)-1)]
		replace(t, dir, "decisions.jsonl.gz", lost, "")
		r, err = Audit(dir)
		must(t, err)
		if r.Count < 2 { // the hash, and what the line means
			t.Errorf("seed %d: without %s the audit finds %v", seed, lost, r)
		}
	}
}
