package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/core/policy/muster"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/local"
)

// draCluster is a cluster whose nodes publish their GPUs by DRA: it is one of its
// own, for DRA holds for all of a cluster's nodes.
type draCluster struct {
	t      *testing.T
	ctx    context.Context
	admin  kubernetes.Interface
	config *rest.Config // the scheduler's
	stop   func()
	log    bytes.Buffer
}

func startDRA(t *testing.T, nodes string) *draCluster {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	server, err := local.Start(ctx, func(line string) { fmt.Fprintln(&log, line) }, "--ephemeral", "--dra", "--cluster", nodes)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	t.Cleanup(server.Stop)
	address, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	address.QPS = -1
	if err := local.Install(ctx, address); err != nil {
		t.Fatal(err)
	}
	c := &draCluster{t: t, ctx: ctx}
	if c.admin, err = kubernetes.NewForConfig(address); err != nil {
		t.Fatal(err)
	}
	c.identify(address)
	c.start()
	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
	return c
}

// identify gives the scheduler the ServiceAccount and the role of the chart, as
// the kustomize base has them.
func (c *draCluster) identify(address *rest.Config) {
	c.t.Helper()
	const namespace = "muster-system"
	_, err := c.admin.CoreV1().Namespaces().Create(c.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.admin.CoreV1().ServiceAccounts(namespace).Create(c.ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "muster"}}, metav1.CreateOptions{})
	c.must(err)
	data, err := os.ReadFile("../../deploy/kustomize/base/muster.yaml")
	c.must(err)
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		c.must(yaml.Unmarshal([]byte(doc), role))
		if role.Kind != "ClusterRole" || role.Name != "muster-scheduler" {
			continue
		}
		_, err := c.admin.RbacV1().ClusterRoles().Create(c.ctx, role, metav1.CreateOptions{})
		c.must(err)
		_, err = c.admin.RbacV1().ClusterRoleBindings().Create(c.ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "muster", Namespace: namespace}},
		}, metav1.CreateOptions{})
		c.must(err)
	}
	token, err := c.admin.CoreV1().ServiceAccounts(namespace).CreateToken(c.ctx, "muster",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}, metav1.CreateOptions{})
	c.must(err)
	c.config = rest.AnonymousClientConfig(address)
	c.config.BearerToken = token.Status.Token
}

// start runs a scheduler; c.stop ends it.
func (c *draCluster) start() {
	c.t.Helper()
	s, err := kube.New(kube.Config{
		API: c.config, Policy: muster.Docs[0].Policy, Log: slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	c.must(err)
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	}
	select {
	case <-s.Ready():
	case <-c.ctx.Done():
		c.t.Fatalf("the scheduler is not ready\n%s", &c.log)
	}
}

func (c *draCluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// eventually waits until what is asked is so.
func (c *draCluster) eventually(what string, ask func() error) {
	c.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.ctx, 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		last = ask()
		return last == nil, nil
	})
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", what, last, &c.log)
	}
}

func asks(class string, count int64, selectors ...string) resourceapi.ResourceClaimSpec {
	e := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	for _, s := range selectors {
		e.Selectors = append(e.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: s}})
	}
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpus", Exactly: e}}}}
}

func (c *draCluster) template(name string, spec resourceapi.ResourceClaimSpec) {
	c.t.Helper()
	_, err := c.admin.ResourceV1().ResourceClaimTemplates("default").Create(c.ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}, metav1.CreateOptions{})
	c.must(err)
}

// pod makes a pod with a claim from a template, or with a claim of that name.
func (c *draCluster) pod(name, template, claim string, with ...func(*v1.Pod)) {
	c.t.Helper()
	r := v1.PodResourceClaim{Name: "gpus"}
	if template != "" {
		r.ResourceClaimTemplateName = &template
	} else {
		r.ResourceClaimName = &claim
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: v1.PodSpec{
		SchedulerName: "muster", ResourceClaims: []v1.PodResourceClaim{r}, RestartPolicy: v1.RestartPolicyNever,
		Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpus"}}}}},
	}}
	for _, f := range with {
		f(p)
	}
	_, err := c.admin.CoreV1().Pods("default").Create(c.ctx, p, metav1.CreateOptions{})
	c.must(err)
}

func (c *draCluster) get(name string) *v1.Pod {
	c.t.Helper()
	p, err := c.admin.CoreV1().Pods("default").Get(c.ctx, name, metav1.GetOptions{})
	c.must(err)
	return p
}

