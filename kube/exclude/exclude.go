// Package exclude says which conditions of a pod keep it off the nodes of a cluster, each with the number of nodes that it
// excludes and, where a name is misspelt, the one that was probably meant.
package exclude

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/internal/spelling"
)

// most is how many conditions are named, those first that exclude most nodes.
const most = 4

// Nodes says how many nodes each condition of a request excludes, as they are when empty: "of 12 nodes, 12 have no label
// disk=ssd; 4 have fewer than 8 GPUs". It is empty if there are no nodes, or no condition excludes any.
func Nodes(r *core.Request, nodes iter.Seq[*core.Node]) string {
	n, excluded := 0, map[string]int{}
	seen := known{keys: map[string]bool{}, values: map[string]map[string]bool{}, models: map[string]bool{}, amounts: map[string]bool{}}
	for q := range selectors(r) {
		seen.values[q.Key] = map[string]bool{}
	}
	for node := range nodes {
		n++
		seen.add(node)
		for _, why := range reasons(r, node) {
			excluded[why]++
		}
	}
	if len(excluded) == 0 {
		return ""
	}
	list := slices.SortedFunc(maps.Keys(excluded), func(a, b string) int {
		return cmp.Or(cmp.Compare(excluded[b], excluded[a]), cmp.Compare(a, b))
	})
	var out []string
	for _, why := range list[:min(len(list), most)] {
		out = append(out, fmt.Sprint(excluded[why], " ", why))
	}
	return fmt.Sprintf("of %d nodes, %s%s", n, strings.Join(out, "; "), seen.meant(r))
}

// Advice says what has to change for a job that waits with a message that [Nodes] has written a part of: not smaller pods where a name is
// wrong, or where no node has what it asks for. It is empty if amounts are too large, or nothing is known.
func Advice(message string) string {
	_, list, found := strings.Cut(message, "of ")
	for ; found; _, list, found = strings.Cut(list, "of ") {
		total, rest, ok := strings.Cut(list, " nodes, ")
		if _, err := strconv.Atoi(total); ok && err == nil {
			return advice(total+" ", rest)
		}
	}
	return ""
}

func advice(all, list string) string {
	if strings.Contains(list, ": did you mean ") {
		return "What is misspelt must be corrected, as the reason says. Waiting does not help."
	}
	for part := range strings.SplitSeq(list, "; ") {
		switch why, ofAll := strings.CutPrefix(part, all); {
		case !ofAll || strings.HasPrefix(why, "have fewer ") || strings.HasPrefix(why, "have less "):
		case strings.HasPrefix(why, "take no pods"):
			return "Nodes must take pods again: all are cordoned."
		default:
			return "What excludes all nodes must be corrected, as the reason says, or nodes that have it must be added. Waiting does not help."
		}
	}
	return ""
}

// reasons lists the conditions of a request that a node does not meet.
func reasons(r *core.Request, n *core.Node) []string {
	var out []string
	add := func(holds bool, why string) {
		if !holds {
			out = append(out, why)
		}
	}
	for i := range r.Selector {
		q := &r.Selector[i]
		add(holds(q, n.Labels), "have no label "+words(q))
	}
	add(len(r.AnyOf) == 0 || slices.ContainsFunc(r.AnyOf, func(all []core.Requirement) bool {
		return !slices.ContainsFunc(all, func(q core.Requirement) bool { return !holds(&q, n.Labels) })
	}), "match none of the terms of its node affinity")
	if r.GPU > 0 && len(r.Models) > 0 {
		add(n.GPUs > 0 && slices.Contains(r.Models, n.Model), "have no GPUs of model "+strings.Join(r.Models, " or "))
	}
	gpus := int((r.GPU + core.WholeGPU - 1) / core.WholeGPU)
	add(n.GPUs >= gpus, fmt.Sprintf("have fewer than %d GPUs", gpus))
	add(n.CPUMilli >= r.CPUMilli, "have less CPU than the pod requests")
	add(n.MemMiB >= r.MemMiB, "have less memory than the pod requests")
	for _, a := range r.Others {
		i := slices.IndexFunc(n.Others, func(b core.Amount) bool { return b.Name == a.Name })
		switch {
		case i < 0:
			add(a.Value == 0, "have no "+a.Name)
		default:
			add(n.Others[i].Value >= a.Value, "have less "+a.Name+" than the pod requests")
		}
	}
	for _, t := range n.Taints {
		add(t.Soft() || slices.ContainsFunc(r.Tolerations, func(o core.Toleration) bool { return o.Bears(&t) }),
			"have the taint "+t.Key+", which the pod does not tolerate")
	}
	add(!n.Cordoned, "take no pods now")
	return out
}

