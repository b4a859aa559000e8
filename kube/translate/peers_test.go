package translate

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/keys"
)

// values are what users write of keys that do not take any text.
var values = map[string]string{
	"kai.scheduler/preemptibility": "non-preemptible", "kai.scheduler/batch-min-member": "3", "kai.scheduler/min-runtime": "5m", "kai.scheduler/staleness-grace-period": "60s",
	"gpu-fraction": "0.5", "gpu-memory": "2000", "gpu-fraction-num-devices": "2", // which is an error
	"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/max-exec-time-seconds": "60",
	"scheduling.volcano.sh/group-min-member": "3", "volcano.sh/preemptable": "false", "volcano.sh/cooldown-time": "10m", "volcano.sh/network-topology-mode": "soft",
	"volcano.sh/network-topology-highest-tier": "1", "yunikorn.apache.org/task-groups": `[{"name": "a", "minMember": 2}]`,
	"yunikorn.apache.org/schedulingPolicyParameters": "gangSchedulingStyle=Hard", "yunikorn.apache.org/allow-preemption": "false", "yunikorn.apache.org/user.info": `{"user": "ann"}`,
	"quota.scheduling.koordinator.sh/preemptible": "false", "gang.scheduling.koordinator.sh/min-available": "3", "gang.scheduling.koordinator.sh/groups": `["default/a", "default/b"]`,
	"gang.scheduling.koordinator.sh/network-topology-spec": `{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather"}]}`, "koordinator.sh/qosClass": "BE",
	"kai.scheduler/segment-size": "2", "kueue.x-k8s.io/podset-slice-size": "2", "kai.scheduler/segment-topology-preferred-placement": "rack", "kai.scheduler/pod-index-label": "rank", "kueue.x-k8s.io/pod-group-pod-index-label": "rank",
	keys.KueueSlices:                     `[{"topology": "block", "size": 4}, {"topology": "rack", "size": "2"}]`,
	"kueue.x-k8s.io/pod-group-pod-index": "3", "training.kubeflow.org/replica-index": "3", "volcano.sh/task-index": "3",

	"pod-group.scheduling.sigs.k8s.io/min-available": "3", "leaderworkerset.sigs.k8s.io/size": "4", "leaderworkerset.sigs.k8s.io/worker-index": "0", "training.kubeflow.org/operator-name": "mpi-operator",
}

// beside are keys that count only with others.
var beside = map[string]map[string]string{
	"queue": {"applicationId": "a"}, "yunikorn.apache.org/app-id": {"yunikorn.apache.org/task-group-name": "w"}, "applicationId": {"yunikorn.apache.org/task-group-name": "w"},
	"gang.scheduling.koordinator.sh/groups": {"gang.scheduling.koordinator.sh/name": "a"}, "volcano.sh/network-topology-mode": {"volcano.sh/network-topology-highest-tier": "1"},
	"spark-role": {"applicationId": "a", "yunikorn.apache.org/task-group-name": "w"},
	"leaderworkerset.sigs.k8s.io/group-index": {"leaderworkerset.sigs.k8s.io/name": "x"}, "leaderworkerset.sigs.k8s.io/size": {"leaderworkerset.sigs.k8s.io/name": "x"},
	"leaderworkerset.sigs.k8s.io/worker-index": {"leaderworkerset.sigs.k8s.io/name": "x"}, "training.kubeflow.org/job-name": {"training.kubeflow.org/operator-name": "mpi-operator"},
	"training.kubeflow.org/operator-name": {"training.kubeflow.org/job-name": "x"},
}