func (c *draCluster) remove(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.must(c.admin.CoreV1().Pods("default").Delete(c.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	}
}

// runs waits until the pods run.
func (c *draCluster) runs(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.eventually(name+" runs", func() error {
			if p := c.get(name); p.Status.Phase != v1.PodRunning {
				return fmt.Errorf("it is %s on %q: %+v", p.Status.Phase, p.Spec.NodeName, p.Status.Conditions)
			}
			return nil
		})
	}
}

// waits waits until the pod says that it waits for the reason.
func (c *draCluster) waits(name, reason, text string) {
	c.t.Helper()
	c.eventually(name+" waits", func() error {
		p := c.get(name)
		for _, k := range p.Status.Conditions {
			if k.Type == "muster.sh/Waiting" && k.Status == v1.ConditionTrue && k.Reason == reason && strings.Contains(k.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("on %q, its conditions are %+v", p.Spec.NodeName, p.Status.Conditions)
	})
}

// audit fails the test unless every device is in one claim, every pod that runs
// has the devices that its annotation says, on its node, and its claims say that
// they are its.
func (c *draCluster) audit() {
	c.t.Helper()
	claims, err := c.admin.ResourceV1().ResourceClaims("default").List(c.ctx, metav1.ListOptions{})
	c.must(err)
	holder := map[string]string{}
	byName := map[string]*resourceapi.ResourceClaim{}
	for i := range claims.Items {
		k := &claims.Items[i]
		byName[k.Name] = k
		if k.Status.Allocation == nil {
			continue
		}
		if !slices.Contains(k.Finalizers, resourceapi.Finalizer) {
			c.t.Errorf("claim %s has devices and no finalizer", k.Name)
		}
		for _, r := range k.Status.Allocation.Devices.Results {
			id := r.Pool + "/" + r.Device
			if holder[id] != "" {
				c.t.Errorf("device %s is in the claims %s and %s", id, holder[id], k.Name)
			}
			holder[id] = k.Name
		}
	}
	pods, err := c.admin.CoreV1().Pods("default").List(c.ctx, metav1.ListOptions{})
	c.must(err)
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != v1.PodRunning {
			continue
		}
		for _, s := range p.Status.ResourceClaimStatuses {
			k := byName[ptr.Deref(s.ResourceClaimName, "")]
			if k == nil || k.Status.Allocation == nil {
				c.t.Errorf("pod %s runs without devices", p.Name)
				continue
			}
			if len(k.Status.ReservedFor) != 1 || k.Status.ReservedFor[0].UID != p.UID {
				c.t.Errorf("claim %s of pod %s is reserved for %+v", k.Name, p.Name, k.Status.ReservedFor)
			}
			var got []string
			for _, r := range k.Status.Allocation.Devices.Results {
				if r.Pool != p.Spec.NodeName || r.Request != "gpus" || r.Driver != "gpu.nvidia.com" {
					c.t.Errorf("claim %s of pod %s on %s has %+v", k.Name, p.Name, p.Spec.NodeName, r)
				}
				got = append(got, strings.TrimPrefix(r.Device, "gpu-"))
			}
			if want := p.Annotations["muster.sh/gpus"]; strings.Join(got, ",") != want {
				c.t.Errorf("pod %s has devices %v, and its annotation is %q", p.Name, got, want)
			}
		}
	}
}

// A pod that asks by claims gets the devices that the engine chose; when it ends
// they are another's; what cannot be had is said; and a scheduler that starts anew
// finds everything as it is.
func TestDRA(t *testing.T) {
	c := startDRA(t, "2x4:H800,1x4:A100")
	c.template("two", asks("gpu.nvidia.com", 2))
	c.template("a100", asks("gpu.nvidia.com", 4, `device.attributes["gpu.nvidia.com"].productName.contains("A100")`))
	c.template("third", asks("gpu.nvidia.com", 1, `device.attributes["gpu.nvidia.com"].index == 3`))

	c.pod("big", "a100", "")
	c.runs("big")
	if at := c.get("big").Spec.NodeName; at != "node-00002" {
		t.Errorf("the pod for an A100 is on %s", at)
	}
	for i := range 4 {
		c.pod(fmt.Sprintf("p%d", i), "two", "")
	}
	c.runs("p0", "p1", "p2", "p3")
	c.audit()

	c.pod("late", "two", "")
	c.pod("picky", "third", "")
	c.waits("late", "Resources", "")
	c.waits("picky", "Misconfigured", "its selectors hold for some GPUs of a node and not for others")

	c.stop()
	c.start()
	c.remove("p2")
	c.runs("late")
	c.audit()

	c.remove("big")
	_, err := c.admin.ResourceV1().DeviceTaintRules().Create(c.ctx, &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "worn"},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: ptr.To("node-00002"), Device: ptr.To("gpu-1")},
			Taint:          resourceapi.DeviceTaint{Key: "worn", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}, metav1.CreateOptions{})
	c.must(err)
	c.pod("again", "a100", "")
	c.waits("again", "Resources", "")
	c.must(c.admin.ResourceV1().DeviceTaintRules().Delete(c.ctx, "worn", metav1.DeleteOptions{}))
	c.runs("again")
	c.audit()
}

