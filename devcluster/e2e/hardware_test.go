package e2e

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/hardware"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/gpu/gputest"
	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/kube/publish"
)

// hardwareAgent is what an agent has that watches the GPUs of a node: a management library, a kernel log, and the
// identity that the chart gives it.
type hardwareAgent struct {
	*cluster
	node    string
	library *gputest.Library
	root    string
	own     kubernetes.Interface
	watch   *hardware.Watch
	publish *publish.Publisher
}

// installAgentRole installs what the chart has for agents that write to the API, until the test ends.
func (c *cluster) installAgentRole() {
	c.Helper()
	var made []func()
	for _, doc := range append(chart(c.T, "agents-account.yaml"), chart(c.T, "agents-publish.yaml")...) {
		c.must(apply(ctx(), doc, systemNamespace))
		kind, name := fieldOf(doc, "kind"), fieldOf(doc, "  name")
		resource := installed[kind]
		made = append(made, func() {
			if kind == "ServiceAccount" {
				c.must(anyKind.Resource(resource).Namespace(systemNamespace).Delete(ctx(), name, metav1.DeleteOptions{}))
				return
			}
			c.must(anyKind.Resource(resource).Delete(ctx(), name, metav1.DeleteOptions{}))
		})
	}
	c.Cleanup(func() {
		for _, remove := range made {
			remove()
		}
	})
}

// fieldOf is the first value of a key at the beginning of a line.
func fieldOf(doc, key string) string {
	for line := range strings.Lines(doc) {
		if value, ok := strings.CutPrefix(line, key+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// agentToken is the token of an agent on a node.
func (c *cluster) agentToken(node string) string {
	c.Helper()
	token, err := admin.CoreV1().ServiceAccounts(systemNamespace).CreateToken(ctx(), "muster-agent", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: c.nodeUID(node)}},
	}, metav1.CreateOptions{})
	c.must(err)
	return token.Status.Token
}

// agentIdentity is that of an agent on a node.
func (c *cluster) agentIdentity(node string) kubernetes.Interface {
	c.Helper()
	config := rest.AnonymousClientConfig(address)
	config.BearerToken = c.agentToken(node)
	client, err := kubernetes.NewForConfig(config)
	c.must(err)
	return client
}

// watched gives a node an agent that watches GPUs with these UUIDs.
func (c *cluster) watched(node string, uuids []string) *hardwareAgent {
	c.Helper()
	a := &hardwareAgent{cluster: c, node: node, library: gputest.NewLibrary(c.T), root: c.TempDir(), own: c.agentIdentity(node)}
	a.write("proc/sys/kernel/random/boot_id", "one")
	a.write("proc/uptime", "60.00 1.00\n")
	a.write("kmsg", "")
	var lines []string
	for i, uuid := range uuids {
		lines = append(lines, "gpu links=s uuid="+uuid)
		a.write(fmt.Sprintf("sys/bus/pci/devices/0000:%02x:00.0/numa_node", 0x10+i), fmt.Sprint(i*2/len(uuids)))
	}
	a.library.Set(c.T, lines...)
	log := slog.New(slog.NewTextHandler(testWriter{c.T}, nil))
	var err error
	a.watch, err = hardware.Open(hardware.Options{
		Program: a.library.Program, Library: a.library.Path, Environment: a.library.Environment(), System: a.root,
		KernelLog: filepath.Join(a.root, "kmsg"), StateDir: filepath.Join(a.root, "state"), Timeout: time.Minute, Log: log,
	})
	c.must(err)
	a.publish = &publish.Publisher{Client: a.own, Node: node, Log: log, Now: time.Now}
	return a
}

