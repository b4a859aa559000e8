// Package migrate turns the queues of other schedulers into Muster's: KAI's Queue, Kueue's ClusterQueue and
// Cohort, Volcano's Queue, queues.yaml of YuniKorn, and ElasticQuota of Koordinator. Every field is read, or a message says what to do
// instead of it: none is dropped in silence. docs/migrate.md has the same as tables.
package migrate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Queues are what was read, in order.
type Queues struct {
	all   []queue
	named map[string]int
	// Notes say what is set elsewhere on Muster, Refused what has no counterpart; each begins with the
	// object and the field.
	Notes, Refused []string
}

// queue is one of Muster's.
type queue struct {
	name string
	// spec is that of its object, without amounts.
	spec    map[string]any
	amounts []limits
	// inclusive says that amounts are those of the queue and of all queues below it, as everywhere but in Kueue:
	// quotaScope is Subtree where there are any.
	inclusive bool
	// implied says that other objects name it, and none defines it yet.
	implied bool
}

// Read reads the objects of a file.
func (qs *Queues) Read(data []byte) error {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var object map[string]any
		if err := yaml.Unmarshal(doc, &object); err != nil {
			return fmt.Errorf("expected objects in YAML or JSON: %w", err)
		}
		if err := qs.object(object); err != nil {
			return err
		}
	}
}

// object reads an object, or those of a list.
func (qs *Queues) object(o map[string]any) error {
	if items, ok := o["items"].([]any); ok {
		for _, item := range items {
			if err := qs.object(asMap(item)); err != nil {
				return err
			}
		}
		return nil
	}
	group, _, _ := strings.Cut(textOf(o["apiVersion"]), "/")
	kind, name := textOf(o["kind"]), textOf(asMap(o["metadata"])["name"])
	f := &fields{qs: qs, of: kind + " " + name, m: asMap(o["spec"])}
	switch {
	case len(o) == 0:
		return nil
	case o["partitions"] != nil:
		return qs.yunikorn(o)
	case kind == "ConfigMap" && asMap(o["data"])["queues.yaml"] != nil:
		var inner map[string]any
		if err := yaml.Unmarshal([]byte(textOf(asMap(o["data"])["queues.yaml"])), &inner); err != nil {
			return fmt.Errorf("queues.yaml: %w", err)
		}
		return qs.yunikorn(inner)
	case group == "scheduling.run.ai" && kind == "Queue":
		return qs.add(name, qs.kai(f), f)
	case group == "scheduling.volcano.sh" && kind == "Queue":
		if name == "root" { // that of Volcano, above all others
			return nil
		}
		return qs.add(name, qs.volcano(f), f)
	case group == "scheduling.sigs.k8s.io" && kind == "ElasticQuota":
		return qs.koordinator(name, asMap(o["metadata"]), f)
	case group == "kueue.x-k8s.io" && (kind == "ClusterQueue" || kind == "Cohort"):
		return qs.add(name, qs.kueue(f), f)
	case group == "kueue.x-k8s.io" && elsewhere[kind] != "":
		qs.note(f.of, elsewhere[kind])
		return nil
	}
	return fmt.Errorf("expected a Queue of KAI or Volcano, a ClusterQueue, an ElasticQuota, or queues.yaml of YuniKorn; found apiVersion %q, kind %q", textOf(o["apiVersion"]), kind)
}

// add adds a queue of which all fields were read or refused.
func (qs *Queues) add(name string, q queue, f *fields) error {
	f.rest()
	q.name = name
	text, err := json.Marshal(q.spec)
	if err == nil {
		err = yaml.UnmarshalStrict(text, new(v1alpha1.QueueSpec))
	}
	switch i, there := qs.named[name]; {
	case err != nil:
		return fmt.Errorf("%s: %w", f.of, err)
	case name == "" || len(name) > 63:
		return fmt.Errorf("%s: expected a name of 1 to 63 characters, as the value of a label", f.of)
	case there && !qs.all[i].implied:
		return fmt.Errorf("%s: there are two queues %q", f.of, name)
	case there:
		qs.all[i] = q
	default:
		qs.put(q)
	}
	return nil
}

func (qs *Queues) put(q queue) {
	if qs.named == nil {
		qs.named = map[string]int{}
	}
	qs.named[q.name] = len(qs.all)
	qs.all = append(qs.all, q)
}