// Pods that share a claim run on the node of its devices, a gang of them too.
func TestDRAShared(t *testing.T) {
	c := startDRA(t, "2x4:H800")
	for _, name := range []string{"alone", "gang"} {
		_, err := c.admin.ResourceV1().ResourceClaims("default").Create(c.ctx, &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: asks("gpu.nvidia.com", 3),
		}, metav1.CreateOptions{})
		c.must(err)
	}
	c.pod("s1", "", "alone")
	c.pod("s2", "", "alone")
	c.runs("s1", "s2")
	if a, b := c.get("s1"), c.get("s2"); a.Spec.NodeName != b.Spec.NodeName {
		t.Errorf("pods that share a claim are on %s and %s", a.Spec.NodeName, b.Spec.NodeName)
	}

	_, err := c.admin.SchedulingV1beta1().PodGroups("default").Create(c.ctx, &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "gang"},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 3}},
			ResourceClaims:   []schedulingv1beta1.PodGroupResourceClaim{{Name: "gpus", ResourceClaimName: ptr.To("gang")}},
		},
	}, metav1.CreateOptions{})
	c.must(err)
	for _, name := range []string{"g1", "g2", "g3"} {
		c.pod(name, "", "gang", func(p *v1.Pod) {
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("gang")}
		})
	}
	c.runs("g1", "g2", "g3")
	claim, err := c.admin.ResourceV1().ResourceClaims("default").Get(c.ctx, "gang", metav1.GetOptions{})
	c.must(err)
	if r := claim.Status.ReservedFor; len(r) != 1 || r[0].Resource != "podgroups" || r[0].Name != "gang" {
		t.Errorf("the gang's claim is reserved for %+v", r)
	}
	for _, name := range []string{"g1", "g2", "g3"} {
		if at := c.get(name).Spec.NodeName; at != claim.Status.Allocation.Devices.Results[0].Pool {
			t.Errorf("%s is on %s, and the devices of its claim in %s", name, at, claim.Status.Allocation.Devices.Results[0].Pool)
		}
	}
	c.remove("s1", "s2")
	c.eventually("the claim is free", func() error {
		k, err := c.admin.ResourceV1().ResourceClaims("default").Get(c.ctx, "alone", metav1.GetOptions{})
		if err == nil && k.Status.Allocation != nil {
			return fmt.Errorf("it is reserved for %+v", k.Status.ReservedFor)
		}
		return err
	})
}

// A pod that asks for a resource which a device class provides gets devices by a
// claim that the scheduler makes.
func TestDRAExtended(t *testing.T) {
	c := startDRA(t, "1x4:H800")
	gpus := func(n string) v1.Container {
		list := v1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse(n)}
		return v1.Container{Name: "c" + n, Image: "none", Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
	}
	extended := func(name string, containers ...v1.Container) {
		c.pod(name, "", "", func(p *v1.Pod) { p.Spec.ResourceClaims, p.Spec.Containers = nil, containers })
	}
	extended("p", gpus("1"), gpus("2"))
	c.runs("p")
	p := c.get("p")
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil || len(status.RequestMappings) != 2 {
		t.Fatalf("the pod's claim is %+v", status)
	}
	claim, err := c.admin.ResourceV1().ResourceClaims("default").Get(c.ctx, status.ResourceClaimName, metav1.GetOptions{})
	c.must(err)
	var got []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		got = append(got, r.Request+":"+r.Device)
	}
	if want := "container-0-request-1:gpu-0 container-1-request-1:gpu-1 container-1-request-1:gpu-2"; strings.Join(got, " ") != want {
		t.Errorf("the claim has %v; want %s", got, want)
	}
	if len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].UID != p.UID {
		t.Errorf("the claim is reserved for %+v", claim.Status.ReservedFor)
	}
	c.audit()

	extended("q", gpus("2"))
	c.waits("q", "Resources", "")
	c.stop()
	c.start()
	c.remove("p")
	c.runs("q")
	c.audit()
}
