package translate

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// A gang in segments: of its pods, in the order of their indices, each so many are in one domain of a level, such as
// the 18 nodes of a rack. The pods of a segment have affinity to each other, by the labels of their job and by their
// indices; the first of them can start where there is room for all. Segments may be in wider segments of another level.

// indexLabels name the label with the index of a pod, where its author says which that is.
var indexLabels = only("kai.scheduler/pod-index-label", "kueue.x-k8s.io/pod-group-pod-index-label")

// indices are the labels with which controllers number their pods, and those that pods with other indices of the same
// owner share; the first counts of which a pod has all.
var indices = []struct {
	index string
	of    []string
}{
	{"kueue.x-k8s.io/pod-group-pod-index", only("kueue.x-k8s.io/pod-group-name")},
	{"leaderworkerset.sigs.k8s.io/worker-index", only("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index")},
	{"training.kubeflow.org/replica-index", only("training.kubeflow.org/job-name", "training.kubeflow.org/replica-type")},
	{"training.kubeflow.org/replica-index", only("training.kubeflow.org/job-name", "training.kubeflow.org/job-role")},
	{"volcano.sh/task-index", only("volcano.sh/job-name", "volcano.sh/task-spec")},
	{"batch.kubernetes.io/job-completion-index", only("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index")},
	{"batch.kubernetes.io/job-completion-index", only("batch.kubernetes.io/job-name")},
}

// segmentSizes reads the numbers of pods of segments, each in the segments after it: 4 or 4,16.
func segmentSizes(v string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(v, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > core.MaxPods || len(out) > 0 && (n <= out[len(out)-1] || n%out[len(out)-1] != 0) {
			return nil, fmt.Errorf("%q: expected a number of pods from 1 to %d, or several such as 4,16, each a multiple of the one before", v, core.MaxPods)
		}
		out = append(out, n)
	}
	return out, nil
}

// Segment returns what a pod requires of the other pods of its segments, of each level one term; none if its gang has no
// segments. An error says what is missing.
func Segment(p *v1.Pod, a *Attributes) ([]Term, error) {
	_, near, preferred := lookup(p, only("kai.scheduler/segment-topology-preferred-placement"))
	switch {
	case a.SegmentSize == "" && a.SegmentTopology == "":
		return nil, nil
	case a.SegmentTopology == "" && !preferred:
		return nil, fmt.Errorf("%s without %s: expected the level of which one domain holds a segment", v1alpha1.SegmentSizeAnnotation, v1alpha1.SegmentTopologyAnnotation)
	case a.SegmentSize == "":
		return nil, fmt.Errorf("%s without %s: expected the number of pods of a segment", v1alpha1.SegmentTopologyAnnotation, v1alpha1.SegmentSizeAnnotation)
	}
	sizes, err := segmentSizes(a.SegmentSize)
	levels := strings.Split(cmp.Or(a.SegmentTopology, near), ",")
	if err == nil && len(sizes) != len(levels) {
		err = fmt.Errorf("%s %s with %s %s: expected a level for each size", v1alpha1.SegmentSizeAnnotation, a.SegmentSize, v1alpha1.SegmentTopologyAnnotation, a.SegmentTopology)
	}
	if err != nil {
		return nil, err
	}
	key, of, index, err := indexOf(p)
	if err != nil {
		return nil, err
	}
	var out []Term
	for i, size := range sizes {
		in := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn}
		for k := range size {
			in.Values = append(in.Values, strconv.Itoa(index/size*size+k))
		}
		pods, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: of, MatchExpressions: []metav1.LabelSelectorRequirement{in}})
		if err != nil {
			return nil, fmt.Errorf("segments: %w", err)
		}
		t := Term{Peers: newPeers([]peer{{namespaces: []string{p.Namespace}, pods: pods}}), Key: strings.TrimSpace(levels[i])}
		if a.SegmentTopology != "" {
			out = append(out, t)
		}
		if preferred && i == 0 {
			t.Key, t.Weight, t.Group = near, cluster.MaxWeight, true
			out = append(out, t)
		}
	}
	return out, nil
}

// indexOf returns the label with the index of a pod, the labels that all pods with such an index have, and the index.
func indexOf(p *v1.Pod) (key string, of labels.Set, index int, err error) {
	_, named, given := lookup(p, indexLabels)
	for _, i := range indices {
		of = labels.Set{}
		for _, k := range i.of {
			if v, ok := p.Labels[k]; ok {
				of[k] = v
			}
		}
		if key = i.index; given {
			key = named
		}
		if v, ok := p.Labels[key]; ok && len(of) == len(i.of) {
			if index, err = strconv.Atoi(v); err != nil || index < 0 || index > core.MaxPods {
				return "", nil, 0, fmt.Errorf("%s: %q: expected the index of a pod", key, v)
			}
			return key, of, index, nil
		}
	}
	return "", nil, 0, errors.New("segments of pods without an index: expected pods of an Indexed Job, of a JobSet, or with another label that numbers them, as the migration page lists")
}
