package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/devcluster/fleet"
)

// shared is a cluster that tests have in common, each with nodes of its own.
var shared *cluster

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	code := func() int {
		var err error
		if shared, err = upCluster("--ephemeral", "--models", "H800:10,A10:2"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if exit := shared.down(); exit != 0 {
			fmt.Fprintf(os.Stderr, "up ended with exit code %d: %s\n", exit, shared.stderr.String())
			return 1
		}
		if _, err := os.Stat(shared.ready.Kubeconfig); !os.IsNotExist(err) {
			fmt.Fprintf(os.Stderr, "an ephemeral cluster left %s (%v)\n", shared.ready.Kubeconfig, err)
			return 1
		}
		return code
	}()
	os.Exit(code)
}

// asProgram has the test's binary be the program itself.
const asProgram = "TEST_AS_MUSTER_DEVCLUSTER"

// The first request to end, whichever it is, leaves time to clean up, and a signal
// that comes beside the end of stdin is no second one.
func TestStopsCleanly(t *testing.T) {
	type program struct {
		*exec.Cmd
		stdin io.Closer
	}
	end := func(p program) { p.stdin.Close() }
	term := func(p program) { p.Process.Signal(syscall.SIGTERM) }
	for name, ask := range map[string][]func(program){
		"stdin":             {end},
		"signal":            {term},
		"stdin then signal": {end, term},
		"signal then stdin": {term, end},
	} {
		t.Run(name, func(t *testing.T) {
			p := program{Cmd: exec.Command(os.Args[0], "up", "--ephemeral", "--exit-with-parent", "--nodes", "0")}
			p.Env = append(os.Environ(), asProgram+"=1")
			p.stdin = must(p.StdinPipe())
			said := bufio.NewScanner(must(p.StderrPipe()))
			stdout := bufio.NewReader(must(p.StdoutPipe()))
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			defer p.Process.Kill()
			var at ready
			if err := json.Unmarshal(must(stdout.ReadBytes('\n')), &at); err != nil {
				t.Fatal(err)
			}
			ask[0](p)
			for said.Scan() && said.Text() != "stopping" {
			}
			for deaf := false; !deaf; { // by now it has taken note of the first request
				c, err := net.Dial("tcp", strings.TrimPrefix(at.Server, "https://"))
				if deaf = err != nil; !deaf {
					c.Close()
				}
			}
			for _, again := range ask[1:] {
				again(p)
			}
			for said.Scan() {
				t.Errorf("it said %q while it stopped", said.Text())
			}
			if err := p.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			if _, err := os.Stat(filepath.Dir(at.Kubeconfig)); !os.IsNotExist(err) {
				t.Errorf("it left its folder (%v)", err)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// cluster is what the command up runs.
type cluster struct {
	ready  ready
	client kubernetes.Interface
	stdin  *io.PipeWriter
	stderr *bytes.Buffer
	exit   chan int
}

// upCluster runs the command up with args until it is ready.
func upCluster(args ...string) (*cluster, error) {
	c := &cluster{stderr: new(bytes.Buffer), exit: make(chan int, 1)}
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	c.stdin = stdin
	go func() {
		c.exit <- run(append([]string{"up", "--exit-with-parent"}, args...), in, stdout, c.stderr)
		stdout.Close()
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("up %q: exit code %d: %s", args, <-c.exit, c.stderr)
	}
	if err := json.Unmarshal(line, &c.ready); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.ready.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c.client, err = kubernetes.NewForConfig(config)
	return c, err
}

// down ends the cluster and returns the exit code of up.
func (c *cluster) down() int {
	c.stdin.Close()
	return <-c.exit
}

// mustUp runs a cluster of the test's own.
func mustUp(t *testing.T, args ...string) *cluster {
	t.Helper()
	c, err := upCluster(args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits until check returns nothing, or fails the test with what it
// returned last.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute) // on a busy machine; those that pass do not wait for it
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// command runs the binary with args and returns its exit code and stderr.
func command(args ...string) (int, string) {
	var stderr bytes.Buffer
	code := run(args, strings.NewReader(""), io.Discard, &stderr)
	return code, stderr.String()
}

func mustRun(t *testing.T, args ...string) {
	t.Helper()
	if code, stderr := command(append(args, "--kubeconfig", shared.ready.Kubeconfig)...); code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, stderr)
	}
}

// newPod is a pod of one container and the given annotations, key and value in
// turn.
func newPod(name string, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](30),
			Containers: []corev1.Container{{Name: "main", Image: "image", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{fleet.GPUResource: resource.MustParse("1")},
			}}},
		},
	}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

// launch creates a pod and binds it to a node, as a scheduler would.
func (c *cluster) launch(t *testing.T, p *corev1.Pod, node string) {
	t.Helper()
	pods := c.client.CoreV1().Pods("default")
	if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.bind(t, p.Name, node)
}

func (c *cluster) bind(t *testing.T, pod, node string) {
	t.Helper()
	err := c.client.CoreV1().Pods("default").Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until a pod is as check wants it, and returns it.
func (c *cluster) await(t *testing.T, name string, what string, check func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	eventually(t, func() (err error) {
		p, err = c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && !check(p) {
			err = fmt.Errorf("pod %s is not %s: %+v", name, what, p.Status)
		}
		return err
	})
	return p
}

func (c *cluster) awaitPhase(t *testing.T, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	return c.await(t, name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

// awaitGone waits until a pod is there no more.
func (c *cluster) awaitGone(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() error {
		_, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("pod %s is still there (%v)", name, err)
	})
}

func (c *cluster) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func TestNodes(t *testing.T) {
	if shared.ready.Nodes != 12 {
		t.Errorf("%d nodes are ready; want 12", shared.ready.Nodes)
	}
	n := shared.node(t, "node-00000")
	for label, want := range map[string]string{
		"nvidia.com/gpu.product":            "NVIDIA-H800",
		"nvidia.com/gpu.count":              "8",
		"nvidia.com/gpu.memory":             "81559",
		"nvidia.com/gpu.family":             "hopper",
		"network.topology.nvidia.com/leaf":  "leaf-0",
		"network.topology.nvidia.com/spine": "spine-0",
		"network.topology.nvidia.com/core":  "superspine-0",
		"kubernetes.io/hostname":            "node-00000",
	} {
		if got := n.Labels[label]; got != want {
			t.Errorf("label %s is %q; want %q", label, got, want)
		}
	}
	if got := n.Status.Allocatable[fleet.GPUResource]; got.Value() != 8 {
		t.Errorf("the node has %v GPUs to allocate; want 8", got.Value())
	}
	if len(n.Spec.Taints) > 0 {
		t.Errorf("a new node has taints %v", n.Spec.Taints)
	}
	if other := shared.node(t, "node-00011"); other.Labels["nvidia.com/gpu.product"] != "NVIDIA-A10" {
		t.Errorf("the last node's GPUs are %s; want A10", other.Labels["nvidia.com/gpu.product"])
	}
	levels := fmt.Sprint(shared.ready.Topology)
	if want := "[{superspine network.topology.nvidia.com/core} {spine network.topology.nvidia.com/spine} {leaf network.topology.nvidia.com/leaf}]"; levels != want {
		t.Errorf("the topology is %s; want %s", levels, want)
	}
}

// A pod that is bound runs for as long as it says, and ends as it says.
func TestPodRuns(t *testing.T) {
	for _, c := range []struct {
		outcome string
		phase   corev1.PodPhase
		code    int32
	}{
		{"succeeded", corev1.PodSucceeded, 0},
		{"failed", corev1.PodFailed, 1},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			name := "runs-" + c.outcome
			pods, err := shared.client.CoreV1().Pods("default").Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: name}))
			if err != nil {
				t.Fatal(err)
			}
			defer pods.Stop()
			began := time.Now()
			shared.launch(t, newPod(name, fleet.Duration, "1500ms", fleet.Outcome, c.outcome), "node-00000")
			var phases []string
			var last *corev1.Pod
			for e := range pods.ResultChan() {
				last = e.Object.(*corev1.Pod)
				if now := string(last.Status.Phase); len(phases) == 0 || phases[len(phases)-1] != now {
					phases = append(phases, now)
					if now == string(corev1.PodRunning) {
						checkRunning(t, last)
					}
				}
				if last.Status.Phase == c.phase {
					break
				}
			}
			if took := time.Since(began); took < 1500*time.Millisecond {
				t.Errorf("it ran %v; want 1.5s", took)
			}
			if got, want := strings.Join(phases, " "), "Pending Running "+string(c.phase); got != want {
				t.Errorf("its phases were %s; want %s", got, want)
			}
			end := last.Status.ContainerStatuses[0].State.Terminated
			if end == nil || end.ExitCode != c.code || condition(last, corev1.PodReady) != corev1.ConditionFalse {
				t.Errorf("its end is %+v, Ready %s; want exit code %d, not ready", end, condition(last, corev1.PodReady), c.code)
			}
		})
	}
}

