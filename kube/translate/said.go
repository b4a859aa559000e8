package translate

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/keys"
)

// Said are the values of a pod's labels and annotations that count from its binding until
// it ends: its queue, gang, priority and GPUs. Users who may write the pod can change the
// labels, but the changes have no effect.
type Said struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// PodGroup is the same of the pod's PodGroup, in records alone.
	PodGroup *Said `json:"podGroup,omitempty"`
}

// settled are the keys that [Said] has. Those that may change as a job runs are not
// among them: when it last saved its progress, how long it still takes, and whether its pods
// may be moved.
var settled = func() map[string]bool {
	out := map[string]bool{}
	add := func(list ...string) {
		for _, k := range list {
			out[k] = true
		}
	}
	for i := range attributes {
		add(attributes[i].keys...)
	}
	add(v1alpha1.GangLabel)
	add(poolLabels...)
	for _, p := range keys.Peers {
		for _, k := range p.Keys {
			if k.Answer == keys.Honoured {
				add(k.Name)
			}
		}
	}
	add(v1alpha1.GPUsAnnotation, v1alpha1.NICsAnnotation, v1alpha1.ShareAnnotation, v1alpha1.BackfilledAnnotation)
	for _, k := range slices.Concat(keys.Same(v1alpha1.LastCheckpointAnnotation), keys.Same(v1alpha1.WalltimeAnnotation), mobilityKeys) {
		delete(out, k)
	}
	return out
}()

// SaidBy returns what labels and annotations of a pod, or of a PodGroup, say now.
func SaidBy(o keys.Labelled) Said {
	only := func(table map[string]string) map[string]string {
		var out map[string]string
		for k, v := range table {
			if settled[k] {
				if out == nil {
					out = map[string]string{}
				}
				out[k] = v
			}
		}
		return out
	}
	return Said{Labels: only(o.GetLabels()), Annotations: only(o.GetAnnotations())}
}

// String writes it, the same for the same.
func (s Said) String() string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has nothing that cannot be written
	}
	return string(data)
}

// ReadSaid reads what [Said.String] wrote; nothing from other text.
func ReadSaid(text string) Said {
	var s Said
	if json.Unmarshal([]byte(text), &s) != nil {
		return Said{}
	}
	return s
}

// Record returns what Muster wrote of a pod in the condition
// [v1alpha1.AdmittedCondition], and of its PodGroup; both empty when it wrote nothing
// that can be read. Conditions are in the status of a pod, which who may write the pod
// may not write.
func Record(p *v1.Pod) (pod, group string) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1alpha1.AdmittedCondition {
			var s Said
			if json.Unmarshal([]byte(c.Message), &s) != nil {
				return "", ""
			}
			if s.PodGroup != nil {
				group = s.PodGroup.String()
			}
			s.PodGroup = nil
			return s.String(), group
		}
	}
	return "", ""
}

// Recorded is what to write into the condition, so that [Record] returns the same; group
// is empty for a pod without a PodGroup.
func Recorded(pod, group string) string {
	s := ReadSaid(pod)
	if group != "" {
		of := ReadSaid(group)
		s.PodGroup = &of
	}
	return s.String()
}

// AsAdmitted returns a pod that says what the record has in place of what it says
// now. The pod is left as it is.
func AsAdmitted(p *v1.Pod, record string) *v1.Pod {
	s := ReadSaid(record)
	restore := func(now, then map[string]string) map[string]string {
		out := maps.Clone(then)
		if out == nil {
			out = map[string]string{}
		}
		for k, v := range now {
			if !settled[k] {
				out[k] = v
			}
		}
		return out
	}
	q := *p
	q.Labels, q.Annotations = restore(p.Labels, s.Labels), restore(p.Annotations, s.Annotations)
	return &q
}

// Differences lists the keys that one says and the other does not, or otherwise.
func Differences(a, b string) []string {
	if a == b { // as nearly always: there is nothing to parse
		return nil
	}
	x, y := ReadSaid(a), ReadSaid(b)
	other := map[string]bool{}
	compare := func(x, y map[string]string) {
		for k, v := range x {
			if w, ok := y[k]; !ok || w != v {
				other[k] = true
			}
		}
	}
	compare(x.Labels, y.Labels)
	compare(y.Labels, x.Labels)
	compare(x.Annotations, y.Annotations)
	compare(y.Annotations, x.Annotations)
	return slices.Sorted(maps.Keys(other))
}
