package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/migrate"
)

// sharing is a case of testdata/queues: on a cluster of its own, the queues of another scheduler as muster migrate
// writes them, and what becomes of the jobs that use them, step by step.
type sharing struct {
	Case string `json:"case"`
	// Nodes are n0, n1…, of H800 unless they say otherwise.
	Nodes []struct {
		GPUs   int               `json:"gpus"`
		Model  string            `json:"model"`
		Labels map[string]string `json:"labels"`
		Taints []v1.Taint        `json:"taints"`
	} `json:"nodes"`

	file  string
	steps []*step
}

// step is what is created and what is so then: how many pods run, by their label app, on which node those of some
// run, and why others wait.
type step struct {
	Then  string            `json:"then"`
	Runs  map[string]int    `json:"runs"`
	Node  map[string]string `json:"node"`
	Waits string            `json:"waits"`

	docs []string
}

// sharings reads the cases of a file.
func sharings(t *testing.T, file string) []*sharing {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*sharing
	var docs []string
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		read := func(into any) {
			if err := yaml.UnmarshalStrict(doc, into); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
		switch {
		case bytes.HasPrefix(doc, []byte("case:")):
			s := &sharing{file: file}
			read(s)
			out = append(out, s)
		case bytes.HasPrefix(doc, []byte("then:")):
			s := &step{docs: docs}
			read(s)
			out[len(out)-1].steps, docs = append(out[len(out)-1].steps, s), nil
		default:
			docs = append(docs, string(doc))
		}
	}
	if len(docs) > 0 {
		t.Fatalf("%s: the last objects have no step", file)
	}
	return out
}

// Queues of other schedulers and the jobs that use them work after muster migrate, with only schedulerName changed:
// what queues own, borrow, give back and share, and which jobs evict which by priority. What the pods of Kubernetes'
// own users merely prefer is here too, for it shows only where places are alike.
func TestDropInQueues(t *testing.T) {
	files, err := filepath.Glob("testdata/queues/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	groups, err := restmapper.GetAPIGroupResources(admin.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, f := range files {
		for _, s := range sharings(t, f) {
			t.Run(s.Case, func(t *testing.T) { s.play(begin(t), mapper) })
		}
	}
}

// play plays a case.
func (s *sharing) play(c *cluster, mapper meta.RESTMapper) {
	c.Helper()
	for i, n := range s.Nodes {
		if n.Model == "" {
			n.Model = "H800"
		}
		c.node(fmt.Sprintf("n%d", i), gpus(n.GPUs, n.Model), func(o *v1.Node) {
			maps.Copy(o.Labels, n.Labels)
			o.Spec.Taints = n.Taints
		})
	}
	// 1. Queues and priorities.
	queues := &migrate.Queues{}
	for _, step := range s.steps {
		var jobs []string
		for _, doc := range step.docs {
			o := parse(c.T, doc)
			group, _, _ := strings.Cut(o.GetAPIVersion(), "/")
			switch {
			case o.GetKind() == "PriorityClass":
				class := &schedulingv1.PriorityClass{}
				c.must(yaml.Unmarshal([]byte(doc), class))
				c.priority(class.Name, class.Value)
			case group == "" || group == "kueue.x-k8s.io" || strings.Contains(o.GetKind(), "Queue") || o.GetKind() == "ElasticQuota":
				c.must(queues.Read([]byte(doc)))
			default:
				jobs = append(jobs, doc)
			}
		}
		step.docs = jobs
	}
	if len(queues.Refused) > 0 {
		c.Fatalf("%s: %s: not read: %v", s.file, s.Case, queues.Refused)
	}
	var written bytes.Buffer
	c.must(queues.Write(&written))
	for doc := range strings.SplitSeq(written.String(), "---\n") {
		if doc == "" {
			continue // no queues
		}
		q := &v1alpha1.Queue{}
		c.must(yaml.UnmarshalStrict([]byte(doc), q))
		c.must(muster.Post().Resource("queues").Body(q).Do(ctx()).Error())
		c.queues = append(c.queues, q.Name)
	}
	// 2. Jobs.
	c.schedule()
	for _, step := range s.steps {
		m := &manifest{file: s.file, Case: s.Case}
		for _, doc := range step.docs {
			m.objects = append(m.objects, parse(c.T, doc))
		}
		m.create(c, mapper, c.namespace)
		created := time.Now().Unix()
		c.until(s.Case+": "+step.Then, func() error { return step.holds(c) })
		// Of jobs created in one second no order is known: the next step's come later.
		c.until("a second is over", func() error {
			if time.Now().Unix() == created {
				return errors.New("it is not")
			}
			return nil
		})
	}
}

// holds returns an error unless what a step says is so now.
func (s *step) holds(c *cluster) error {
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	runs := map[string]int{}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.NodeName != "" {
			if p.DeletionTimestamp == nil && p.Status.Phase != v1.PodFailed {
				app := p.Labels["app"]
				runs[app]++
				if node := s.Node[app]; node != "" && p.Spec.NodeName != node {
					return fmt.Errorf("pod %s is on %s", p.Name, p.Spec.NodeName)
				}
			}
			continue
		}
		if k := condition(p, v1alpha1.WaitingCondition); s.Waits != "" && (k == nil || k.Status != v1.ConditionTrue || k.Reason != s.Waits) {
			return fmt.Errorf("pod %s waits: %+v", p.Name, k)
		}
	}
	if !maps.Equal(runs, s.Runs) {
		return fmt.Errorf("pods run: %v", runs)
	}
	return nil
}