func checkRunning(t *testing.T, p *corev1.Pod) {
	t.Helper()
	s := p.Status
	if s.PodIP == "" || s.HostIP == "" || s.StartTime == nil || len(s.PodIPs) != 1 ||
		condition(p, corev1.PodReady) != corev1.ConditionTrue || condition(p, corev1.PodScheduled) != corev1.ConditionTrue ||
		len(s.ContainerStatuses) != 1 || !s.ContainerStatuses[0].Ready || s.ContainerStatuses[0].State.Running == nil {
		t.Errorf("a running pod has status %+v", s)
	}
}

// Containers of a pod that restarts begin again, and count it.
func TestPodRestarts(t *testing.T) {
	p := newPod("restarts", fleet.Duration, "100ms", fleet.Outcome, "failed")
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	shared.launch(t, p, "node-00000")
	shared.await(t, p.Name, "in its third run", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return p.Status.Phase == corev1.PodRunning && len(s) == 1 && s[0].RestartCount >= 2 && s[0].LastTerminationState.Terminated != nil
	})
	if err := shared.client.CoreV1().Pods("default").Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shared.awaitGone(t, p.Name)
}

// A pod that is deleted ends within its grace, as soon as it says.
func TestPodDeleted(t *testing.T) {
	atOnce, later := newPod("ends-at-once"), newPod("ends-later", fleet.Termination, "1500ms")
	for _, p := range []*corev1.Pod{atOnce, later} {
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600)
		shared.launch(t, p, "node-00000")
		shared.awaitPhase(t, p.Name, corev1.PodRunning)
	}
	began := time.Now()
	for _, p := range []*corev1.Pod{later, atOnce} {
		if err := shared.client.CoreV1().Pods("default").Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	shared.awaitGone(t, atOnce.Name)
	shared.awaitGone(t, later.Name)
	// The time of deletion is in whole seconds.
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("it took %v to end; want 1.5s", took)
	}
}