// holds reports whether labels meet a requirement.
func holds(r *core.Requirement, labels map[string]string) bool {
	v, ok := labels[r.Key]
	switch r.Op {
	case cluster.In:
		return ok && slices.Contains(r.Values, v)
	case cluster.NotIn:
		return !ok || !slices.Contains(r.Values, v)
	case cluster.Exists:
		return ok
	case cluster.DoesNotExist:
		return !ok
	}
	is, err := strconv.Atoi(v)
	than, err2 := strconv.Atoi(strings.Join(r.Values, ""))
	return ok && err == nil && err2 == nil && (r.Op == cluster.Gt && is > than || r.Op == cluster.Lt && is < than)
}

// words writes a requirement as people do.
func words(r *core.Requirement) string {
	switch r.Op {
	case cluster.In:
		return r.Key + "=" + strings.Join(r.Values, "|")
	case cluster.NotIn:
		return r.Key + "!=" + strings.Join(r.Values, "|")
	case cluster.DoesNotExist:
		return "!" + r.Key
	case cluster.Gt:
		return r.Key + ">" + strings.Join(r.Values, "")
	case cluster.Lt:
		return r.Key + "<" + strings.Join(r.Values, "")
	}
	return r.Key
}

// foreign are what the names of resources begin with by which other schedulers give parts of GPUs: Koordinator, Volcano and HAMi.
var foreign = []string{"koordinator.sh/gpu", "volcano.sh/vgpu", "nvidia.com/gpumem", "nvidia.com/gpucores"}

// selectors are all that a request asks of labels.
func selectors(r *core.Request) iter.Seq[*core.Requirement] {
	return func(yield func(*core.Requirement) bool) {
		for _, all := range append([][]core.Requirement{r.Selector}, r.AnyOf...) {
			for i := range all {
				if !yield(&all[i]) {
					return
				}
			}
		}
	}
}

// known is what nodes have, for those who misspelt it.
type known struct {
	keys, models, amounts map[string]bool
	values                map[string]map[string]bool // of the labels that the pod names
}

func (k *known) add(n *core.Node) {
	for key, v := range n.Labels {
		k.keys[key] = true
		if of := k.values[key]; of != nil {
			of[v] = true
		}
	}
	if n.GPUs > 0 {
		k.models[n.Model], k.amounts[v1alpha1.GPUResource] = true, true
	}
	for _, a := range n.Others {
		k.amounts[a.Name] = true
	}
}

// meant suggests labels, values, models and resources that exist in the place of those of a request that do not.
func (k *known) meant(r *core.Request) string {
	var out strings.Builder
	suggest := func(written string, among map[string]bool) {
		if meant := spelling.Nearest(written, slices.Sorted(maps.Keys(among))); meant != "" && !among[written] {
			out.WriteString("; " + written + ": did you mean " + meant + "?")
		}
	}
	for q := range selectors(r) {
		switch {
		case q.Op != cluster.In && q.Op != cluster.Exists:
		case !k.keys[q.Key]:
			suggest(q.Key, k.keys)
		default:
			for _, v := range q.Values {
				suggest(v, k.values[q.Key])
			}
		}
	}
	for _, m := range r.Models {
		suggest(m, k.models)
	}
	for _, a := range r.Others {
		if !k.amounts[a.Name] && slices.ContainsFunc(foreign, func(prefix string) bool { return strings.HasPrefix(a.Name, prefix) }) {
			out.WriteString("; " + a.Name + ": request " + v1alpha1.GPUResource + " for whole GPUs, or set " + v1alpha1.GPUFractionAnnotation + " for a part of one")
			continue
		}
		suggest(a.Name, k.amounts)
	}
	return out.String()
}
