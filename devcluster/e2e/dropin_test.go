package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/translate"
)

// manifest is a document of testdata/dropin that begins a case: what a user of another scheduler writes is in
// the documents after it, and this is what becomes of it.
type manifest struct {
	// Case says what it shows.
	Case string `json:"case"`
	// Runs is how many of its pods run: no more, and no fewer.
	Runs int `json:"runs"`
	// Queue is what the pods that run say it is, if it is given; Leaves in how many leaves of the network they are.
	Queue  string `json:"queue"`
	Leaves int    `json:"leaves"`
	// Segments is the number of pods, by their index, of each of which all are in one leaf.
	Segments int `json:"segments"`
	// Notes are annotations of the pods that run.
	Notes map[string]string `json:"notes"`
	// Waits is the reason for which the others wait, and Says is in its message.
	Waits string `json:"waits"`
	Says  string `json:"says"`
	// Event is in the message of a Warning event UnknownKey.
	Event string `json:"event"`

	file    string
	objects []*unstructured.Unstructured
}

// manifests reads the cases of a file.
func manifests(t *testing.T, file string) []*manifest {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*manifest
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		m := &manifest{file: file}
		switch err := yaml.UnmarshalStrict(doc, m); {
		case err == nil && m.Case != "":
			out = append(out, m)
		case bytes.HasPrefix(bytes.TrimSpace(doc), []byte("case:")):
			t.Fatalf("%s: %v", file, err)
		case len(bytes.TrimSpace(doc)) > 0:
			last := out[len(out)-1]
			last.objects = append(last.objects, parse(t, string(doc)))
		}
	}
}

// ownerNote names, in a manifest, the object that a controller would have made the owner of another: kind/name.
const ownerNote = "owner"

// What users of other schedulers and of Kubernetes write is honoured, or they are told: in each manifest of
// testdata/dropin only schedulerName is changed, and what is expected of it is beside it. All are there at once,
// each in a namespace of its own.
func TestDropIn(t *testing.T) {
	files, err := filepath.Glob("testdata/dropin/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	c := begin(t)
	for i := range 12 {
		c.nodesNamed(fmt.Sprintf("n%d-", i), 4, inLeaf(fmt.Sprint("leaf-", i)), marked(v1.LabelTopologyZone, []string{"east", "west"}[i%2]))
	}
	const cell = "example.com/cell"
	c.node("open-0", inLeaf("leaf-open"), marked(cell, "open"), tainted(cell))
	c.node("tainted-0", inLeaf("leaf-tainted"), marked(cell, "tainted"), tainted("example.com/kept"))
	for _, q := range []string{"team", "other", "root.team"} {
		c.queue(q, 64)
	}
	c.queue("small", 2, isolated)
	c.queue("tiny", 2, isolated)
	c.priority("urgent", 1000)
	c.schedule(func(k *kube.Config) { k.StatusRate = 1000 })
	groups, err := restmapper.GetAPIGroupResources(admin.Discovery())
	c.must(err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	var cases []*manifest
	for _, f := range files {
		cases = append(cases, manifests(t, f)...)
	}
	namespaces := make([]string, len(cases))
	for i, m := range cases {
		namespaces[i] = c.newNamespace(nil)
		m.create(c, mapper, namespaces[i])
	}
	for i, m := range cases {
		t.Run(m.Case, func(t *testing.T) {
			in := *c
			in.T, in.namespace = t, namespaces[i]
			in.until(m.file+": "+m.Case, func() error { return m.holds(&in) })
		})
	}
	t.Logf("%d manifests", len(cases))
}

// marked gives a node a label.
func marked(key, value string) func(*v1.Node) {
	return func(o *v1.Node) { o.Labels[key] = value }
}

// tainted gives a node a taint.
func tainted(key string) func(*v1.Node) {
	return func(o *v1.Node) { o.Spec.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}} }
}