// A node refuses a pod for which it has no room, and admits one again when there is.
func TestPodRefused(t *testing.T) {
	const node = "node-00004"
	asks := func(name, gpus string) *corev1.Pod {
		p := newPod(name)
		p.Spec.Containers[0].Resources.Limits[fleet.GPUResource] = resource.MustParse(gpus)
		return p
	}
	shared.launch(t, asks("refused-not-1", "5"), node)
	shared.awaitPhase(t, "refused-not-1", corev1.PodRunning)
	shared.launch(t, asks("refused", "4"), node)
	p := shared.awaitPhase(t, "refused", corev1.PodFailed)
	if p.Status.Reason != "OutOfnvidia.com/gpu" || !strings.Contains(p.Status.Message, "requested: 4, used: 5, capacity: 8") || len(p.Status.ContainerStatuses) > 0 {
		t.Errorf("the status of the pod is %+v", p.Status)
	}
	shared.launch(t, asks("refused-not-2", "3"), node)
	shared.awaitPhase(t, "refused-not-2", corev1.PodRunning)

	big := asks("refused-cpu", "0")
	big.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("10k")
	shared.launch(t, big, node)
	if p := shared.awaitPhase(t, big.Name, corev1.PodFailed); p.Status.Reason != "OutOfcpu" {
		t.Errorf("the reason is %s", p.Status.Reason)
	}

	// Room is there again when a pod has gone, and when one has ended.
	if err := shared.client.CoreV1().Pods("default").Delete(t.Context(), "refused-not-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shared.awaitGone(t, "refused-not-1")
	short := asks("refused-not-3", "5")
	short.Annotations[fleet.Duration] = "10ms"
	shared.launch(t, short, node)
	shared.awaitPhase(t, short.Name, corev1.PodSucceeded)
	shared.launch(t, asks("refused-not-4", "5"), node)
	shared.awaitPhase(t, "refused-not-4", corev1.PodRunning)
}

// A gang job gets a Workload, a PodGroup and pods, and completes; deleted, all
// that is its goes.
func TestGangJob(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "gang"}, Spec: batchv1.JobSpec{
		Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](3), CompletionMode: ptr.To(batchv1.IndexedCompletion),
		Template: corev1.PodTemplateSpec{Spec: newPod("").Spec},
	}}
	job.Spec.Template.Annotations = map[string]string{fleet.Duration: "100ms"}
	if err := json.Unmarshal([]byte(`{"schedulingPolicy": {"gang": {"minCount": 3}}}`), &job.Spec.Scheduling); err != nil {
		t.Fatal(err)
	}
	client := shared.client
	jobs := client.BatchV1().Jobs("default")
	if _, err := jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ofJob := metav1.ListOptions{LabelSelector: labels.Set{batchv1.JobNameLabel: "gang"}.String()}
	var pods *corev1.PodList
	eventually(t, func() (err error) {
		pods, err = client.CoreV1().Pods("default").List(t.Context(), ofJob)
		if err == nil && len(pods.Items) != 3 {
			err = fmt.Errorf("the job has %d pods; want 3", len(pods.Items))
		}
		return err
	})
	groups, err := client.SchedulingV1beta1().PodGroups("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(groups.Items) != 1 || groups.Items[0].Spec.SchedulingPolicy.Gang == nil || groups.Items[0].Spec.SchedulingPolicy.Gang.MinCount != 3 {
		t.Fatalf("the groups are %+v (%v); want one with minCount 3", groups.Items, err)
	}
	if loads, err := client.SchedulingV1beta1().Workloads("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(loads.Items) != 1 {
		t.Errorf("there are %d Workloads (%v); want 1", len(loads.Items), err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if g := p.Spec.SchedulingGroup; g == nil || ptr.Deref(g.PodGroupName, "") != groups.Items[0].Name {
			t.Errorf("pod %s is in group %+v; want %s", p.Name, g, groups.Items[0].Name)
		}
		shared.bind(t, p.Name, "node-00001")
	}
	eventually(t, func() error {
		j, err := jobs.Get(t.Context(), "gang", metav1.GetOptions{})
		if err == nil && (j.Status.Succeeded != 3 || j.Status.CompletionTime == nil) {
			err = fmt.Errorf("the job's status is %+v", j.Status)
		}
		return err
	})
	if err := jobs.Delete(t.Context(), "gang", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		pods, err := client.CoreV1().Pods("default").List(t.Context(), ofJob)
		if err != nil {
			return err
		}
		groups, err := client.SchedulingV1beta1().PodGroups("default").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items)+len(groups.Items) > 0 {
			err = fmt.Errorf("%d pods and %d groups outlive their job", len(pods.Items), len(groups.Items))
		}
		return err
	})
}

