package owners

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// read reads an object in YAML.
func read(t *testing.T, doc string) map[string]any {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return o.Object
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		object string
		want   Gang
	}{
		{`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, spec: {minMember: 3, queue: q, priorityClassName: c}}`,
			Gang{Min: 3, Attributes: translate.Attributes{Queue: "q", PriorityClass: "c"}}},
		{`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, spec: {minMember: 3, minTaskMember: {ps: 1, worker: 2}}}`,
			Gang{Min: 3, Roles: map[string]int{"ps": 1, "worker": 2}}},
		{`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, spec: {minMember: 2, minTaskMember: {ps: 1, worker: 2}}}`, Gang{Min: 2}},
		{`{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {annotations: {
			gang.scheduling.koordinator.sh/network-topology-spec: '{"gatherStrategy": [{"layer": "SpineLayer", "strategy": "MustGather"}, {"layer": "BlockLayer", "strategy": "PreferGather"}, {"layer": "NodeTopologyLayer", "strategy": "PreferGather"}]}'}},
			spec: {minMember: 3}}`, Gang{Min: 3, Attributes: translate.Attributes{Required: "SpineLayer", Preferred: "BlockLayer,node"}}},
		{`{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, spec: {minMember: 2, queue: q, preemptibility: non-preemptible, topologyConstraint: {requiredTopologyLevel: rack, preferredTopologyLevel: hbd},
			subGroups: [{name: all}, {name: a, parent: all, minMember: 2}, {name: b, minMember: 1, parent: all}]}}`,
			Gang{Min: 2, Roles: map[string]int{"a": 2, "b": 1}, Attributes: translate.Attributes{Queue: "q", Required: "rack", Preferred: "hbd", NotPreemptible: true, PreemptibleGiven: true}}},
		{`{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, spec: {minMember: 5, subGroups: [{name: all, topologyConstraint: {requiredTopologyLevel: block}},
			{name: a, parent: all, minMember: 2, topologyConstraint: {requiredTopologyLevel: rack}}, {name: b, minMember: 2, parent: all}, {name: c, minMember: 1}]}}`,
			Gang{Min: 5, Roles: map[string]int{"a": 2, "b": 2, "c": 1}, Levels: map[string][]Level{"a": {{"a", "rack", false}, {"all", "block", false}}, "all": {{"all", "block", false}}, "b": {{"all", "block", false}}}}},
		{`{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, spec: {minMember: 2, subGroups: [{name: a, minMember: 2, topologyConstraint: {requiredTopologyLevel: block, preferredTopologyLevel: rack}}]}}`,
			Gang{Min: 2, Roles: map[string]int{"a": 2}, Levels: map[string][]Level{"a": {{"a", "block", false}, {"a", "rack", true}}}}},
		{`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {minAvailable: 5}}`, Gang{Min: 5}},
		{`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {labels: {kueue.x-k8s.io/queue-name: q}}, spec: {pytorchReplicaSpecs: {Master: {}, Worker: {replicas: 7}}}}`,
			Gang{Min: 8, Attributes: translate.Attributes{Queue: "q"}}},
		{`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {runPolicy: {schedulingPolicy: {minAvailable: 4, queue: q}}, pytorchReplicaSpecs: {Worker: {replicas: 7}}}}`,
			Gang{Min: 4, Attributes: translate.Attributes{Queue: "q"}}},
		{`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{replicas: 2, template: {spec: {parallelism: 4, completions: 3}}}, {template: {spec: {}}}]}}`, Gang{Min: 7}},
		{`{apiVersion: ray.io/v1, kind: RayCluster, spec: {workerGroupSpecs: [{groupName: a, replicas: 4, minReplicas: 2, numOfHosts: 3}, {groupName: b, replicas: 5}, {groupName: c, minReplicas: 0}]}}`,
			Gang{Min: 12, Roles: map[string]int{"headgroup": 1, "a": 6, "b": 5}}},
		{`{apiVersion: batch/v1, kind: Job, spec: {parallelism: 3}}`, Gang{}},
		{`{apiVersion: batch/v1, kind: Job, metadata: {labels: {kueue.x-k8s.io/queue-name: q}}, spec: {parallelism: 20}}`, Gang{Min: 20, Attributes: translate.Attributes{Queue: "q"}}},
		{`{apiVersion: batch/v1, kind: Job, metadata: {labels: {kueue.x-k8s.io/queue-name: q}}, spec: {parallelism: 20, completions: 10}, status: {succeeded: 4}}`, Gang{Min: 6, Attributes: translate.Attributes{Queue: "q"}}},
		{`{apiVersion: batch/v1, kind: Job, metadata: {labels: {kueue.x-k8s.io/queue-name: q}, annotations: {kueue.x-k8s.io/job-min-parallelism: "5"}}, spec: {parallelism: 20}}`, Gang{Min: 5, Attributes: translate.Attributes{Queue: "q"}}},
		{`{apiVersion: batch/v1, kind: Job, metadata: {labels: {muster.sh/queue: q}}, spec: {parallelism: 20}}`, Gang{Attributes: translate.Attributes{Queue: "q"}}},
		{`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, spec: {minMember: 3, networkTopology: {mode: hard, highestTierAllowed: 2}}}`, Gang{Min: 3, Attributes: translate.Attributes{Required: "tier 2"}}},
		{`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, spec: {minMember: 3, networkTopology: {mode: soft, highestTierName: rack}}}`, Gang{Min: 3, Attributes: translate.Attributes{Preferred: "rack"}}},
		{`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {elasticPolicy: {minReplicas: 2}, pytorchReplicaSpecs: {Master: {}, Worker: {replicas: 7}}}}`, Gang{Min: 3}},
		{`{apiVersion: ray.io/v1, kind: RayCluster}`, Gang{}},
	} {
		if got, err := Of(&unstructured.Unstructured{Object: read(t, c.object)}); err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, %v; expected %+v", c.object, got, err, c.want)
		}
	}
}

