package v1alpha1_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/workload"
)

// builtins stands for the policies that come with Muster.
func builtins(name string) (core.Policy, bool) {
	switch name {
	case "default":
		return core.Policy{
			Name:      "default",
			Queueing:  core.Queueing{Mode: core.Backfill, HeadWait: 1800 * core.Second},
			Placement: [...]place.Strategy{place.EBinpack, place.EBinpack, place.EBinpack, place.EBinpack},
			Preempt:   core.Preempt{Priority: core.InCluster, Budget: 10, Interval: 60 * core.Second},
			Requeue:   core.RequeuePolicy{Backoff: 10 * core.Second, MaxBackoff: 600 * core.Second},
		}, true
	case "ESpread":
		return core.Policy{Name: "ESpread", Zone: core.Zone{Share: 0.25}}, true
	}
	return core.Policy{}, false
}

func TestParseWholeFile(t *testing.T) {
	const file = `apiVersion: muster.sh/v1alpha1
kind: SchedulingPolicy
metadata: {name: night}
spec:
  base: ESpread
  queueing: {mode: StrictFIFO, order: Estimate, headWait: 1h30m, sizeWeight: 90s}
  placement: {default: Binpack, inference: Spread}
  cpuOnly: {placement: LeastHarm, reserve: 0.5, gpuJobsUse: 0.25}
  zone: {label: zone/inference, value: "yes", exclusive: true}
  preemption: {priority: Queue, protectedQueues: [prod], reclaim: true, backfill: false, minRuntime: 600, budget: 4, interval: 7d}
  fairness: {lease: 20m, jobs: LeastAttained, halfLife: 7d, rates: [{model: H800, rate: 2.5}, {model: T4, rate: 0.25}], levels: [5h, 2d], distribution: [10m, 4h]}
  requeue: {backoff: 1.5s, maxBackoff: 2m, staleGrace: 60s, timestamp: Eviction}
  defragmentation: {every: 6h, restarts: LP, maxLost: 10m, maxMoves: 9, maxGPUHours: 2, moveTime: 30s}
`
	leastHarm := place.LeastHarm
	want := core.Policy{
		Name:      "night",
		Queueing:  core.Queueing{Mode: core.StrictFIFO, Order: core.ByEstimate, HeadWait: 5400 * core.Second, SizeWeight: 90 * core.Second},
		Placement: [...]place.Strategy{core.Training: place.Binpack, core.Inference: place.Spread, core.Batch: place.Binpack, core.Dev: place.Binpack},
		CPUOnly:   core.CPUOnly{Strategy: &leastHarm, Reserve: 500, GPUUse: 250},
		Zone:      core.Zone{Key: "zone/inference", Value: "yes", Exclusive: true},
		Preempt:   core.Preempt{Priority: core.InQueue, ProtectedQueues: []string{"prod"}, Reclaim: true, MinRuntime: 600 * core.Second, Budget: 4, Interval: 7 * 86400 * core.Second},
		Fairness:  core.Fairness{Lease: 1200 * core.Second, Jobs: core.LeastAttained, HalfLife: 7 * 86400 * core.Second, Rates: []core.ModelRate{{Model: "H800", Rate: 2500}, {Model: "T4", Rate: 250}}, Levels: []core.Time{5 * 3600 * core.Second, 2 * 86400 * core.Second}, Distribution: []core.Time{600 * core.Second, 4 * 3600 * core.Second}},
		Requeue:   core.RequeuePolicy{Backoff: 3 * core.Second / 2, MaxBackoff: 120 * core.Second, StaleGrace: 60 * core.Second, Timestamp: core.EvictionTime},
		Defrag: core.Defrag{
			Every: 6 * 3600 * core.Second, Restarts: core.LPRestarts, MaxLost: 600 * core.Second,
			MaxMoves: 9, MaxGPUTime: 2 * 3600 * int64(core.WholeGPU), MoveTime: 30 * core.Second,
		},
	}
	got, err := v1alpha1.Parse("dir/policy.yaml", []byte(file), builtins)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A spec alone is a policy as well; what it leaves out is as in the default.
func TestParseSpecAlone(t *testing.T) {
	want, _ := builtins("default")
	want.Name = "quick"
	want.Queueing.Mode = core.BestEffortFIFO
	want.Preempt.Priority = core.NoPriority
	for _, file := range []string{
		"queueing:\n  mode: BestEffortFIFO\npreemption:\n  priority: false\nzone:\n",
		`{"queueing": {"mode": "BestEffortFIFO"}, "preemption": {"priority": false}}`,
	} {
		got, err := v1alpha1.Parse("quick.yaml", []byte(file), builtins)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", file, got, want)
		}
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"empty", "", `p.yaml: a YAML or JSON object; found an empty file`},
		{"only a comment", "# nothing\n", `p.yaml: a YAML or JSON object; found an empty file`},
		{"not an object", "- a\n", `p.yaml:1: an object; found a list`},
		{"open bracket", "queueing:\n  mode: [1,\nzone:\n", `p.yaml:2: YAML or JSON; found: sequence end token ']' not found`},
		{"two documents", "base: ESpread\n---\nbase: ESpread\n", `p.yaml:3: exactly one document; found a second one`},
		{"unknown field", "queueing:\n  mode: Backfill\n  headwait: 3\n",
			`p.yaml:3: queueing.headwait: one of mode, order, headWait, fairShare, lendUnowned, sizeWeight; found an unknown field`},
		{"unknown field of an object", "kind: SchedulingPolicy\nspecs: {}\n",
			`p.yaml:2: specs: one of kind, apiVersion, metadata, spec, status; found an unknown field`},
		{"no spec", "kind: SchedulingPolicy\n", `p.yaml:1: spec: this field; found nothing`},
		{"twice", "base: ESpread\nbase: default\n", `p.yaml:2: YAML or JSON; found: mapping key "base" already defined at [1:1]`},
		{"wrong enum", "queueing:\n  mode: Strict\n",
			`p.yaml:2: queueing.mode: one of StrictFIFO, BestEffortFIFO, Backfill; found "Strict"`},
		{"wrong enum in an object", "spec:\n  placement: {dev: 4}\n",
			`p.yaml:2: spec.placement.dev: one of ` + strings.Join(place.Strategies[:], ", ") + `; found 4`},
		{"wrong type", "queueing: Backfill\n", `p.yaml:1: queueing: an object; found "Backfill"`},
		{"not a boolean", "preemption:\n  reclaim: yes\n", `p.yaml:2: preemption.reclaim: true or false; found "yes"`},
		{"no scope", "preemption:\n  priority: yes\n", `p.yaml:2: preemption.priority: one of Cluster, Queue, Never; found "yes"`},
		{"not a string", "zone:\n  label: 7\n", `p.yaml:2: zone.label: a string, in quotes ("7"); found 7`},
		{"share too large", "zone:\n  share: 1.5\n", `p.yaml:2: zone.share: a number from 0 to 1; found 1.5`},
		{"share not a number", "zone:\n  share: .nan\n", `p.yaml:2: zone.share: a number from 0 to 1; found .nan`},
		{"label and share", "zone:\n  label: a\n  share: 0.5\n",
			`p.yaml:3: zone.share: a label or a share, not both; found 0.5 with label "a"`},
		{"value alone", "zone:\n  value: a\n", `p.yaml:2: zone.value: a label with the value; found only "a"`},
		{"negative number", "preemption: {budget: -1}\n", `p.yaml:1: preemption.budget: a whole number, at least 0; found -1`},
		{"negative duration", "requeue:\n  backoff: -5\n",
			`p.yaml:2: requeue.backoff: a duration such as 90s, 30m, 2h or 7d, or a number of seconds; found -5`},
		{"duration without a unit we know", "requeue:\n  backoff: 5y\n",
			`p.yaml:2: requeue.backoff: a duration such as 90s, 30m, 2h or 7d, or a number of seconds; found "5y"`},
		{"duration that is a list", "requeue:\n  backoff: [1]\n",
			`p.yaml:2: requeue.backoff: a duration such as 90s, 30m, 2h or 7d, or a number of seconds; found a list`},
		{"backoff above its maximum", "requeue:\n  backoff: 1h\n",
			`p.yaml:1: requeue.maxBackoff: at least the backoff, 1h; found 10m`},
		{"packing that evicts", "packing: {enabled: true, memoryMiB: 24576}\n",
			`p.yaml:1: packing: no preemption, lease, room or defragmentation beside it, as those count on GPUs that one job has; found some`},
		{"goodput that evicts", "goodput: {round: 1m}\n",
			`p.yaml:1: goodput: no preemption, lease or packing beside it, as those count on jobs that keep their size; found some`},
		{"goodput in no time", "goodput: {round: 1ms}\n", `p.yaml:1: goodput: a round of at least 1s, and no time below 0`},
		{"packing without memory", "packing: {enabled: true}\n", `p.yaml:1: packing: the memory of a GPU, above 0 MiB; found 0`},
		{"lease too short", "fairness:\n  lease: 30s\n", `p.yaml:2: fairness.lease: at least 1m, or 0; found 30s`},
		{"an order that is none of jobs", "fairness:\n  jobs: DominantShare\n", `p.yaml:2: fairness.jobs: one of LongTermFairness, Submission, ShortestRemaining, LeastAttained, FinishTimeFairness, GittinsIndex; found "DominantShare"`},
		{"half-life too short", "fairness:\n  halfLife: 10m\n", `p.yaml:2: fairness.halfLife: at least 1h, or 0; found 10m`},
		{"rate too small", "fairness:\n  rates: [{model: T4, rate: 0}]\n", `p.yaml:2: fairness.rates[0].rate: a number from 0.001 to 1000; found 0`},
		{"levels that fall", "fairness:\n  levels: [2h, 90m]\n", `p.yaml:2: fairness.levels: GPU times above 0, each greater than the one before; found 1h30m`},
		{"a GPU time of nothing", "fairness:\n  distribution: [1h, 0]\n", `p.yaml:2: fairness.distribution: GPU times of at least 1s; found 0s`},
		{"two rates", "fairness:\n  rates: [{model: T4, rate: 2}, {model: T4, rate: 1}]\n", `p.yaml:2: fairness.rates: one rate for each model; found two for T4`},
		{"budget without an interval", "preemption:\n  budget: 3\n  interval: 0\n",
			`p.yaml:2: preemption.budget: an interval with the budget; found only a budget of 3`},
		{"unknown base", "base: Kueue\n", `p.yaml:1: base: the name of a built-in policy; found "Kueue"`},
		{"another kind", "kind: Queue\nspec: {}\n", `p.yaml:1: kind: SchedulingPolicy; found "Queue"`},
		{"another version", "apiVersion: v1\nspec: {}\n", `p.yaml:1: apiVersion: muster.sh/v1alpha1; found "v1"`},
		{"name of another folder", "metadata: {name: ../x}\nspec: {}\n", `p.yaml:1: metadata.name: a name without slashes and commas; found "../x"`},
		{"anchor", "queueing: &q {mode: Backfill}\n", `p.yaml:1: queueing: an object; found a YAML anchor`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := v1alpha1.Parse("p.yaml", []byte(test.file), builtins)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
}

// Whatever a file holds, there is a policy or an error that says where it is.
func FuzzParse(f *testing.F) {
	f.Add("queueing: {mode: Backfill, headWait: 7d}\nzone: {share: 0.5}\n")
	f.Add("kind: SchedulingPolicy\nspec:\n  placement:\n    default: |\n      Binpack\n")
	f.Add("a: &a [*a]\n? [x]\n: !!str y\n---\n<<: {b: c}\n")
	f.Fuzz(func(t *testing.T, file string) {
		_, err := v1alpha1.Parse("p.yaml", []byte(file), builtins)
		if bad := (*workload.Error)(nil); err != nil && !errors.As(err, &bad) {
			t.Errorf("%T: %v", err, err)
		}
	})
}