// Who waits for the end of a deleted pod, as the Job controller does, sees it fail.
func TestDeletedPodOfJob(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "replaced"}, Spec: batchv1.JobSpec{
		Template:             corev1.PodTemplateSpec{Spec: newPod("").Spec},
		BackoffLimit:         ptr.To[int32](0),
		PodReplacementPolicy: ptr.To(batchv1.Failed),
	}}
	jobs := shared.client.BatchV1().Jobs("default")
	if _, err := jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ofJob := metav1.ListOptions{LabelSelector: labels.Set{batchv1.JobNameLabel: "replaced"}.String()}
	pods := shared.client.CoreV1().Pods("default")
	var first string
	eventually(t, func() error {
		list, err := pods.List(t.Context(), ofJob)
		if err == nil && len(list.Items) != 1 {
			return fmt.Errorf("the job has %d pods; want 1", len(list.Items))
		}
		first = list.Items[0].Name
		return err
	})
	shared.bind(t, first, "node-00001")
	shared.awaitPhase(t, first, corev1.PodRunning)
	if err := pods.Delete(t.Context(), first, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shared.awaitGone(t, first)
	eventually(t, func() error {
		j, err := jobs.Get(t.Context(), job.Name, metav1.GetOptions{})
		if err == nil && (j.Status.Failed != 1 || j.Status.Active != 0) {
			err = fmt.Errorf("the job's status is %+v; want one failed pod", j.Status)
		}
		return err
	})
	if err := jobs.Delete(t.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
}

// A failed node is not ready and tainted, its pods neither begin nor end nor go;
// repaired, they do.
func TestNodeFails(t *testing.T) {
	const name = "node-00002"
	shared.launch(t, newPod("before"), name)
	shared.awaitPhase(t, "before", corev1.PodRunning)
	mustRun(t, "fail", "node", name)
	n := shared.node(t, name)
	if len(n.Spec.Taints) != 2 || n.Spec.Taints[0].Key != corev1.TaintNodeUnreachable {
		t.Errorf("the node's taints are %v; want it unreachable", n.Spec.Taints)
	}
	shared.await(t, "before", "not ready", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && condition(p, corev1.PodReady) == corev1.ConditionFalse
	})
	// A pod bound before the node fails elsewhere shows that this one is not late.
	tolerant := newPod("meanwhile")
	tolerant.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	shared.launch(t, tolerant, name)
	shared.launch(t, newPod("elsewhere"), "node-00001")
	shared.awaitPhase(t, "elsewhere", corev1.PodRunning)
	if err := shared.client.CoreV1().Pods("default").Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := shared.client.CoreV1().Pods("default").Delete(t.Context(), "elsewhere", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shared.awaitGone(t, "elsewhere")
	shared.await(t, "before", "leaving", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	shared.await(t, "meanwhile", "waiting", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodPending })

	mustRun(t, "repair", "node", name)
	shared.awaitPhase(t, "meanwhile", corev1.PodRunning)
	shared.awaitGone(t, "before")
	if n := shared.node(t, name); len(n.Spec.Taints) > 0 {
		t.Errorf("the repaired node has taints %v", n.Spec.Taints)
	}
}

// A removed node comes back as it was.
func TestNodeRemoved(t *testing.T) {
	const name = "node-00003"
	was := shared.node(t, name)
	mustRun(t, "fail", "node", name, "--gone")
	if _, err := shared.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the removed node is there (%v)", err)
	}
	mustRun(t, "repair", "node", name)
	is := shared.node(t, name)
	if fmt.Sprint(is.Labels) != fmt.Sprint(was.Labels) || fmt.Sprint(is.Status.Capacity) != fmt.Sprint(was.Status.Capacity) || is.UID == was.UID {
		t.Errorf("the node came back as %+v; it was %+v", is, was)
	}
	shared.launch(t, newPod("after-return"), name)
	shared.awaitPhase(t, "after-return", corev1.PodRunning)
}