// imply adds a queue that another one names, unless it is there.
func (qs *Queues) imply(name string) {
	if _, there := qs.named[name]; !there && name != "" {
		qs.put(queue{name: name, spec: map[string]any{}, implied: true})
	}
}

// Write writes the queues as objects, parents first. What their amounts need said is in Notes and Refused then.
func (qs *Queues) Write(w io.Writer) error {
	all, below := slices.Clone(qs.all), qs.below()
	slices.SortStableFunc(all, func(a, b queue) int { return qs.depth(a) - qs.depth(b) })
	for i, q := range all {
		spec := maps.Clone(q.spec)
		for _, l := range q.amounts {
			if q.inclusive && below[q.name][l.amount] > l.nominal && !l.endless {
				qs.refuse(l.of, fmt.Sprintf("the queues below it own %s, more than it: it owns 0 beside them", decimal(below[q.name][l.amount])))
			}
			qs.write(spec, l, below[q.name] != nil)
		}
		if q.inclusive && below[q.name] != nil && (spec["quota"] != nil || spec["resources"] != nil) {
			spec["quotaScope"] = "Subtree"
		}
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": "muster.sh/v1alpha1", "kind": "Queue", "metadata": map[string]any{"name": q.name}, "spec": spec,
		})
		if err != nil {
			return err
		}
		separator := ""
		if i > 0 {
			separator = "---\n"
		}
		if _, err := fmt.Fprintf(w, "%s%s", separator, text); err != nil {
			return err
		}
	}
	return nil
}

// depth is how many queues are above one, at most as many as there are: parents can form a ring.
func (qs *Queues) depth(q queue) int {
	d := 0
	for i, ok := qs.named[textOf(q.spec["parent"])]; ok && d <= len(qs.all); i, ok = qs.named[textOf(qs.all[i].spec["parent"])] {
		d++
	}
	return d
}

// below returns for each queue with queues below it what all of these own, in thousandths by resource and model.
func (qs *Queues) below() map[string]map[amount]int64 {
	all, below := slices.Clone(qs.all), map[string]map[amount]int64{}
	slices.SortStableFunc(all, func(a, b queue) int { return qs.depth(b) - qs.depth(a) })
	for _, q := range all {
		sum := maps.Clone(below[q.name])
		if sum == nil {
			sum = map[amount]int64{}
		}
		for _, l := range q.amounts {
			if q.inclusive {
				sum[l.amount] = max(sum[l.amount], l.nominal)
			} else {
				sum[l.amount] += l.nominal
			}
		}
		parent := textOf(q.spec["parent"])
		if parent == "" {
			continue
		}
		if below[parent] == nil {
			below[parent] = map[amount]int64{}
		}
		for a, n := range sum {
			below[parent][a] += n
		}
	}
	return below
}

func (qs *Queues) note(of, what string) {
	if line := of + ": " + what; !slices.Contains(qs.Notes, line) {
		qs.Notes = append(qs.Notes, line)
	}
}

func (qs *Queues) refuse(of, what string) { qs.Refused = append(qs.Refused, of+": "+what) }

// fields are those of an object that were not read yet.
type fields struct {
	qs *Queues
	// of is the object, path the field of it that they are in.
	of, path string
	m        map[string]any
}

// name is how messages name a field.
func (f *fields) name(key string) string { return f.of + ": " + f.path + key }

// take returns the value of a field, nil if it is not given.
func (f *fields) take(key string) any {
	v := f.m[key]
	delete(f.m, key)
	return v
}

// as returns the value of a field of a type, refused if it is of another.
func as[T any](f *fields, key, want string) T {
	v := f.take(key)
	x, ok := v.(T)
	if !ok && v != nil {
		f.qs.refuse(f.name(key), fmt.Sprintf("expected %s; found %v", want, v))
	}
	return x
}

func (f *fields) text(key string) string { return as[string](f, key, "a text") }

// in returns the fields in a field.
func (f *fields) in(key string) *fields {
	return &fields{f.qs, f.of, f.path + key + ".", as[map[string]any](f, key, "fields")}
}

// list returns the fields of each entry of a list.
func (f *fields) list(key string) []*fields {
	var out []*fields
	for i, item := range as[[]any](f, key, "a list") {
		m, ok := item.(map[string]any)
		if !ok {
			f.qs.refuse(fmt.Sprintf("%s[%d]", f.name(key), i), fmt.Sprintf("expected fields; found %v", item))
		}
		out = append(out, &fields{f.qs, f.of, fmt.Sprintf("%s%s[%d].", f.path, key, i), m})
	}
	return out
}