// testWriter writes to the log of a test.
type testWriter struct{ *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (a *hardwareAgent) write(name, text string) {
	a.Helper()
	path := filepath.Join(a.root, name)
	a.must(os.MkdirAll(filepath.Dir(path), 0o700))
	a.must(os.WriteFile(path, []byte(text), 0o600))
}

// reads lets the agent look at its GPUs, and write what it finds.
func (a *hardwareAgent) reads() { a.publish.Publish(ctx(), a.watch.Read(ctx())) }

// hears is a message in the kernel log of the agent's node.
func (a *hardwareAgent) hears(sequence int, text string) {
	a.Helper()
	f, err := os.OpenFile(filepath.Join(a.root, "kmsg"), os.O_APPEND|os.O_WRONLY, 0)
	a.must(err)
	_, err = fmt.Fprintf(f, "4,%d,1000000,-;%s\n", sequence, text)
	a.must(err)
	a.must(f.Close())
}

// gpuCondition is what the node says of its GPUs, as status and reason.
func (a *hardwareAgent) gpuCondition() string {
	a.Helper()
	n, err := admin.CoreV1().Nodes().Get(ctx(), a.node, metav1.GetOptions{})
	a.must(err)
	for _, c := range n.Status.Conditions {
		if c.Type == publish.Condition {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// A GPU with a fatal error in the kernel log gets no new pods: on a node with a device plugin its node is closed, where a
// DRA driver publishes it only that device is, for all schedulers. When it is repaired, pods come again.
func TestFaultyGPU(t *testing.T) {
	c := begin(t)
	c.installAgentRole()
	c.node("plain")
	c.publishing(gpus(4, "A100"), []string{"dra"})
	list, err := admin.ResourceV1().ResourceSlices().Get(ctx(), "dra-"+gpuClass, metav1.GetOptions{})
	c.must(err)
	var uuids []string
	for _, d := range list.Spec.Devices {
		uuids = append(uuids, *d.Attributes["uuid"].StringValue)
	}
	plain, dra := c.watched("plain", []string{"GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7"}), c.watched("dra", uuids)
	c.until("the agent of the chart may write", func() error {
		plain.reads()
		dra.reads()
		if a, b := plain.gpuCondition(), dra.gpuCondition(); a != "True NoFault" || b != a {
			return fmt.Errorf("the nodes say %q and %q", a, b)
		}
		return nil
	})
	n, err := admin.CoreV1().Nodes().Get(ctx(), "plain", metav1.GetOptions{})
	c.must(err)
	if got := n.Annotations[v1alpha1.GPUPositionsAnnotation]; !strings.HasPrefix(got, "0/0/-|0/0/-|") {
		t.Errorf("the node says of its GPUs: %q", got)
	}
	c.schedule()
	c.template("three", devices(3))
	c.template("one", devices(1))
	c.create(pod("before", asks(1)))
	c.bound("before")

	plain.hears(1, "NVRM: Xid (PCI:0000:12:00): 79, pid=7, GPU has fallen off the bus.")
	dra.hears(1, "NVRM: Xid (PCI:0000:11:00): 48, DBE (double bit error) ECC")
	plain.reads()
	dra.reads()
	if a, b := plain.gpuCondition(), dra.gpuCondition(); a != "False XidError" || b != a {
		t.Errorf("the nodes say %q and %q", a, b)
	}
	rules, err := admin.ResourceV1().DeviceTaintRules().List(ctx(), metav1.ListOptions{})
	c.must(err)
	if len(rules.Items) != 1 || *rules.Items[0].Spec.DeviceSelector.Device != "gpu-1" || rules.Items[0].Spec.Taint.Key != v1alpha1.FaultTaint {
		t.Errorf("the taints are %+v", rules.Items)
	}
	people, err := console.New(address)
	c.must(err)
	nodes, err := people.Nodes(ctx())
	c.must(err)
	for _, n := range nodes {
		if want := map[string]int{"plain": 8, "dra": 1}[n.Name]; n.Unhealthy != want {
			t.Errorf("of %s, %d GPUs are unhealthy; expected %d", n.Name, n.Unhealthy, want)
		}
	}
	c.create(pod("three", byTemplate("three")))
	c.bound("three")
	if got := c.get("three").Annotations[v1alpha1.GPUsAnnotation]; got != "0,2,3" {
		t.Errorf("the pod has the GPUs %s", got)
	}
	c.create(pod("one", byTemplate("one")), pod("after", asks(1)))
	c.waits("one", "Resources")
	c.waits("after", "Resources")

	_, err = plain.watch.Clear(ctx(), "")
	c.must(err)
	_, err = dra.watch.Clear(ctx(), uuids[1])
	c.must(err)
	plain.reads()
	dra.reads()
	c.bound("after", "one")
	c.auditClaims()
	rules, err = admin.ResourceV1().DeviceTaintRules().List(ctx(), metav1.ListOptions{})
	c.must(err)
	if len(rules.Items) != 0 {
		t.Errorf("the taints %+v were left", rules.Items)
	}
}

// The program itself: it publishes, survives kill -9 without repeating an error, is asked by the name of its node, and ends in order.
func TestAgentProcess(t *testing.T) {
	c := begin(t)
	c.installAgentRole()
	certs := filepath.Join(t.TempDir(), "certs")
	c.must(agent.WriteCertificates(certs, []string{"127.0.0.1", "n"}, "muster"))
	port, err := net.Listen("tcp", "127.0.0.1:0") // one that is free
	c.must(err)
	at := port.Addr().String()
	c.must(port.Close())
	c.node("n", func(n *v1.Node) { n.Annotations = map[string]string{v1alpha1.AgentAnnotation: at} })
	a := c.watched("n", []string{"GPU-a", "GPU-b"})
	kubeconfig := filepath.Join(a.root, "kubeconfig")
	for name, user := range map[string]*clientcmdapi.AuthInfo{
		kubeconfig:            {Token: c.agentToken("n")},
		kubeconfig + "-admin": {ClientCertificateData: address.CertData, ClientKeyData: address.KeyData, ClientCertificate: address.CertFile, ClientKey: address.KeyFile, Token: address.BearerToken},
	} {
		c.must(clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: address.Host, CertificateAuthority: address.CAFile, CertificateAuthorityData: address.CAData}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": user},
			Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
			CurrentContext: "x",
		}, name))
	}
	in := func(name string) string { return filepath.Join(certs, name) }
	program := func(arguments ...string) *exec.Cmd {
		run := exec.Command("muster", arguments...)
		run.Env = append(os.Environ(), append(a.library.Environment(), "MUSTER_GPU_NVML="+a.library.Program, "MUSTER_NVML="+a.library.Path, "MUSTER_SYSTEM="+a.root)...)
		return run
	}
	start := func() *exec.Cmd {
		run := program("agent", "--publish", "--kubeconfig", kubeconfig, "--node-name", "n", "--listen", at, "--gpu-interval", "1s", "--kernel-log", filepath.Join(a.root, "kmsg"),
			"--state-dir", filepath.Join(a.root, "state"), "--gpu-dir", a.root, "--tls-cert", in("agent.crt"), "--tls-key", in("agent.key"), "--tls-ca", in("ca.crt"))
		run.Stderr = testWriter{t}
		c.must(run.Start())
		c.Cleanup(func() { _ = run.Process.Kill() })
		return run
	}
	says := func(want string) {
		t.Helper()
		c.until("the node says "+want, func() error {
			if got := a.gpuCondition(); got != want {
				return fmt.Errorf("it says %q", got)
			}
			return nil
		})
	}
	first := start()
	says("True NoFault")
	a.hears(1, "NVRM: Xid (PCI:0000:11:00): 79, pid=7, GPU has fallen off the bus.")
	says("False XidError")
	c.until("the node has the error", func() error {
		n, err := admin.CoreV1().Nodes().Get(ctx(), "n", metav1.GetOptions{})
		if err == nil && !strings.Contains(n.Annotations[v1alpha1.GPUErrorsAnnotation], "11:00): 79,") {
			err = fmt.Errorf("it says %v", n.Annotations)
		}
		return err
	})
	c.must(first.Process.Kill())
	_ = first.Wait()

	second := start()
	show := func(arguments ...string) string {
		t.Helper()
		out, err := program(append(arguments, "n", "--kubeconfig", kubeconfig+"-admin", "--tls-cert", in("client.crt"), "--tls-key", in("client.key"), "--tls-ca", in("ca.crt"))...).CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return string(out)
	}
	c.until("the agent that was started again answers", func() error {
		if text := show("agent", "gpus"); strings.Count(text, "Xid 79") != 2 || !strings.Contains(text, "GPU-b") { // the fault, and one error
			return fmt.Errorf("it says\n%s", text)
		}
		return nil
	})
	if text := show("agent", "clear", "--gpu", "GPU-b"); !strings.Contains(text, "GPU-b") {
		t.Errorf("clear says\n%s", text)
	}
	says("True NoFault")
	c.must(second.Process.Signal(syscall.SIGTERM))
	if err := second.Wait(); err != nil {
		t.Errorf("the agent ended: %v", err)
	}
}

// An agent whose node was taken over can write only the health of that node.
func TestAgentIsHeldToItsNode(t *testing.T) {
	c := begin(t)
	c.installAgentRole()
	c.node("mine")
	c.node("other")
	own := c.agentIdentity("mine")
	patch := func(node, text string) error {
		_, err := own.CoreV1().Nodes().Patch(ctx(), node, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, "status")
		return err
	}
	rule := func(name, pool, device, key string) error {
		_, err := own.ResourceV1().DeviceTaintRules().Create(ctx(), &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: ptr.To(pool), Device: ptr.To(device)},
			Taint:          resourceapi.DeviceTaint{Key: key, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		}}, metav1.CreateOptions{})
		return err
	}
	const health = `{"status": {"conditions": [{"type": "GPUHealthy", "status": "False", "reason": "XidError", "message": "x"}]}}`
	c.until("the policy holds", func() error {
		if err := patch("other", health); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another node can be written: %v", err)
		}
		return patch("mine", health)
	})
	c.must(patch("mine", `{"metadata": {"annotations": {"muster.sh/gpu-positions": "0/0/-"}}}`))
	c.must(patch("mine", `{"metadata": {"annotations": {"muster.sh/gpu-errors": "[]"}}}`))
	c.must(rule("held-1", "mine", "gpu-1", v1alpha1.FaultTaint))
	for what, err := range map[string]error{
		"another condition":         patch("mine", `{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`),
		"capacity":                  patch("mine", `{"status": {"capacity": {"nvidia.com/gpu": "1"}}}`),
		"allocatable":               patch("mine", `{"status": {"allocatable": {"nvidia.com/gpu": "1"}}}`),
		"addresses":                 patch("mine", `{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}`),
		"a label":                   patch("mine", `{"metadata": {"labels": {"a": "b"}}}`),
		"another annotation":        patch("mine", `{"metadata": {"annotations": {"muster.sh/agent": "evil:1"}}}`),
		"the rule of another node":  rule("held-2", "other", "gpu-1", v1alpha1.FaultTaint),
		"a rule for all devices":    rule("held-3", "mine", "", v1alpha1.FaultTaint),
		"a rule with another taint": rule("held-4", "mine", "gpu-1", "worn"),
	} {
		if !apierrors.IsForbidden(err) && !(apierrors.IsInvalid(err) && what == "a rule for all devices") {
			t.Errorf("%s: the API answers %v", what, err)
		}
	}
	_, err := admin.ResourceV1().DeviceTaintRules().Create(ctx(), &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "an-operators"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: ptr.To("mine"), Device: ptr.To("gpu-2")},
		Taint:          resourceapi.DeviceTaint{Key: "worn", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}}, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() {
		c.must(admin.ResourceV1().DeviceTaintRules().Delete(ctx(), "an-operators", metav1.DeleteOptions{}))
	})
	if err := own.ResourceV1().DeviceTaintRules().Delete(ctx(), "an-operators", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the rule of an operator can be removed: %v", err)
	}
	c.must(own.ResourceV1().DeviceTaintRules().Delete(ctx(), "held-1", metav1.DeleteOptions{}))
	n, err := admin.CoreV1().Nodes().Get(ctx(), "mine", metav1.GetOptions{})
	c.must(err)
	if !isReady(n) {
		t.Errorf("the node says %+v", n.Status.Conditions)
	}
}

func isReady(n *v1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