// A failed GPU is one less to allocate, however often it fails.
func TestGPUFails(t *testing.T) {
	const name = "node-00004"
	for _, step := range []struct {
		verb, index string
		left        int64
		failed      string
	}{
		{"fail", "3", 7, "3"},
		{"fail", "3", 7, "3"},
		{"fail", "0", 6, "0,3"},
		{"repair", "3", 7, "0"},
		{"repair", "0", 8, ""},
	} {
		mustRun(t, step.verb, "gpu", name, step.index)
		n := shared.node(t, name)
		left, all := n.Status.Allocatable[fleet.GPUResource], n.Status.Capacity[fleet.GPUResource]
		if left.Value() != step.left || all.Value() != 8 || n.Annotations[fleet.FailedGPUs] != step.failed {
			t.Errorf("%s gpu %s: %d of %d GPUs are left, %q failed; want %d, %q", step.verb, step.index,
				left.Value(), all.Value(), n.Annotations[fleet.FailedGPUs], step.left, step.failed)
		}
	}
}

func TestPodFails(t *testing.T) {
	once := newPod("crashes")
	again := newPod("crashes-again")
	again.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	for _, p := range []*corev1.Pod{once, again} {
		shared.launch(t, p, "node-00005")
		shared.awaitPhase(t, p.Name, corev1.PodRunning)
		mustRun(t, "fail", "pod", "default/"+p.Name)
	}
	p := shared.awaitPhase(t, once.Name, corev1.PodFailed)
	if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 137 {
		t.Errorf("the crash looks like %+v", end)
	}
	p = shared.awaitPhase(t, again.Name, corev1.PodRunning)
	if s := p.Status.ContainerStatuses[0]; s.RestartCount != 1 || s.State.Running == nil {
		t.Errorf("the containers are %+v; want them running for the second time", s)
	}
}