// create makes the objects of a manifest, as its users would on a cluster whose scheduler is Muster.
func (m *manifest) create(c *cluster, mapper meta.RESTMapper, namespace string) {
	c.Helper()
	made := map[string]*unstructured.Unstructured{}
	for _, o := range m.objects {
		notes := o.GetAnnotations()
		if owner := notes[ownerNote]; owner != "" {
			if made[owner] == nil {
				c.Fatalf("%s: %s: there is no %s", m.file, m.Case, owner)
			}
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(made[owner], made[owner].GroupVersionKind())})
			delete(notes, ownerNote)
			o.SetAnnotations(notes)
		}
		scheduledHere(o.Object)
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		c.must(err)
		is, err := anyKind.Resource(mapping.Resource).Namespace(namespace).Create(ctx(), o, metav1.CreateOptions{})
		if err != nil {
			c.Fatalf("%s: %s: %v", m.file, m.Case, err)
		}
		made[o.GetKind()+"/"+o.GetName()] = is
	}
}

// scheduledHere names Muster as the scheduler of all pods in an object, which ask for a container where the
// manifest has none.
func scheduledHere(o map[string]any) {
	for key, v := range o {
		switch v := v.(type) {
		case map[string]any:
			scheduledHere(v)
		case []any:
			for _, e := range v {
				if e, ok := e.(map[string]any); ok {
					scheduledHere(e)
				}
			}
		case string:
			if key == "schedulerName" {
				o[key] = v1alpha1.SchedulerName
			}
		}
	}
	if _, pods := o["schedulerName"]; pods && o["containers"] == nil {
		o["containers"] = []any{map[string]any{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1"}}}}
	}
	if _, pods := o["schedulerName"]; pods && o["restartPolicy"] == nil {
		o["restartPolicy"] = "Never"
	}
}

// holds returns an error unless what a manifest says is so now.
func (m *manifest) holds(c *cluster) error {
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	runs, leaves, segments := 0, map[string]bool{}, map[int]string{}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.NodeName != "" {
			runs++
			node, _, _ := strings.Cut(p.Spec.NodeName, "-")
			leaves[node] = true
			if index, err := strconv.Atoi(p.Labels["batch.kubernetes.io/job-completion-index"]); err == nil && m.Segments > 0 {
				if of := index / m.Segments; segments[of] != "" && segments[of] != node {
					return fmt.Errorf("segment %d is on %s and %s", of, node, segments[of])
				}
				segments[index/m.Segments] = node
			}
			if queue := p.Annotations[v1alpha1.QueueLabel]; m.Queue != "" && queue != m.Queue && !slices.Contains(said(p), m.Queue) {
				return fmt.Errorf("pod %s is in queue %q", p.Name, queue)
			}
			for k, v := range m.Notes {
				if p.Annotations[k] != v {
					return fmt.Errorf("pod %s has %s %q", p.Name, k, p.Annotations[k])
				}
			}
			continue
		}
		k := condition(p, v1alpha1.WaitingCondition)
		if k == nil || k.Status != v1.ConditionTrue || k.Reason != m.Waits || !strings.Contains(k.Message, m.Says) {
			return fmt.Errorf("pod %s waits: %+v", p.Name, k)
		}
	}
	switch waiting := len(list.Items) - runs; {
	case runs != m.Runs:
		return fmt.Errorf("%d of %d pods run", runs, len(list.Items))
	case m.Waits != "" && waiting == 0:
		return errors.New("no pod waits")
	case m.Leaves > 0 && len(leaves) != m.Leaves:
		return fmt.Errorf("the pods are in %d leaves", len(leaves))
	case m.Event == "":
		return nil
	}
	events, err := admin.CoreV1().Events(c.namespace).List(ctx(), metav1.ListOptions{FieldSelector: "reason=UnknownKey"})
	if err != nil {
		return err
	}
	for i := range events.Items {
		if strings.Contains(events.Items[i].Message, m.Event) {
			return nil
		}
	}
	return fmt.Errorf("%d events UnknownKey, and none says %q", len(events.Items), m.Event)
}

// said is what the labels and annotations of a pod say of its queue.
func said(p *v1.Pod) []string {
	var a translate.Attributes
	_ = a.Read(p)
	return []string{a.Queue}
}
