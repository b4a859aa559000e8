// Package local runs a Kubernetes cluster on this machine, for demonstrations and
// measurements: it starts and stops the program muster-devcluster, an API server with
// simulated nodes.
package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/deploy"
	"github.com/muster-sched/muster/kube"
)

// Program is the name of the program that runs the cluster.
const Program = "muster-devcluster"

// ErrNoProgram reports that the program was not found.
var ErrNoProgram = errors.New(Program + " is neither in the folder of this program nor on the PATH: build it with make devcluster")

// TopologyName is the name of the Topology object that [Cluster.ShowTopology] creates.
const TopologyName = "local"

// Cluster is a cluster that runs on this machine.
type Cluster struct {
	// Kubeconfig is the file with which kubectl reaches it.
	Kubeconfig string `json:"kubeconfig"`
	// Server is the address of the API server.
	Server string `json:"server"`
	// Nodes is the number of its simulated nodes.
	Nodes int `json:"nodes"`
	// Topology is the levels by which nodes are labelled, widest first.
	Topology []Level `json:"topology"`

	command *exec.Cmd
	stdin   io.Closer
	ended   chan struct{}
	err     error // of the process, once ended is closed
}

// badInput is the exit code of the program for arguments that it refuses.
const badInput = 2

// BadInput is an error about an argument of Start that the program refuses.
type BadInput struct{ problem string }

func (e *BadInput) Error() string { return e.problem }

// Level is a level of the topology.
type Level struct {
	Alias     string `json:"alias"`
	NodeLabel string `json:"nodeLabel"`
}

// Start starts a cluster with the arguments of `muster-devcluster up`. Its messages go to
// log, line by line. If ctx ends before the cluster is there, Start stops it. After that it
// runs until Stop is called or this process ends, for any reason.
func Start(ctx context.Context, log func(line string), args ...string) (*Cluster, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	c := &Cluster{ended: make(chan struct{})}
	c.command = exec.Command(path, append([]string{"up", "--exit-with-parent"}, args...)...)
	apart(c.command)
	stdin, err := c.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := c.command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	last := make(chan string, 1)
	go func() {
		line := ""
		for s := bufio.NewScanner(stderr); s.Scan(); {
			line = s.Text()
			if !strings.HasPrefix(line, Program+": ") { // why it ended: Start or Err says it
				log(line)
			}
		}
		last <- line
	}()
	started := make(chan error, 1)
	go func() {
		r := bufio.NewReader(stdout)
		line, err := r.ReadString('\n')
		if err == nil {
			err = json.Unmarshal([]byte(line), c)
		}
		started <- err
		_, _ = io.Copy(io.Discard, r)
		why := <-last
		if c.err = c.command.Wait(); c.err != nil {
			why, _, _ = strings.Cut(strings.TrimPrefix(why, Program+": "), "; see "+Program)
			if c.command.ProcessState.ExitCode() == badInput {
				c.err = &BadInput{why}
			} else {
				c.err = fmt.Errorf("%s: %s (%w)", Program, why, c.err)
			}
		}
		close(c.ended)
	}()
	select {
	case err = <-started:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.Stop()
		if ctx.Err() == nil && c.err != nil {
			err = c.err
		}
		return nil, err
	}
	return c, nil
}

// Find returns the path of the program: beside this one, or on the PATH.
func Find() (string, error) {
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			if beside := filepath.Join(filepath.Dir(self), Program); isProgram(beside) {
				return beside, nil
			}
		}
	}
	if path, err := exec.LookPath(Program); err == nil {
		return path, nil
	}
	return "", ErrNoProgram
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// stopPatience is the time limit for a cluster to stop.
const stopPatience = 20 * time.Second

// Stop ends the cluster and waits until it has ended.
func (c *Cluster) Stop() {
	_ = c.stdin.Close() // the program's cue; it takes no second one
	select {
	case <-c.ended:
	case <-time.After(stopPatience):
		_ = c.command.Process.Kill()
		<-c.ended
	}
}

// Ended is closed when the cluster has ended, by itself or by Stop; Err then returns the
// cause.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// Err returns why the cluster ended, nil if it was stopped.
func (c *Cluster) Err() error { return c.err }

// PID is the process ID of the cluster.
func (c *Cluster) PID() int { return c.command.Process.Pid }

// Config returns the client configuration of the cluster.
func (c *Cluster) Config() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
}

// Install applies the definitions of Muster's objects and waits until they are
// served.
func Install(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, crd := range deploy.CRDs() {
		data, err := yaml.YAMLToJSON(crd.YAML)
		if err != nil {
			return err
		}
		_, err = definitions.Patch(ctx, crd.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "muster", Force: ptr(true)})
		if err != nil {
			return fmt.Errorf("%s cannot be installed: %w", crd.Name, err)
		}
	}
	for _, crd := range deploy.CRDs() {
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			o, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return established(o), nil
		})
		if err != nil {
			return fmt.Errorf("%s is not served: %w", crd.Name, err)
		}
		plural, group, _ := strings.Cut(crd.Name, ".")
		own := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: plural})
		err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := own.List(ctx, metav1.ListOptions{Limit: 1})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return fmt.Errorf("%s is not served: %w", crd.Name, err)
		}
	}
	return nil
}

// ShowTopology creates a Topology object with the levels for which nodes have labels, for
// every scheduler of the cluster. An existing one stays.
func (c *Cluster) ShowTopology(ctx context.Context, config *rest.Config) error {
	if len(c.Topology) == 0 {
		return nil
	}
	client, err := kube.NewClient(config)
	if err != nil {
		return err
	}
	t := &v1alpha1.Topology{ObjectMeta: metav1.ObjectMeta{Name: TopologyName}}
	for _, l := range c.Topology {
		t.Spec.Levels = append(t.Spec.Levels, v1alpha1.TopologyLevel{NodeLabel: l.NodeLabel, Alias: l.Alias})
	}
	t.Spec.Levels = append(t.Spec.Levels, v1alpha1.TopologyLevel{NodeLabel: v1alpha1.HostnameLabel})
	err = client.Post().Resource("topologies").Body(t).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("topology %s: %w", t.Name, err)
	}
	return nil
}

func established(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

func ptr[T any](v T) *T { return &v }