// What is written on pods is what their object says and they do not.
func TestNotes(t *testing.T) {
	g := Gang{Min: 3, Attributes: translate.Attributes{Queue: "q", PriorityClass: "c", NotPreemptible: true, PreemptibleGiven: true, Required: "rack", OnFailure: "requeue"}}
	want := map[string]string{"muster.sh/queue": "q", "muster.sh/priority-class": "c", "muster.sh/min-member": "3", "muster.sh/preemptible": "false", "muster.sh/required-topology": "rack", "muster.sh/on-failure": "requeue"}
	if got := g.Notes(&translate.Attributes{}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got := g.Notes(&translate.Attributes{Queue: "p", PriorityClass: "d", PreemptibleGiven: true, Required: "hbd", OnFailure: "replace", MinMember: 2}); len(got) != 0 {
		t.Errorf("%v", got)
	}
	g = Gang{Min: 3, Roles: map[string]int{"b": 1, "a": 2}}
	if got := g.Notes(&translate.Attributes{}); !reflect.DeepEqual(got, map[string]string{"muster.sh/min-member": "a=2,b=1"}) {
		t.Errorf("%v", got)
	}
	// A scheduler that starts again reads the same of the pod.
	all := translate.Attributes{
		Queue: "q", Kind: core.Batch, KindGiven: true, Class: core.LP, ClassGiven: true, NotPreemptible: true, PreemptibleGiven: true, Locked: true, LockedGiven: true, MinRuntime: 90 * core.Second,
		Checkpoint: 10 * core.Second, Estimate: 3600 * core.Second, Required: "rack", Preferred: "hbd", PriorityClass: "c", OnFailure: "requeue",
	}
	var again translate.Attributes
	err := again.Read(&metav1.ObjectMeta{Annotations: (&Gang{Attributes: all}).Notes(&translate.Attributes{})})
	if err != nil || !reflect.DeepEqual(again, all) {
		t.Errorf("%+v, %v; expected %+v", again, err, all)
	}
	if got := (&Gang{Attributes: all}).Notes(&all); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := (&Gang{}).Notes(&translate.Attributes{}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// What an object asks for that Muster does not have is an error that says what to write instead.
func TestWrong(t *testing.T) {
	for object, want := range map[string]string{
		`{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g}, spec: {minMember: 4, subGroups: [{name: a, parent: b}, {name: b, parent: a}, {name: c, parent: a, minMember: 2, topologyConstraint: {requiredTopologyLevel: rack}}]}}`: "PodGroup g: subGroups: a is in itself",
		`{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g}, spec: {minSubGroup: 2, subGroups: [{name: a}]}}`:                                                                                                                       "PodGroup g: minSubGroup is not supported",
		`{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g}, spec: {preemptibility: semi-preemptible}}`:                                                                                                                             "PodGroup g: preemptibility semi-preemptible is not supported",
		`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: g}, spec: {subGroupPolicy: [{name: a}]}}`:                                                                                                                               "PodGroup g: subGroupPolicy is not supported",
		`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: g}, spec: {networkTopology: {mode: hard}}}`:                                                                                                                             "PodGroup g: networkTopology: mode hard without a highest tier",
		`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: g}, spec: {networkTopology: {mode: firm, highestTierAllowed: 1}}}`:                                                                                                      `PodGroup g: networkTopology: mode "firm": expected hard or soft`,
		`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j}, spec: {tasks: [{}, {partitionPolicy: {totalPartitions: 2}}]}}`:                                                                                                               "Job j: tasks[1].partitionPolicy is not supported",
		`{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}, annotations: {kueue.x-k8s.io/job-min-parallelism: few}}, spec: {}}`:                                                                                    `Job j: kueue.x-k8s.io/job-min-parallelism: "few": expected a number of pods`,
		`{apiVersion: batch/v1, kind: Job, metadata: {name: j, annotations: {kueue.x-k8s.io/podset-slice-required-topology: rack}}, spec: {}}`:                                                                                                                "Job j: segments are of pods",
		`{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {muster.sh/gang: g}}, spec: {template: {metadata: {labels: {a: b}}}}}`:                                                                                                                 "Job j: muster.sh/gang counts on pods alone: expected it in the template of the pods",
		`{apiVersion: example.com/v1, kind: App, metadata: {name: j, labels: {runai/node-pool: a}}}`:                                                                                                                                                          "App j: runai/node-pool counts on pods alone",
		`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {metadata: {annotations: {muster.sh/dependency: "afterok:a"}}}}}`:                                                                                                            "Job j: muster.sh/dependency counts on what makes pods alone: expected it in the metadata of the Job itself",
	} {
		_, err := Of(&unstructured.Unstructured{Object: read(t, object)})
		if wrong := (*WrongError)(nil); !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; expected %s", object, err, want)
		}
	}
}

// Keys of pods may be on their owners too, where a template has them.
func TestKeysOfPodsOnOwners(t *testing.T) {
	for _, object := range []string{
		`{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {muster.sh/pool: a}}, spec: {template: {metadata: {labels: {muster.sh/pool: a}}}}}`,
		`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j, labels: {muster.sh/gang: g}}, spec: {replicatedJobs: [{name: a, template: {spec: {template: {metadata: {annotations: {muster.sh/gang: g}}}}}}]}}`,
		`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j}, spec: {replicatedJobs: [{name: a, template: {metadata: {annotations: {muster.sh/dependency: "afterok:b"}}}}]}}`,
	} {
		if _, err := Of(&unstructured.Unstructured{Object: read(t, object)}); err != nil {
			t.Errorf("%s: %v", object, err)
		}
	}
}

// An owner that makes pods when others run, or are done, has a gang for each stage.
func TestStages(t *testing.T) {
	const three = `replicatedJobs: [{name: a, replicas: 2}, {name: b, template: {spec: {parallelism: 3}}%s}, {name: c%s}]`
	jobSet := func(rest, b, c string) string {
		return `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {` + rest + fmt.Sprintf(three, b, c) + `}}`
	}
	const ready, complete = `, dependsOn: [{name: a, status: Ready}]`, `, dependsOn: [{name: a, status: Complete}]`
	for object, want := range map[string]string{
		jobSet("", "", ""): "6",
		jobSet("startupPolicy: {startupPolicyOrder: AnyOrder}, ", "", ""): "6",
		jobSet("startupPolicy: {startupPolicyOrder: InOrder}, ", "", ""):  "6: a 2, b 3, c 1",
		jobSet("", ready, ready):    "6: a 2, b+c 4",
		jobSet("", ready, ""):       "6: a+c 3, b 3",
		jobSet("", ready, complete): "6: a 2, b 3, c 1",
		`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [{name: a}]}}`:                                                             "1",
		`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {labels: {muster.sh/min-member: "1"}}, spec: {startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [{name: a}, {name: b}]}}`: "1",
		`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {leaderWorkerTemplate: {size: 4}}}`:                                                                                           "4",
		`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 4}}}`:                                                               "4: leader 1, worker 3",
		`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 1}}}`:                                                               "1",
		`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {mpiReplicaSpecs: {Launcher: {}, Worker: {replicas: 3}}}}`:                                                                                    "4",
		`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {Launcher: {}, Worker: {replicas: 3}}}}`:                                       "4: worker 3, launcher 1",
	} {
		g := &Gang{}
		if err := g.Under(&unstructured.Unstructured{Object: read(t, object)}); err != nil {
			t.Fatal(err)
		}
		var stages []string
		for _, s := range g.Stages {
			stages = append(stages, fmt.Sprint(s.Name, " ", s.Min))
			for _, role := range s.Roles {
				if got := g.StageOf(role); got != s.Name {
					t.Errorf("%s: role %s is of stage %s", object, role, got)
				}
			}
			if only := g.Only(s.Name); only.Min != s.Min || only.Stage != s.Name || only.Stages != nil || only.Notes(&translate.Attributes{})[v1alpha1.StageAnnotation] != s.Name {
				t.Errorf("%s: of stage %s alone: %+v", object, s.Name, only)
			}
		}
		got := fmt.Sprint(g.Min)
		if stages != nil {
			got += ": " + strings.Join(stages, ", ")
		}
		if got != want {
			t.Errorf("%s: %s, expected %s", object, got, want)
		}
		if only := g.Only("other"); only.Min != 0 {
			t.Errorf("a stage that there is not has %d pods", only.Min)
		}
	}
}

// What an object says counts before what its owner says, key by key.
func TestUnder(t *testing.T) {
	g := &Gang{}
	for _, doc := range []string{
		`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {annotations: {muster.sh/preemptible: "true"}}}`,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {labels: {kai.scheduler/queue: q, kai.scheduler/preemptibility: non-preemptible}, annotations: {kai.scheduler/batch-min-member: "2"}}}`,
		`{apiVersion: example.com/v1, kind: App, metadata: {labels: {muster.sh/queue: top, muster.sh/min-member: "3", muster.sh/user: ann}}}`,
	} {
		if err := g.Under(&unstructured.Unstructured{Object: read(t, doc)}); err != nil {
			t.Fatal(err)
		}
	}
	want := Gang{Min: 2, Attributes: translate.Attributes{Queue: "q", MinMember: 2, PreemptibleGiven: true, User: "ann"}}
	if !reflect.DeepEqual(*g, want) {
		t.Errorf("%+v; expected %+v", *g, want)
	}
}

// A gang of more pods than can be is one of very many, not of fewer than none.
func TestBeyondBounds(t *testing.T) {
	for _, most := range []any{int64(math.MaxInt64), 1e300, math.Inf(1)} {
		for kind, spec := range map[string]map[string]any{
			"batch.volcano.sh/v1alpha1 Job": {"minAvailable": most},
			"jobset.x-k8s.io/v1alpha2 JobSet": {"replicatedJobs": []any{
				map[string]any{"replicas": most, "template": map[string]any{"spec": map[string]any{"parallelism": most}}},
				map[string]any{"replicas": most, "template": map[string]any{"spec": map[string]any{"parallelism": most}}},
			}},
			"ray.io/v1 RayCluster":       {"workerGroupSpecs": []any{map[string]any{"groupName": "g", "replicas": most, "numOfHosts": most}}},
			"kubeflow.org/v1 PyTorchJob": {"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{"replicas": most}, "Master": map[string]any{"replicas": most}}},
		} {
			version, kind, _ := strings.Cut(kind, " ")
			g, err := Of(&unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "spec": spec}})
			if err != nil || g.Min < maxCount || g.Min > 4*maxCount {
				t.Errorf("%s of %v: %+v, %v", kind, most, g, err)
			}
		}
	}
	for _, none := range []any{int64(math.MinInt64), -1e300, math.NaN(), math.Inf(-1)} {
		g, err := Of(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": map[string]any{"minAvailable": none}}})
		if err != nil || g.Min != 0 {
			t.Errorf("%v: %+v, %v", none, g, err)
		}
	}
}

// No object, however wrong, is a gang of fewer pods than none.
func FuzzOf(f *testing.F) {
	for _, seed := range []string{
		`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{replicas: 9223372036854775807, template: {spec: {parallelism: 9223372036854775807}}}]}}`,
		`{apiVersion: ray.io/v1, kind: RayCluster, spec: {workerGroupSpecs: [{groupName: a, replicas: 1e300, numOfHosts: -1e300}]}}`,
		`{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, spec: {minMember: 3, minTaskMember: {ps: 9223372036854775807, worker: 2}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]any
		if len(text) > 4096 || yaml.Unmarshal(text, &object) != nil || object == nil {
			return
		}
		g, _ := Of(&unstructured.Unstructured{Object: object})
		sum := 0
		for _, n := range g.Roles {
			sum += n
		}
		if g.Min < 0 || sum < 0 {
			t.Errorf("a gang of %d pods, %v", g.Min, g.Roles)
		}
	})
}
