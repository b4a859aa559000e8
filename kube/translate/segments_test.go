package translate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The pods of a segment have affinity to each other, by their indices, whatever the scheduler for which they were
// written; what cannot be kept together is an error.
func TestSegment(t *testing.T) {
	const job = `labels: {batch.kubernetes.io/job-name: j, batch.kubernetes.io/job-completion-index: "5"}, annotations: `
	for meta, want := range map[string]string{
		`labels: {batch.kubernetes.io/job-name: j}`:                                                                                                                               "",
		job + `{muster.sh/segment-size: "4", muster.sh/segment-topology: rack}`:                                                                                                   "rack: batch.kubernetes.io/job-completion-index in (4,5,6,7),batch.kubernetes.io/job-name=j",
		job + `{kai.scheduler/segment-size: "2", kai.scheduler/segment-topology-required-placement: rack}`:                                                                        "rack: batch.kubernetes.io/job-completion-index in (4,5),batch.kubernetes.io/job-name=j",
		job + `{kai.scheduler/segment-size: "2", kai.scheduler/segment-topology-preferred-placement: rack}`:                                                                       "",
		job + `{kueue.x-k8s.io/podset-slice-size: "6", kueue.x-k8s.io/podset-slice-required-topology: rack}`:                                                                      "rack: batch.kubernetes.io/job-completion-index in (0,1,2,3,4,5),batch.kubernetes.io/job-name=j",
		job + `{kueue.x-k8s.io/podset-slice-size: "6"}`:                                                                                                                           "error: muster.sh/segment-size without muster.sh/segment-topology",
		job + `{kueue.x-k8s.io/podset-slice-required-topology: rack}`:                                                                                                             "error: muster.sh/segment-topology without muster.sh/segment-size",
		`labels: {app: x}, annotations: {muster.sh/segment-size: "4", muster.sh/segment-topology: rack}`:                                                                          "error: segments of pods without an index",
		`labels: {batch.kubernetes.io/job-name: j, batch.kubernetes.io/job-completion-index: last}, annotations: {muster.sh/segment-size: "4", muster.sh/segment-topology: rack}`: `error: batch.kubernetes.io/job-completion-index: "last": expected the index of a pod`,
		`labels: {batch.kubernetes.io/job-name: j, rank: "9"}, annotations: {muster.sh/segment-size: "4", muster.sh/segment-topology: rack, kai.scheduler/pod-index-label: rank}`: "rack: batch.kubernetes.io/job-name=j,rank in (10,11,8,9)",
		`labels: {jobset.sigs.k8s.io/jobset-name: s, jobset.sigs.k8s.io/replicatedjob-name: w, jobset.sigs.k8s.io/job-index: "3", batch.kubernetes.io/job-name: s-w-3, batch.kubernetes.io/job-completion-index: "1"},
			annotations: {muster.sh/segment-size: "2", muster.sh/segment-topology: rack}`: "rack: batch.kubernetes.io/job-completion-index in (0,1),jobset.sigs.k8s.io/job-index=3,jobset.sigs.k8s.io/jobset-name=s,jobset.sigs.k8s.io/replicatedjob-name=w",
	} {
		p := read[v1.Pod](t, "{metadata: {namespace: ns, name: p, "+meta+"}}")
		var a Attributes
		if err := a.Read(p); err != nil {
			t.Fatal(err)
		}
		got := ""
		switch terms, err := Segment(p, &a); {
		case err != nil:
			got = "error: " + err.Error()
		case len(terms) > 0:
			got = terms[0].Key + ": " + strings.TrimPrefix(terms[0].Peers.Name, "ns/")
			if !terms[0].Peers.Match("ns", nil, LabelsOf(p.Labels).Set()) || terms[0].Anti {
				t.Errorf("%s: the pod is not of its own segment", meta)
			}
		}
		if got != want && !(strings.HasPrefix(want, "error") && strings.HasPrefix(got, want)) {
			t.Errorf("%s: %q, expected %q", meta, got, want)
		}
	}
}