// instead refuses a field, if it is given, and says what to do.
func (f *fields) instead(key, what string) {
	if v := f.take(key); v != nil {
		f.qs.refuse(f.name(key), what)
	}
}

// elsewhere notes where a field is set, if it is given.
func (f *fields) elsewhere(key, what string) {
	if v := f.take(key); v != nil {
		f.qs.note(f.name(key), what)
	}
}

// rest refuses the fields that nothing has read.
func (f *fields) rest() {
	for _, key := range slices.Sorted(maps.Keys(f.m)) {
		f.qs.refuse(f.name(key), "this field is not known")
	}
}

// amount returns a quantity in thousandths; false if it is not given, or refused.
func (f *fields) amount(key string) (int64, bool) {
	v := f.take(key)
	if v == nil {
		return 0, false
	}
	q, err := resource.ParseQuantity(strings.TrimSuffix(fmt.Sprintf("%v", v), "B"))
	if err != nil {
		f.qs.refuse(f.name(key), fmt.Sprintf("expected an amount; found %v", v))
		return 0, false
	}
	return q.MilliValue(), true
}

// weight sets the weight of a queue, which is a whole number here.
func (f *fields) weight(key string, spec map[string]any) {
	switch w, ok := f.amount(key); {
	case !ok:
	case w < 0 || w%1000 != 0 || w > 1_000_000_000:
		f.qs.refuse(f.name(key), fmt.Sprintf("a weight is a whole number from 0 to 1000000; found %s: multiply those of all its siblings", decimal(w)))
	default:
		spec["weight"] = w / 1000
		f.qs.note(f.name(key), "counts under a policy with queueing.fairShare, such as default")
	}
}

// amount names what is counted: a GPU model, or if that is empty another resource.
type amount struct{ resource, model string }

// limits is what a queue has of something, in thousandths; unlimited where not set.
type limits struct {
	amount
	// of names the field that says what the queue owns.
	of                   string
	nominal              int64
	most, borrows, lends *int64
	// endless says that the queue owns as much as there is.
	endless bool
}

// write adds an entry of quota for a GPU model, or of resources for anything else. parent says that there are queues below.
func (qs *Queues) write(spec map[string]any, l limits, parent bool) {
	switch {
	case l.endless && l.most != nil:
		l.nominal = *l.most // all that it may use is its own
	case l.endless && (l.model == "" || parent):
		return // as all that a queue does not list: the queues below it own something, or nothing
	case l.most != nil:
		l.nominal = min(l.nominal, *l.most)
	}
	if l.most != nil {
		borrows := *l.most - l.nominal
		l.borrows = &borrows
	}
	key, text, entry := "quota", decimal, map[string]any{"model": l.model}
	if l.model == "" {
		key, entry = "resources", map[string]any{"name": l.resource}
		text = func(milli int64) string { return quantity(l.resource, milli) }
	}
	entry["nominal"] = text(l.nominal)
	if l.endless && l.most == nil {
		entry["nominal"] = "-1"
	}
	if l.borrows != nil {
		entry["borrowingLimit"] = text(*l.borrows)
	}
	if l.lends != nil {
		entry["lendingLimit"] = text(*l.lends)
	}
	list, _ := spec[key].([]any)
	spec[key] = append(list, entry)
}

// amountOf is what a resource of which no GPU model is said counts as: all models, or itself.
func amountOf(resource string) amount {
	if isGPU(resource) {
		return amount{model: "*"}
	}
	if resource == "vcore" { // YuniKorn's name
		resource = "cpu"
	}
	return amount{resource: resource}
}

// isGPU reports whether a resource is whole GPUs, such as nvidia.com/gpu.
func isGPU(name string) bool { return strings.HasSuffix(name, "/gpu") }

// decimal writes thousandths, as GPUs are counted.
func decimal(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

// quantity writes thousandths of another resource as Kubernetes does.
func quantity(name string, milli int64) string {
	format := resource.DecimalSI
	if bytes := milli / 1000; name == "memory" && bytes%(1<<20) == 0 {
		format = resource.BinarySI
	}
	return resource.NewMilliQuantity(milli, format).String()
}

func asMap(v any) map[string]any { m, _ := v.(map[string]any); return m }

// textOf returns a string, "" for anything else.
func textOf(v any) string { s, _ := v.(string); return s }
