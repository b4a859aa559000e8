// Package fleet simulates the nodes of a cluster and the pods bound to them, from
// one node to tens of thousands: everything that a kubelet, GPU Feature Discovery
// and a device plugin or DRA driver would write to the API.
//
// It keeps no state of its own. A node whose condition Ready is not True is dead: its
// pods neither start nor end. So any process can inject failures by writing to the API
// ([FailNode] and others).
package fleet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/workload"
)

// Config describes the nodes.
type Config struct {
	// Cluster has the nodes that the cluster should have: Start deletes others, and
	// replaces those that differ in labels or capacity. Nil keeps the existing nodes.
	Cluster *workload.Cluster
	// DRA makes the nodes of Cluster publish their GPUs in ResourceSlices instead of as a
	// resource.
	DRA bool
	// Kubelets carries out the writes of the simulated kubelets.
	Kubelets Kubelets
	// Agents is where the simulated agents listen; nil for none.
	Agents *Agents
	// Progress, if not nil, is called repeatedly while nodes are created, from several
	// goroutines.
	Progress func(done, total int)
}

// Kubelets makes the writes of kubelets.
type Kubelets interface {
	// CreateNode creates a node with its status.
	CreateNode(ctx context.Context, n *corev1.Node) error
	// UpdatePodStatus calls change with a pod's metadata to change its status. An error
	// of change ends the update.
	UpdatePodStatus(ctx context.Context, namespace, name string, change func(*metav1.ObjectMeta, *corev1.PodStatus) error) error
}

// writers is the number of concurrent requests.
const writers = 32

// Fleet is a set of running nodes.
type Fleet struct {
	client  kubernetes.Interface
	nodes   *nodes
	pods    *pods
	running sync.WaitGroup
}

// Start creates, replaces and deletes nodes as cfg requires, and runs them and the pods
// bound to them until ctx ends. It returns when all nodes exist. Errors of type
// *[workload.Error] are about the cluster.
func Start(ctx context.Context, config *rest.Config, cfg Config) (*Fleet, error) {
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(config), "fleet"))
	if err != nil {
		return nil, err
	}
	if cfg.Cluster != nil {
		if err := populate(ctx, client, &cfg); err != nil {
			return nil, err
		}
	}
	f := &Fleet{client: client}
	f.nodes = newNodes(client)
	f.pods = newPods(client, f.nodes, cfg.Kubelets)
	f.nodes.changed = f.pods.nodeChanged
	if err := f.nodes.start(ctx, &f.running); err != nil {
		return nil, err
	}
	if err := f.pods.start(ctx, &f.running); err != nil || cfg.Agents == nil {
		return f, err
	}
	dir, err := os.MkdirTemp("", "muster-agents")
	if err != nil {
		return nil, err
	}
	f.running.Go(func() {
		defer os.RemoveAll(dir)
		service := newAgents(f.pods, dir)
		if err := agent.Serve(ctx, cfg.Agents.Listener, cfg.Agents.TLS, cfg.Agents.Clients, service, nil); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Serving the agents of nodes")
		}
	})
	return f, nil
}

// Nodes returns the number of nodes.
func (f *Fleet) Nodes() int { return len(f.nodes.store.ListKeys()) }

// Wait returns when the fleet has ended, after its context.
func (f *Fleet) Wait() { f.running.Wait() }

// Check returns an error of type *[workload.Error] if the cluster's nodes cannot
// be nodes of Kubernetes.
func Check(c *workload.Cluster) error {
	names := make(map[string]bool, len(c.Nodes))
	for i := range c.Nodes {
		name := nodeName(&c.Nodes[i])
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return &workload.Error{File: "the cluster", Field: "node", Want: fmt.Sprintf("a valid name of a Kubernetes node, found %q", name)}
		}
		if names[name] {
			return &workload.Error{File: "the cluster", Field: "node", Want: fmt.Sprintf("names that still differ in lower case, found %q twice", name)}
		}
		names[name] = true
	}
	return nil
}

// populate creates, replaces and deletes nodes as cfg requires.
func populate(ctx context.Context, client kubernetes.Interface, cfg *Config) error {
	if err := Check(cfg.Cluster); err != nil {
		return err
	}
	want := make(map[string]*corev1.Node, len(cfg.Cluster.Nodes))
	order := make([]string, len(cfg.Cluster.Nodes))
	for i := range cfg.Cluster.Nodes {
		n := node(i, &cfg.Cluster.Nodes[i], cfg.Cluster.Levels, cfg.DRA)
		if cfg.Agents != nil {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, AgentAddress, cfg.Agents.Listener.Addr().String())
		}
		want[n.Name], order[i] = n, n.Name
	}
	there, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	var surplus []string
	for i := range there.Items {
		n := &there.Items[i]
		if w := want[n.Name]; w != nil && alike(n, w) {
			delete(want, n.Name)
		} else {
			surplus = append(surplus, n.Name)
		}
	}
	err = each(ctx, surplus, func(name string) error {
		err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			err = client.ResourceV1().ResourceSlices().Delete(ctx, sliceName(name), metav1.DeleteOptions{})
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if cfg.DRA {
		_, err := client.ResourceV1().DeviceClasses().Create(ctx, deviceClass(), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	var done atomic.Int64
	total := len(order)
	return each(ctx, order, func(name string) error {
		if n := want[name]; n != nil {
			if err := cfg.Kubelets.CreateNode(ctx, n); err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}
		}
		if d := int(done.Add(1)); cfg.Progress != nil && (d%500 == 0 || d == total) {
			cfg.Progress(d, total)
		}
		return nil
	})
}

// alike reports whether a node is as it should be.
func alike(n, want *corev1.Node) bool {
	if n.Annotations[AgentAddress] != want.Annotations[AgentAddress] {
		return false
	}
	for k, v := range want.Labels {
		if n.Labels[k] != v {
			return false
		}
	}
	return maps.EqualFunc(n.Status.Capacity, want.Status.Capacity, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

// each calls a function with all names, several at a time, until one call fails.
func each(ctx context.Context, names []string, do func(name string) error) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	errs := make([]error, writers)
	failed := make(chan struct{})
	fail := sync.OnceFunc(func() { close(failed) })
	for w := range writers {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(names) || ctx.Err() != nil {
					return
				}
				select {
				case <-failed:
					return
				default:
				}
				if errs[w] = do(names[i]); errs[w] != nil {
					fail()
					return
				}
			}
		})
	}
	workers.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return ctx.Err()
}