// With DRA, nodes have slices in place of the resource; a failed GPU has a taint,
// and the slice of a removed node goes and comes with it.
func TestDRA(t *testing.T) {
	c := mustUp(t, "--ephemeral", "--dra", "--cluster", "2x4:A100")
	defer func() {
		if code := c.down(); code != 0 {
			t.Errorf("exit code %d: %s", code, c.stderr)
		}
	}()
	api := c.client.ResourceV1()
	list, err := api.ResourceSlices().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("there are %d slices (%v); want 2", len(list.Items), err)
	}
	s := list.Items[0].Spec
	if len(s.Devices) != 4 || s.Driver != "gpu.nvidia.com" || ptr.Deref(s.NodeName, "") != "node-00000" {
		t.Fatalf("the first slice is %+v", s)
	}
	attributes := s.Devices[3].Attributes
	if ptr.Deref(attributes["type"].StringValue, "") != "gpu" || ptr.Deref(attributes["index"].IntValue, -1) != 3 ||
		ptr.Deref(attributes["productName"].StringValue, "") != "NVIDIA A100 SXM4 80GB" ||
		ptr.Deref(attributes["resource.kubernetes.io/numaNode"].IntValue, -1) != 1 ||
		!strings.HasPrefix(ptr.Deref(attributes["uuid"].StringValue, ""), "GPU-") {
		t.Errorf("the last device is %+v", s.Devices[3])
	}
	if _, ok := c.node(t, "node-00000").Status.Capacity[fleet.GPUResource]; ok {
		t.Error("the node has its GPUs as a resource too")
	}
	if _, err := api.DeviceClasses().Get(t.Context(), "gpu.nvidia.com", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	do := func(args ...string) {
		t.Helper()
		if code, stderr := command(append(args, "--kubeconfig", c.ready.Kubeconfig)...); code != 0 {
			t.Fatalf("%q: exit code %d: %s", args, code, stderr)
		}
	}
	taints := func() string {
		t.Helper()
		s, err := api.ResourceSlices().Get(t.Context(), "node-00000-gpu.nvidia.com", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, d := range s.Spec.Devices {
			for _, taint := range d.Taints {
				text = append(text, d.Name+" "+string(taint.Effect))
			}
		}
		return strings.Join(text, ", ")
	}
	do("fail", "gpu", "node-00000", "2")
	if got, want := taints(), "gpu-2 "+string(resourceapi.DeviceTaintEffectNoExecute); got != want {
		t.Errorf("the taints are %q; want %q", got, want)
	}
	do("fail", "node", "node-00000", "--gone")
	eventually(t, func() error {
		_, err := api.ResourceSlices().Get(t.Context(), "node-00000-gpu.nvidia.com", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the slice of a removed node is there (%v)", err)
	})
	do("repair", "node", "node-00000")
	eventually(t, func() error {
		_, err := api.ResourceSlices().Get(t.Context(), "node-00000-gpu.nvidia.com", metav1.GetOptions{})
		return err
	})
	if got, want := taints(), "gpu-2 NoExecute"; got != want {
		t.Errorf("after the node's return the taints are %q; want %q", got, want)
	}
	do("repair", "gpu", "node-00000", "2")
	if got := taints(); got != "" {
		t.Errorf("after the repair the taints are %q", got)
	}
}

// A cluster that lasts has the same nodes and pods after a restart, unless asked
// for others, and what was running goes on and ends.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	c := mustUp(t, "--dir", dir, "--nodes", "3")
	c.launch(t, newPod("goes-on"), "node-00001")
	c.awaitPhase(t, "goes-on", corev1.PodRunning)
	c.launch(t, newPod("ends", fleet.Duration, "4s"), "node-00002")
	ends := c.awaitPhase(t, "ends", corev1.PodRunning)
	url := c.ready.Server
	if code := c.down(); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr)
	}

	c = mustUp(t, "--dir", dir)
	if c.ready.Nodes != 3 || c.ready.Server != url {
		t.Errorf("after the restart: %+v; want 3 nodes at %s", c.ready, url)
	}
	p := c.awaitPhase(t, "goes-on", corev1.PodRunning)
	if p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod's containers were begun again: %+v", p.Status)
	}
	p = c.awaitPhase(t, "ends", corev1.PodSucceeded)
	if ran := p.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Sub(ends.Status.StartTime.Time); ran < 4*time.Second {
		t.Errorf("the pod ran %v; want 4s", ran)
	}
	if code := c.down(); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr)
	}

	c = mustUp(t, "--dir", dir, "--cluster", "2x4:A10", "--controllers", "*,-job-controller")
	defer c.down()
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 2 || nodes.Items[0].Labels["nvidia.com/gpu.product"] != "NVIDIA-A10" {
		t.Errorf("the nodes are not those asked for: %d, %v (%v)", len(nodes.Items), nodes.Items[0].Labels, err)
	}
}

func TestBadInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("node,gpu_model,gpus,cpu_milli,mem_mib,leaf,spine,superspine,hbd,labels\nnot_a_name,A10,1,1000,1024,,,,,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig := "--kubeconfig=" + shared.ready.Kubeconfig
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, `unknown command "nonsense"`},
		{[]string{"up", "extra"}, "extra"},
		{[]string{"up", "--nonsense"}, "--nonsense"},
		{[]string{"up", "--ephemeral", "--dir", "x"}, "--ephemeral: expected no --dir"},
		{[]string{"up", "--ephemeral", "--port", "70000"}, "--port: expected 0..65535"},
		{[]string{"up", "--ephemeral", "--cluster", "2x8", "--nodes", "2"}, "--cluster: expected none of"},
		{[]string{"up", "--ephemeral", "--cluster", filepath.Join(t.TempDir(), "none")}, "none"},
		{[]string{"up", "--ephemeral", "--cluster", file}, `"not_a_name"`},
		{[]string{"up", "--ephemeral", "--nodes", "-1"}, "--nodes: expected"},
		{[]string{"up", "--ephemeral", "--gpus-per-node", "65", "--nodes", "1"}, "64 GPUs a node"},
		{[]string{"up", "--ephemeral", "--nodes", "3", "--models", "H800:1"}, "expected 3 nodes in total"},
		{[]string{"up", "--ephemeral", "--models", "H800:x"}, "--models: expected"},
		{[]string{"up", "--ephemeral", "--controllers", "nonsense"}, "--controllers: expected"},
		{[]string{"up", "--dir", file, "--nodes", "1"}, "expected a writable folder"},
		{[]string{"fail", "node", kubeconfig}, "arg"},
		{[]string{"fail", "node", "none", kubeconfig}, "node none: not found"},
		{[]string{"repair", "node", "none", kubeconfig}, "node none: not found"},
		{[]string{"fail", "gpu", "node-00006", "8", kubeconfig}, "expected an index below 8"},
		{[]string{"fail", "gpu", "node-00006", "x", kubeconfig}, "expected the index of a GPU"},
		{[]string{"fail", "pod", "none", kubeconfig}, "expected NAMESPACE/NAME"},
		{[]string{"fail", "pod", "default/none", kubeconfig}, "not found"},
		{[]string{"fail", "node", "node-00006", "--kubeconfig", file}, "--kubeconfig"},
	} {
		t.Run(strings.Join(c.args[:min(3, len(c.args))], " "), func(t *testing.T) {
			code, stderr := command(c.args...)
			last := strings.TrimPrefix(stderr, "starting etcd and kube-apiserver\n")
			if code != exitBadInput || strings.Count(last, "\n") != 1 || !strings.Contains(last, c.want) {
				t.Errorf("exit code %d, stderr %q; want 2 and one line that says %q", code, stderr, c.want)
			}
		})
	}
}
