package snapshot_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/snapshot"
)

// known finds the policies that come with Muster.
func known(name string) (core.Policy, bool) {
	doc, ok := policy.ByName(name)
	return doc.Policy, ok
}

// The form of the JSON is for programs: it has these keys and no others.
func TestAnswerJSON(t *testing.T) {
	s, err := snapshot.Parse("s.yaml", []byte(`
nodes: [{name: n, model: A10, gpus: 2}]
jobs:
- {name: a, tasks: [{gpuMilli: 500}]}
- {name: b, gang: true, tasks: [{pods: 2, gpuMilli: 2000}]}
`), known)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := snapshot.Run(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"rounds":[{"decisions":[{"op":"bind","job":"a","pod":"a-0","node":"n","gpus":[0],"reason":"Placed"}],` +
		`"waiting":[{"job":"b","reason":"NoNode","detail":"needs 2 x 2 GPUs; all nodes together hold 1"}]}]}`
	if string(got) != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

// A pod that is being deleted holds its GPUs, and is not evicted. By the second round it is gone.
func TestLeaving(t *testing.T) {
	s, err := snapshot.Parse("s.yaml", []byte(`
nodes: [{name: n, model: A10, gpus: 2}]
jobs:
- {name: old, class: LP, tasks: [{gpuMilli: 1000, pods: 0, leaving: [{pod: old-0, node: n, gpus: [0]}]}]}
- {name: again, class: LP, tasks: [{gpuMilli: 1000, leaving: [{pod: again-x, node: n, gpus: [1]}]}]}
- {name: new, submittedAgo: 10, tasks: [{gpuMilli: 2000}]}
`), known)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range snapshot.Idle(s) {
		if want := []core.Milli{0, 0}; !reflect.DeepEqual(n.Free, want) {
			t.Errorf("idle of the GPUs: %v, want %v", n.Free, want)
		}
	}
	answer, err := snapshot.Run(s, 2)
	if err != nil {
		t.Fatal(err)
	}
	if d := answer.Rounds[0].Decisions; len(d) > 0 || len(answer.Rounds[0].Waiting) != 2 {
		t.Errorf("in the first round: %+v, want two jobs that wait, and no decision", answer.Rounds[0])
	}
	want := []snapshot.Decision{{Op: "bind", Job: "new", Pod: "new-0", Node: "n", GPUs: []int{0, 1}, Reason: "Placed"}}
	if got := answer.Rounds[1].Decisions; !reflect.DeepEqual(got, want) {
		t.Errorf("in the second round: %+v, want %+v", got, want)
	}
}

// A snapshot that is accepted can be run under every policy, and the answer
// binds no pod twice and none to GPUs that another has.
func TestRunAnySnapshot(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		file := randomSnapshot(rng, policy.All[rng.IntN(len(policy.All))].Name)
		s, err := snapshot.Parse("s.yaml", []byte(file), known)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, file)
		}
		answer, err := snapshot.Run(s, 5)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, file)
		}
		if wrong := twice(&s, &answer); wrong != "" {
			t.Fatalf("seed %d: %s\n%s", seed, wrong, file)
		}
		for i := range s.Jobs {
			if _, err := snapshot.Explain(s, s.Jobs[i].Name); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, file)
			}
		}
	}
}

// twice follows the answer and says what it gives twice.
func twice(s *snapshot.Snapshot, answer *snapshot.Answer) string {
	size := map[string]core.Milli{}
	used := map[string]core.Milli{}
	held := map[string]snapshot.Decision{}
	leaving := []snapshot.Decision{}
	take := func(d snapshot.Decision, by core.Milli) string {
		for _, gpu := range d.GPUs {
			at := fmt.Sprintf("%s/%d", d.Node, gpu)
			used[at] += by * min(size[d.Job], core.WholeGPU)
			if used[at] > core.WholeGPU {
				return fmt.Sprintf("%s has %d milli-GPU in use", at, used[at])
			}
		}
		return ""
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		size[j.Name] = j.Tasks[0].GPU
		for _, r := range j.Running {
			d := snapshot.Decision{Job: j.Name, Pod: j.Pod(r.Pod), Node: r.Node, GPUs: r.GPUs}
			held[d.Pod] = d
			take(d, 1)
		}
	}
	for _, round := range answer.Rounds {
		for _, d := range leaving {
			take(d, -1)
		}
		leaving = leaving[:0]
		for _, d := range round.Decisions {
			h, is := held[d.Pod]
			switch {
			case d.Op == "bind" && is:
				return d.Pod + " is bound twice"
			case d.Op == "bind":
				held[d.Pod] = d
				if wrong := take(d, 1); wrong != "" {
					return wrong
				}
			case !is || h.Node != d.Node:
				return d.Pod + " is evicted from where it is not"
			default:
				delete(held, d.Pod)
				leaving = append(leaving, d)
			}
		}
	}
	return ""
}

// randomSnapshot makes up a small, crowded cluster.
func randomSnapshot(rng *rand.Rand, policy string) string {
	var b strings.Builder
	nodes := 2 + rng.IntN(4)
	fmt.Fprintf(&b, "policy: %s\ntopology: {levels: [rack]}\nnodes:\n", policy)
	free := make([][]int, nodes)
	for n := range nodes {
		fmt.Fprintf(&b, "- {name: n%d, model: m%d, gpus: 4, cpuMilli: 64000, memMiB: 1000, labels: {rack: r%d}, cordoned: %v, unhealthy: [%d]}\n",
			n, n%2, n/2, rng.IntN(10) == 0, rng.IntN(4))
		free[n] = []int{0, 1, 2, 3}
	}
	b.WriteString("queues:\n- {name: root}\n")
	for q := range 3 {
		fmt.Fprintf(&b, "- {name: q%d, parent: root, mode: %s, quota: [{model: \"*\", nominal: %d, borrowingLimit: %d}]}\n",
			q, []string{"Shared", "Isolated"}[rng.IntN(2)], rng.IntN(9), rng.IntN(9))
	}
	b.WriteString("jobs:\n")
	for j := range 3 + rng.IntN(8) {
		gpus, pods := 1+rng.IntN(4), 1+rng.IntN(3)
		fmt.Fprintf(&b, "- {name: j%d, queue: q%d, class: %s, priority: %d, gang: %v, preemptible: %v, submittedAgo: %d, topology: {required: %s},\n",
			j, rng.IntN(3), []string{"HP", "LP"}[rng.IntN(2)], rng.IntN(3), rng.IntN(2) == 0, rng.IntN(4) > 0, 3000+rng.IntN(3000),
			[]string{"rack", "node", `""`}[rng.IntN(3)])
		fmt.Fprintf(&b, "   runningFor: %d, tasks: [{pods: %d, gpuMilli: %d, cpuMilli: 1000, running: [", rng.IntN(3000), pods, 1000*gpus)
		for p := range rng.IntN(pods + 1) {
			n := rng.IntN(nodes)
			if len(free[n]) < gpus {
				break
			}
			fmt.Fprintf(&b, "{pod: j%d-%d, node: n%d, gpus: %s},", j, p, n, strings.ReplaceAll(fmt.Sprint(free[n][:gpus]), " ", ","))
			free[n] = free[n][gpus:]
		}
		b.WriteString("]}]}\n")
	}
	return b.String()
}
