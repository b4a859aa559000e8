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
		job + `{kai.scheduler/segment-size: "2", kai.scheduler/segment-topology-preferred-placement: rack}`:                                                                       "prefers rack: batch.kubernetes.io/job-completion-index in (4,5),batch.kubernetes.io/job-name=j",
		job + `{kai.scheduler/segment-size: "2", kai.scheduler/segment-topology-required-placement: block, kai.scheduler/segment-topology-preferred-placement: rack}`:             "block: batch.kubernetes.io/job-completion-index in (4,5),batch.kubernetes.io/job-name=j; prefers rack: batch.kubernetes.io/job-completion-index in (4,5),batch.kubernetes.io/job-name=j",
		job + `{kueue.x-k8s.io/podset-slice-size: "6", kueue.x-k8s.io/podset-slice-required-topology: rack}`:                                                                      "rack: batch.kubernetes.io/job-completion-index in (0,1,2,3,4,5),batch.kubernetes.io/job-name=j",
		job + `{muster.sh/segment-size: "2,8", muster.sh/segment-topology: "rack, block"}`:                                                                                        "rack: batch.kubernetes.io/job-completion-index in (4,5),batch.kubernetes.io/job-name=j; block: batch.kubernetes.io/job-completion-index in (0,1,2,3,4,5,6,7),batch.kubernetes.io/job-name=j",
		job + `{kueue.x-k8s.io/podset-slice-required-topology-constraints: '[{"topology": "block", "size": 4}, {"topology": "rack", "size": "2"}]'}`:                              "rack: batch.kubernetes.io/job-completion-index in (4,5),batch.kubernetes.io/job-name=j; block: batch.kubernetes.io/job-completion-index in (4,5,6,7),batch.kubernetes.io/job-name=j",
		job + `{muster.sh/segment-size: "2,8", muster.sh/segment-topology: rack}`:                                                                                                 "error: muster.sh/segment-size 2,8 with muster.sh/segment-topology rack: expected a level for each size",
		job + `{muster.sh/segment-size: "2", muster.sh/segment-topology: "rack,block"}`:                                                                                           "error: muster.sh/segment-size 2 with muster.sh/segment-topology rack,block: expected a level",
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
			var list []string
			for _, o := range terms {
				if o.Group {
					o.Key = "prefers " + o.Key
				}
				list = append(list, o.Key+": "+strings.TrimPrefix(o.Peers.Name, "ns/"))
				if !o.Peers.Match("ns", nil, LabelsOf(p.Labels).Set()) || o.Anti {
					t.Errorf("%s: the pod is not of its own segment", meta)
				}
			}
			got = strings.Join(list, "; ")
		}
		if got != want && !(strings.HasPrefix(want, "error") && strings.HasPrefix(got, want)) {
			t.Errorf("%s: %q, expected %q", meta, got, want)
		}
	}
}

// Sizes of segments in segments, and slices that cannot be read.
func TestWrongSegments(t *testing.T) {
	for notes, want := range map[string]string{
		`muster.sh/segment-size: "4,6"`: `"4,6": expected a number of pods from 1 to 1000000, or several such as 4,16, each a multiple of the one before`,
		`muster.sh/segment-size: "4,4"`: `"4,4": expected`, `muster.sh/segment-size: "4,"`: `"4,": expected`, `muster.sh/segment-size: "0"`: `"0": expected`,
		`kueue.x-k8s.io/podset-slice-required-topology-constraints: '[]'`:                                                              "expected levels from the widest",
		`kueue.x-k8s.io/podset-slice-required-topology-constraints: '[{"size": 4}]'`:                                                   "expected levels from the widest",
		`kueue.x-k8s.io/podset-slice-required-topology-constraints: '[{"topology": "rack", "sizes": [1, 3]}]'`:                         "sizes [1 3] are not supported: expected one size for all slices of rack",
		`kueue.x-k8s.io/podset-slice-required-topology-constraints: '[{"topology": "rack", "size": 2}, {"topology": "b", "size": 4}]'`: `"4,2": expected a number`,
	} {
		var a Attributes
		if err := a.Read(read[v1.Pod](t, "metadata: {annotations: {"+notes+"}}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", notes, err, want)
		}
	}
}