// segments are keys that count for pods in segments.
var segments = map[string]map[string]string{
	"kai.scheduler/segment-size": {}, "kueue.x-k8s.io/podset-slice-size": {}, "kai.scheduler/segment-topology-required-placement": {}, "kueue.x-k8s.io/podset-slice-required-topology": {}, keys.KueueSlices: {},
	"kai.scheduler/segment-topology-preferred-placement": {"muster.sh/segment-size": "2"},
	"kai.scheduler/pod-index-label":                      inSegments("kueue.x-k8s.io/pod-group-name", "rank"), "kueue.x-k8s.io/pod-group-pod-index-label": inSegments("kueue.x-k8s.io/pod-group-name", "rank"),
	"kueue.x-k8s.io/pod-group-pod-index":  inSegments("kueue.x-k8s.io/pod-group-name", ""),
	"training.kubeflow.org/replica-index": inSegments("training.kubeflow.org/job-name", "training.kubeflow.org/replica-type"),
	"volcano.sh/task-index":               inSegments("volcano.sh/job-name", "volcano.sh/task-spec"), "volcano.sh/job-name": inSegments("volcano.sh/task-spec", "volcano.sh/task-index"),
	"jobset.sigs.k8s.io/job-index": {"muster.sh/segment-size": "2", "muster.sh/segment-topology": "rack", "batch.kubernetes.io/job-completion-index": "3", "batch.kubernetes.io/job-name": "j",
		"jobset.sigs.k8s.io/jobset-name": "s", "jobset.sigs.k8s.io/replicatedjob-name": "r"},
}

func inSegments(of, and string) map[string]string {
	out := map[string]string{"muster.sh/segment-size": "2", "muster.sh/segment-topology": "rack", of: "x"}
	if and != "" {
		out[and] = "3"
	}
	return out
}

// onOwners are keys that count on the owners of pods alone; kube/owners reads them.
var onOwners = map[string]bool{"kueue.x-k8s.io/job-min-parallelism": true}

type understood struct {
	Attributes Attributes
	Membership Membership
	Pool       Pool
	Segment    []string // the pods of its segment
	Wrong      string
}

func understand(of map[string]string) understood {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Labels: of, Annotations: of}}
	var u understood
	if err := u.Attributes.Read(p); err != nil {
		u.Wrong = err.Error()
	}
	u.Membership = MembershipOf(p, &u.Attributes)
	r, err := Request(p, &u.Attributes)
	if err != nil {
		u.Wrong += err.Error()
	}
	u.Pool = PodPool(p, &r)
	terms, err := Segment(p, &u.Attributes)
	for _, t := range terms {
		u.Segment = append(u.Segment, t.Key+" "+t.Peers.Name)
	}
	if err != nil {
		u.Wrong += err.Error()
	}
	return u
}

// What the table says of each key is so: one that is honoured changes what is read of a pod, one that is
// irrelevant does not, and one that is refused is an error that names it.
func TestKeysOfPeers(t *testing.T) {
	for _, peer := range keys.Peers {
		for _, k := range peer.Keys {
			if onOwners[k.Name] {
				continue
			}
			value := values[k.Name]
			if value == "" {
				value = "x"
			}
			with := map[string]string{}
			for _, beside := range []map[string]string{beside[k.Name], segments[k.Name]} {
				for name, v := range beside {
					with[name] = v
				}
			}
			before := understand(with)
			with[k.Name] = value
			switch after := understand(with); k.Answer {
			case keys.Honoured:
				if reflect.DeepEqual(before, after) {
					t.Errorf("%s says %q, and nothing changes", k.Name, value)
				}
				if wrong := after.Wrong != before.Wrong; wrong != (k.Name == "gpu-fraction-num-devices") && segments[k.Name] == nil {
					t.Errorf("%s says %q: %s", k.Name, value, after.Wrong)
				}
			case keys.Irrelevant:
				if !reflect.DeepEqual(before, after) {
					t.Errorf("%s is irrelevant, and %+v becomes %+v", k.Name, before, after)
				}
			case keys.Refused:
				for _, v := range k.Harmless {
					if with[k.Name] = v; understand(with).Wrong != "" {
						t.Errorf("%s: %q is harmless, and wrong: %s", k.Name, v, understand(with).Wrong)
					}
				}
				if after.Wrong == "" {
					t.Errorf("%s is refused, and nothing says so", k.Name)
				}
			}
		}
	}
}
