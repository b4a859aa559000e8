package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	deployDir = "../../deploy/"
	chartDir  = deployDir + "helm/muster"
)

// object is a rendered document. Object is nil for kinds that Kubernetes does
// not have itself.
type object struct {
	kind, name string
	runtime.Object
}

// renderObjects renders the chart, and reads what it makes as an API server
// does that refuses unknown fields.
func renderObjects(t *testing.T, values map[string]any) []object {
	t.Helper()
	docs, err := render(chartDir, values)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []object
	for _, doc := range docs {
		var head struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		o := object{kind: head.Kind, name: head.Name}
		gv, err := schema.ParseGroupVersion(head.APIVersion)
		if err != nil {
			t.Fatal(err)
		}
		if scheme.Scheme.IsVersionRegistered(gv) {
			if o.Object, _, err = decoder.Decode([]byte(doc), nil, nil); err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
		}
		all = append(all, o)
	}
	return all
}

// find returns the one object of that kind and name.
func find[T runtime.Object](t *testing.T, all []object, name string) T {
	t.Helper()
	for _, o := range all {
		if typed, ok := o.Object.(T); ok && o.name == name {
			return typed
		}
	}
	t.Fatalf("there is no %T %s", *new(T), name)
	panic("unreachable")
}

func names(all []object) []string {
	var names []string
	for _, o := range all {
		names = append(names, o.kind+" "+o.name)
	}
	slices.Sort(names)
	return names
}

func arguments(t *testing.T, all []object) []string {
	t.Helper()
	return find[*appsv1.Deployment](t, all, "muster-scheduler").Spec.Template.Spec.Containers[0].Args
}

func TestTheBaseIsTheChart(t *testing.T) {
	base, err := os.ReadFile(deployDir + "kustomize/base/muster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := render(chartDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, after, _ := strings.Cut(string(base), "\n"); after != strings.Join(docs, "") {
		t.Error("deploy/kustomize/base/muster.yaml is not what the chart makes: make generate")
	}
}

func TestTheChartHasCopies(t *testing.T) {
	definitions, err := fs.Glob(os.DirFS(deployDir), "crds/*_*.yaml")
	if err != nil || len(definitions) != 4 {
		t.Fatalf("found %v, %v", definitions, err)
	}
	list, err := os.ReadFile(deployDir + "crds/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range definitions {
		if !bytes.Contains(list, []byte("- "+strings.TrimPrefix(file, "crds/")+"\n")) {
			t.Errorf("deploy/crds/kustomization.yaml does not list %s", file)
		}
		same(t, deployDir+file, chartDir+"/"+file)
	}
	same(t, deployDir+"grafana/muster.json", chartDir+"/files/muster.json")
}

func same(t *testing.T, a, b string) {
	t.Helper()
	one, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, other) {
		t.Errorf("%s and %s differ: make generate", a, b)
	}
}

func TestDefaultValues(t *testing.T) {
	all := renderObjects(t, nil)
	want := []string{
		"ClusterRole muster-editor", "ClusterRole muster-metrics-reader", "ClusterRole muster-queue-admin", "ClusterRole muster-queue-editor",
		"ClusterRole muster-queue-viewer", "ClusterRole muster-scheduler", "ClusterRole muster-schedulingpolicy-editor",
		"ClusterRole muster-schedulingpolicy-viewer", "ClusterRole muster-topology-editor",
		"ClusterRole muster-topology-viewer", "ClusterRole muster-viewer", "ClusterRoleBinding muster-scheduler",
		"Deployment muster-scheduler", "FlowSchema muster-leases", "FlowSchema muster-scheduler", "NetworkPolicy muster-scheduler",
		"PodDisruptionBudget muster-scheduler", "PriorityLevelConfiguration muster-leases", "PriorityLevelConfiguration muster-scheduler",
		"Role muster-scheduler", "RoleBinding muster-scheduler", "Service muster-metrics", "ServiceAccount muster",
		"ValidatingAdmissionPolicy muster-scheduler", "ValidatingAdmissionPolicy muster-tenants",
		"ValidatingAdmissionPolicyBinding muster-scheduler", "ValidatingAdmissionPolicyBinding muster-tenants",
	}
	if got := names(all); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	args := []string{
		"scheduler", "--policy=default", "--leader-elect", "--leader-elect-namespace=$(POD_NAMESPACE)",
		"--metrics-address=:8080", "--metrics-secure", "--log-level=info", "--log-format=json",
	}
	if got := arguments(t, all); !slices.Equal(got, args) {
		t.Errorf("got  %q\nwant %q", got, args)
	}
}

func TestEveryValue(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	all := renderObjects(t, map[string]any{
		"image":            map[string]any{"repository": "example.com/muster", "tag": digest},
		"imagePullSecrets": []any{map[string]any{"name": "registry"}},
		"policy":           "night", "topology": "datacentre", "workers": 64, "passLimit": "10m", "closedQueues": true, "shards": []any{"H800,H20", "*"},
		"log":       map[string]any{"level": "debug", "format": "text"},
		"record":    map[string]any{"enabled": true, "sizeLimit": "2Gi"},
		"pprof":     map[string]any{"enabled": true},
		"quotaGate": map[string]any{"enabled": true},
		"metrics": map[string]any{
			"port": 9090, "tlsSecret": "muster-metrics", "readers": []any{map[string]any{"kind": "User", "name": "prometheus"}},
			"service":        map[string]any{"annotations": map[string]any{"a": "b"}},
			"serviceMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
			"dashboard":      map[string]any{"enabled": true},
			"prometheusRule": map[string]any{"enabled": true},
		},
		"serviceAccount": map[string]any{"name": "scheduler", "annotations": map[string]any{"a": "b"}},
		"tolerations":    []any{map[string]any{"operator": "Exists"}},
		"affinity":       map[string]any{"nodeAffinity": map[string]any{}},
		"podAnnotations": map[string]any{"a": "b"}, "podLabels": map[string]any{"c": "d"},
		"extraArgs": []any{"--log-level=warn"},
		"extraEnv":  []any{map[string]any{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}},
	})
	want := []string{
		"scheduler", "--policy=night", "--topology=datacentre", "--leader-elect", "--leader-elect-namespace=$(POD_NAMESPACE)",
		"--shard=H800,H20", "--shard=*", "--workers=64", "--pass-limit=10m", "--closed-queues", "--metrics-address=:9090",
		"--metrics-secure", "--metrics-tls-cert=/etc/muster/metrics/tls.crt", "--metrics-tls-key=/etc/muster/metrics/tls.key", "--pprof-address=127.0.0.1:6060", "--log-level=debug",
		"--log-format=text", "--record=/var/lib/muster", "--log-level=warn",
	}
	if got := arguments(t, all); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	pod := find[*appsv1.Deployment](t, all, "muster-scheduler").Spec.Template
	if got := pod.Spec.Containers[0].Image; got != "example.com/muster@"+digest {
		t.Errorf("image %s", got)
	}
	if got := pod.Spec.Containers[0].Env; len(got) != 2 || got[1].Value != "http://collector:4318" {
		t.Errorf("environment %v", got)
	}
	if got := pod.Spec.ServiceAccountName; got != "scheduler" {
		t.Errorf("service account %s", got)
	}
	if pod.Labels["c"] != "d" || pod.Annotations["a"] != "b" || len(pod.Spec.Volumes) != 2 || len(pod.Spec.Tolerations) != 1 {
		t.Errorf("pod %+v", pod)
	}
	for _, name := range []string{"ServiceMonitor muster-scheduler", "ClusterRoleBinding muster-metrics-reader", "ConfigMap muster-dashboard", "PrometheusRule muster-alerts",
		"MutatingAdmissionPolicy muster-quota-gate", "MutatingAdmissionPolicyBinding muster-quota-gate"} {
		if !slices.Contains(names(all), name) {
			t.Errorf("there is no %s", name)
		}
	}
	if data := find[*corev1.ConfigMap](t, all, "muster-dashboard").Data["muster.json"]; !json.Valid([]byte(data)) {
		t.Error("the dashboard in the ConfigMap is not JSON")
	}
}

// The agents have certificates and the folders of the node, and the scheduler knows where and as whom to call them.
func TestAgents(t *testing.T) {
	all := renderObjects(t, map[string]any{"agents": map[string]any{
		"secret": "scheduler", "name": "muster-agent", "port": 9441,
		"daemonSet": map[string]any{"enabled": true, "secret": "agents"},
	}})
	for _, want := range []string{
		"--agent-tls-cert=/etc/muster/agents/tls.crt", "--agent-tls-key=/etc/muster/agents/tls.key", "--agent-tls-ca=/etc/muster/agents/ca.crt",
		"--agent-port=9441", "--agent-name=muster-agent",
	} {
		if !slices.Contains(arguments(t, all), want) {
			t.Errorf("the scheduler lacks %s", want)
		}
	}
	if v := find[*appsv1.Deployment](t, all, "muster-scheduler").Spec.Template.Spec.Volumes; len(v) != 1 || v[0].Secret.SecretName != "scheduler" {
		t.Errorf("the scheduler has the volumes %+v", v)
	}
	pod := find[*appsv1.DaemonSet](t, all, "muster-agent").Spec.Template
	c := pod.Spec.Containers[0]
	if !pod.Spec.HostPID || c.Ports[0].HostPort != 9441 || !slices.Contains(c.Args, "--listen=:9441") || pod.Spec.Volumes[0].Secret.SecretName != "agents" {
		t.Errorf("%+v", pod.Spec)
	}
	for _, selector := range find[*corev1.Service](t, all, "muster-metrics").Spec.Selector {
		if selector == pod.Labels["app.kubernetes.io/name"] {
			t.Error("the agents are among the scheduler's pods")
		}
	}
	if _, err := render(chartDir, map[string]any{"agents": map[string]any{"daemonSet": map[string]any{"enabled": true}}}); err == nil {
		t.Error("agents without certificates are taken")
	}
}

// The metrics of agents are served where that is said: to those who may read the scheduler's, for which the agents ask the API.
func TestAgentsMetrics(t *testing.T) {
	with := func(port int, secure bool) []object {
		return renderObjects(t, map[string]any{
			"agents":  map[string]any{"daemonSet": map[string]any{"enabled": true, "secret": "agents", "metricsPort": port}},
			"metrics": map[string]any{"secure": secure, "serviceMonitor": map[string]any{"enabled": true}},
		})
	}
	of := []string{"Service muster-agent-metrics", "ServiceMonitor muster-agent"}
	api := []string{"ServiceAccount muster-agent", "ClusterRole muster-agent-metrics", "ClusterRoleBinding muster-agent-metrics"}
	for _, c := range []struct {
		port    int
		secure  bool
		args    []string
		objects []string
	}{
		{0, true, nil, nil},
		{9441, false, []string{"--metrics-address=:9441"}, of},
		{9441, true, []string{"--metrics-address=:9441", "--metrics-secure"}, slices.Concat(of, api)},
	} {
		all := with(c.port, c.secure)
		pod := find[*appsv1.DaemonSet](t, all, "muster-agent").Spec.Template
		args := slices.DeleteFunc(slices.Clone(pod.Spec.Containers[0].Args), func(a string) bool { return !strings.HasPrefix(a, "--metrics") })
		calls := pod.Spec.ServiceAccountName == "muster-agent" && pod.Spec.AutomountServiceAccountToken == nil
		if !slices.Equal(args, c.args) || calls != (c.port > 0 && c.secure) {
			t.Errorf("port %d, secure %t: %q, %+v", c.port, c.secure, args, pod.Spec)
		}
		for _, name := range slices.Concat(of, api) {
			if slices.Contains(names(all), name) != slices.Contains(c.objects, name) {
				t.Errorf("port %d, secure %t: %s: expected in %q", c.port, c.secure, name, c.objects)
			}
		}
		if c.port == 0 {
			continue
		}
		service := find[*corev1.Service](t, all, "muster-agent-metrics")
		for key, value := range service.Spec.Selector {
			if pod.Labels[key] != value || service.Labels[key] != value {
				t.Errorf("the service selects %s=%s; pods have %v, it has %v", key, value, pod.Labels, service.Labels)
			}
		}
		if ports := pod.Spec.Containers[0].Ports; len(ports) != 2 || ports[1].Name != service.Spec.Ports[0].TargetPort.StrVal || ports[1].HostPort != 0 {
			t.Errorf("ports %+v", ports)
		}
		// The scheduler's ServiceMonitor selects the scheduler's service alone.
		if scheduler := find[*corev1.Service](t, all, "muster-metrics").Spec.Selector; service.Labels["app.kubernetes.io/name"] == scheduler["app.kubernetes.io/name"] {
			t.Errorf("the service of the agents is found as the scheduler's: %v", service.Labels)
		}
	}
}

// Agents look at GPUs, read the kernel log and write to the API where that is said, and only there.
func TestAgentsWatch(t *testing.T) {
	daemonSet := func(more map[string]any) []object {
		values := map[string]any{"enabled": true, "secret": "agents"}
		maps.Copy(values, more)
		return renderObjects(t, map[string]any{"agents": map[string]any{"daemonSet": values}})
	}
	all := daemonSet(nil)
	pod := find[*appsv1.DaemonSet](t, all, "muster-agent").Spec.Template.Spec
	c := pod.Containers[0]
	capabilities := func(c *corev1.Container) string {
		i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "NVIDIA_DRIVER_CAPABILITIES" })
		return c.Env[i].Value
	}
	if got := capabilities(&c); got != "utility" || !slices.Contains(c.Args, "--backend=auto") {
		t.Errorf("by default the driver's %s, and %q", got, c.Args)
	}
	if pod.ServiceAccountName != "" || *pod.AutomountServiceAccountToken || c.SecurityContext.Privileged != nil || !slices.Contains(c.Args, "--gpu-interval=0s") || slices.Contains(c.Args, "--publish") || pod.RuntimeClassName != nil {
		t.Errorf("by default: %+v", pod)
	}
	if slices.Contains(names(all), "ClusterRole muster-agent") {
		t.Error("agents that do not write have a role")
	}
	all = daemonSet(map[string]any{"gpuInterval": "15s", "image": "muster-agent:1", "runtimeClassName": "nvidia", "kernelLog": "/dev/kmsg", "publish": true})
	pod = find[*appsv1.DaemonSet](t, all, "muster-agent").Spec.Template.Spec
	c = pod.Containers[0]
	if pod.ServiceAccountName != "muster-agent" || pod.AutomountServiceAccountToken != nil || !*c.SecurityContext.Privileged || *pod.RuntimeClassName != "nvidia" || c.Image != "muster-agent:1" ||
		!slices.Contains(c.Args, "--gpu-interval=15s") || !slices.Contains(c.Args, "--publish") || !slices.Contains(c.Args, "--kernel-log=/dev/kmsg") {
		t.Errorf("%+v", pod)
	}
	hybrid := find[*appsv1.DaemonSet](t, daemonSet(map[string]any{"backend": "hybrid"}), "muster-agent").Spec.Template.Spec.Containers[0]
	if got := capabilities(&hybrid); got != "compute,utility" || !slices.Contains(hybrid.Args, "--backend=hybrid") {
		t.Errorf("with the driver's checkpoints the driver's %s, and %q", got, hybrid.Args)
	}
	if _, err := render(chartDir, map[string]any{"agents": map[string]any{"daemonSet": map[string]any{"enabled": true, "secret": "agents", "backend": "cuda"}}}); err == nil {
		t.Error("there is no backend cuda")
	}
	if v := pod.Volumes[len(pod.Volumes)-1]; v.Name != "kernel-log" || v.HostPath.Path != "/dev/kmsg" {
		t.Errorf("%+v", pod.Volumes)
	}
	var can []string
	for _, r := range find[*rbacv1.ClusterRole](t, all, "muster-agent").Rules {
		can = append(can, strings.Join(r.Verbs, ",")+" "+strings.Join(r.Resources, ","))
	}
	if want := []string{"get nodes", "patch nodes/status", "list resourceslices", "list,create,delete devicetaintrules"}; !slices.Equal(can, want) {
		t.Errorf("agents may %q, expected %q", can, want)
	}
	if !slices.Contains(names(all), "ValidatingAdmissionPolicyBinding muster-agents") {
		t.Error("nothing holds agents to their nodes")
	}
	blind := map[string]any{"enabled": true, "secret": "agents", "publish": true}
	if _, err := render(chartDir, map[string]any{"agents": map[string]any{"daemonSet": blind}}); err == nil {
		t.Error("agents that never look at the GPUs are to write what they find")
	}
}

// What can be left out leaves objects and flags out.
func TestWithoutOptions(t *testing.T) {
	off := map[string]any{"enabled": false}
	all := renderObjects(t, map[string]any{
		"replicaCount": 1, "leaderElection": off, "podDisruptionBudget": off,
		"metrics":        map[string]any{"service": off},
		"admission":      map[string]any{"scheduler": off, "tenants": off},
		"flowControl":    off,
		"networkPolicy":  off,
		"rbac":           map[string]any{"create": false, "people": false},
		"serviceAccount": map[string]any{"create": false, "name": "given"},
	})
	if got := names(all); !slices.Equal(got, []string{"Deployment muster-scheduler"}) {
		t.Errorf("got %q", got)
	}
	if got := arguments(t, all); slices.Contains(got, "--leader-elect") {
		t.Errorf("got %q", got)
	}
}

// A value that the chart does not have is an error, not silence.
func TestUnknownValues(t *testing.T) {
	for _, values := range []map[string]any{
		{"replicas": 3},
		{"log": map[string]any{"level": "verbose"}},
		{"quotaGate": map[string]any{"enable": true}},
		{"metrics": map[string]any{"port": 0}},
		{"shards": []any{"H800", "H20"}}, // nobody has the others
		{"shards": []any{"*"}, "leaderElection": map[string]any{"enabled": false}},
	} {
		if _, err := render(chartDir, values); err == nil {
			t.Errorf("%v is taken", values)
		}
	}
}

// The scheduler's pod is one that the restricted Pod Security Standard admits.
func TestPodIsRestricted(t *testing.T) {
	spec := find[*appsv1.Deployment](t, renderObjects(t, nil), "muster-scheduler").Spec.Template.Spec
	c := spec.Containers[0].SecurityContext
	if !*spec.SecurityContext.RunAsNonRoot || *spec.SecurityContext.RunAsUser == 0 ||
		spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		*c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("pod %+v, container %+v", spec.SecurityContext, c)
	}
}

// The Service, the budget and the network policy select the scheduler's pods.
func TestSelectorsMatch(t *testing.T) {
	all := renderObjects(t, nil)
	d := find[*appsv1.Deployment](t, all, "muster-scheduler")
	pod := labels.Set(d.Spec.Template.Labels)
	if s := find[*corev1.Service](t, all, "muster-metrics"); !labels.SelectorFromSet(s.Spec.Selector).Matches(pod) {
		t.Errorf("the Service selects %v, pods have %v", s.Spec.Selector, pod)
	}
	selects := func(what string, selector *metav1.LabelSelector) {
		t.Helper()
		if s, err := metav1.LabelSelectorAsSelector(selector); err != nil || s.Empty() || !s.Matches(pod) {
			t.Errorf("%s: %v, and pods have %v", what, selector, pod)
		}
	}
	budget := find[*policyv1.PodDisruptionBudget](t, all, "muster-scheduler").Spec
	selects("the budget", budget.Selector)
	if budget.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the budget lets %v go", budget.MaxUnavailable)
	}
	network := find[*networkingv1.NetworkPolicy](t, all, "muster-scheduler").Spec
	selects("the network policy", &network.PodSelector)
	if p := network.Ingress; len(p) != 1 || len(p[0].Ports) != 1 || p[0].Ports[0].Port.StrVal != "metrics" || !slices.Equal(network.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Errorf("the network policy lets in %+v", network)
	}
	for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
		s, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil || !s.Matches(pod) {
			t.Errorf("pods are spread by %v, and have %v", c.LabelSelector, pod)
		}
	}
}

// The scheduler's memory is bounded, and its requests do not share a queue with those of others; renewals of its leases not even with its
// other requests.
func TestSchedulerHasAShare(t *testing.T) {
	all := renderObjects(t, nil)
	c := find[*appsv1.Deployment](t, all, "muster-scheduler").Spec.Template.Spec.Containers[0].Resources
	if c.Limits.Memory().IsZero() || c.Requests.Cpu().IsZero() || c.Requests.Memory().IsZero() {
		t.Errorf("its resources are %+v", c)
	}
	leases, others := find[*flowcontrolv1.FlowSchema](t, all, "muster-leases").Spec, find[*flowcontrolv1.FlowSchema](t, all, "muster-scheduler").Spec
	for _, s := range []flowcontrolv1.FlowSchemaSpec{leases, others} {
		find[*flowcontrolv1.PriorityLevelConfiguration](t, all, s.PriorityLevelConfiguration.Name)
		if of := s.Rules[0].Subjects; len(of) != 1 || of[0].ServiceAccount == nil || of[0].ServiceAccount.Name != "muster" {
			t.Errorf("the requests of %+v", of)
		}
	}
	if leases.MatchingPrecedence >= others.MatchingPrecedence || leases.PriorityLevelConfiguration.Name == others.PriorityLevelConfiguration.Name ||
		!slices.Equal(leases.Rules[0].ResourceRules[0].Resources, []string{"leases"}) {
		t.Errorf("leases: %+v; others: %+v", leases, others)
	}
}

// may reports whether a rule allows verb on a resource of a group.
func may(rules []rbacv1.PolicyRule, verb, group, resource string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
	})
}

// The scheduler may do what it does, and nothing that would make it worth
// stealing.
func TestSchedulerRoleIsLeast(t *testing.T) {
	rules := find[*rbacv1.ClusterRole](t, renderObjects(t, nil), "muster-scheduler").Rules
	for _, want := range []struct{ verb, group, resource string }{
		{"watch", "", "pods"}, {"create", "", "pods/binding"}, {"create", "", "pods/eviction"}, {"patch", "", "pods/status"},
		{"patch", "", "pods"}, {"watch", "", "nodes"}, {"watch", "scheduling.k8s.io", "podgroups"},
		{"patch", "scheduling.k8s.io", "podgroups/status"}, {"watch", "resource.k8s.io", "resourceslices"},
		{"patch", "resource.k8s.io", "resourceclaims/status"}, {"patch", "resource.k8s.io", "resourceclaims/binding"},
		{"watch", "policy", "poddisruptionbudgets"}, {"patch", "batch", "jobs"}, {"watch", "muster.sh", "queues"},
		{"update", "muster.sh", "queues/status"}, {"patch", "", "events"},
		{"list", "", "pods"}, {"get", "apps", "deployments"}, {"get", "apps", "replicasets"}, {"watch", "storage.k8s.io", "csinodes"},
		{"watch", "resource.k8s.io", "devicetaintrules"}, {"get", "scheduling.sigs.k8s.io", "podgroups"},
		{"update", "muster.sh", "ledgers"}, {"delete", "muster.sh", "ledgers"},
	} {
		if !may(rules, want.verb, want.group, want.resource) {
			t.Errorf("may not %s %s.%s", want.verb, want.resource, want.group)
		}
	}
	own := find[*rbacv1.Role](t, renderObjects(t, nil), "muster-scheduler").Rules
	for _, verb := range []string{"get", "list", "create", "update", "delete"} {
		if !may(own, verb, "coordination.k8s.io", "leases") {
			t.Errorf("may not %s leases", verb)
		}
	}
	for _, r := range rules {
		// It makes the claims of pods that ask for a resource which DRA provides.
		claims := slices.Equal(r.Resources, []string{"resourceclaims"})
		// It deletes pods whose owner wants back what they borrowed, and whose budgets let none go.
		pods := slices.Equal(r.Resources, []string{"pods"})
		// It deletes Ledger objects of its own that are no longer needed.
		ledgers := slices.Equal(r.Resources, []string{"ledgers"})
		if slices.Contains(r.Verbs, "delete") && !claims && !pods && !ledgers || slices.Contains(r.Verbs, "*") || slices.Contains(r.Verbs, "escalate") ||
			slices.Contains(r.Resources, "*") || slices.Contains(r.APIGroups, "*") || len(r.NonResourceURLs) > 0 {
			t.Errorf("too much: %v", r)
		}
		if slices.Contains(r.Resources, "secrets") || slices.Contains(r.Resources, "configmaps") || slices.Contains(r.Resources, "leases") {
			t.Errorf("in all namespaces: %v", r)
		}
		if slices.Contains(r.Resources, "nodes") && !slices.Equal(r.Verbs, []string{"get", "list", "watch"}) {
			t.Errorf("nodes are not the scheduler's to change: %v", r)
		}
		if slices.Contains(r.APIGroups, "muster.sh") && slices.Contains(r.Verbs, "patch") &&
			slices.ContainsFunc(r.Resources, func(name string) bool { return !strings.HasSuffix(name, "/status") }) {
			t.Errorf("what people write is not the scheduler's to change: %v", r)
		}
	}
}

// Metrics are served by TLS to those who may read them, and kubelets ask for health by TLS; who
// turns that off has neither, and the scheduler may ask nobody.
func TestMetricsAreGuarded(t *testing.T) {
	for _, secure := range []bool{true, false} {
		all := renderObjects(t, map[string]any{"metrics": map[string]any{"secure": secure}})
		pod := find[*appsv1.Deployment](t, all, "muster-scheduler").Spec.Template.Spec.Containers[0]
		for _, probe := range []*corev1.Probe{pod.LivenessProbe, pod.ReadinessProbe} {
			if (probe.HTTPGet.Scheme == corev1.URISchemeHTTPS) != secure {
				t.Errorf("metrics.secure %t: a probe by %q", secure, probe.HTTPGet.Scheme)
			}
		}
		rules := find[*rbacv1.ClusterRole](t, all, "muster-scheduler").Rules
		if may(rules, "create", "authentication.k8s.io", "tokenreviews") != secure || may(rules, "create", "authorization.k8s.io", "subjectaccessreviews") != secure {
			t.Errorf("metrics.secure %t: the scheduler's permissions are %v", secure, rules)
		}
		if slices.Contains(pod.Args, "--metrics-secure") != secure || slices.Contains(names(all), "ClusterRole muster-metrics-reader") != secure {
			t.Errorf("metrics.secure %t: %q, %q", secure, pod.Args, names(all))
		}
	}
}

// Only who asks for it lets the scheduler write on nodes.
func TestEvictionCounts(t *testing.T) {
	rules := find[*rbacv1.ClusterRole](t, renderObjects(t, map[string]any{"rbac": map[string]any{"evictionCounts": true}}), "muster-scheduler").Rules
	if !may(rules, "patch", "", "nodes") || may(rules, "update", "", "nodes") || may(rules, "patch", "", "nodes/status") {
		t.Error("nodes are to be patched, and nothing else")
	}
}

// Only who asks for it lets the scheduler read logs and cordon nodes.
func TestRecovery(t *testing.T) {
	rules := find[*rbacv1.ClusterRole](t, renderObjects(t, nil), "muster-scheduler").Rules
	if may(rules, "get", "", "pods/log") || may(rules, "patch", "", "nodes") {
		t.Error("without rbac.recovery: logs are read, or nodes patched")
	}
	rules = find[*rbacv1.ClusterRole](t, renderObjects(t, map[string]any{"rbac": map[string]any{"recovery": true}}), "muster-scheduler").Rules
	if !may(rules, "get", "", "pods/log") || !may(rules, "patch", "", "nodes") || may(rules, "update", "", "nodes") || may(rules, "list", "", "pods/log") {
		t.Error("with rbac.recovery: logs are to be read and nodes to be patched, and nothing else")
	}
}

// Who names a template lets the scheduler make the Jobs that test nodes, in its own namespace.
func TestDiagnostic(t *testing.T) {
	if rules := find[*rbacv1.Role](t, renderObjects(t, nil), "muster-scheduler").Rules; may(rules, "create", "batch", "jobs") || may(rules, "get", "", "configmaps") {
		t.Error("without a template: Jobs are made, or ConfigMaps read")
	}
	all := renderObjects(t, map[string]any{"diagnostic": "gpu-test"})
	rules := find[*rbacv1.Role](t, all, "muster-scheduler").Rules
	if !may(rules, "create", "batch", "jobs") || !may(rules, "list", "batch", "jobs") || !may(rules, "patch", "batch", "jobs") || may(rules, "delete", "batch", "jobs") || may(rules, "list", "", "configmaps") {
		t.Error("with a template: Jobs are to be created, listed and patched, and nothing else")
	}
	if args := find[*appsv1.Deployment](t, all, "muster-scheduler").Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--diagnostic=$(POD_NAMESPACE)/gpu-test") {
		t.Errorf("the scheduler's arguments are %q", args)
	}
}

// The roles for people collect what their names promise.
func TestPeoplesRoles(t *testing.T) {
	all := renderObjects(t, nil)
	collected := func(name string) []rbacv1.PolicyRule {
		var rules []rbacv1.PolicyRule
		for _, s := range find[*rbacv1.ClusterRole](t, all, name).AggregationRule.ClusterRoleSelectors {
			selector, err := metav1.LabelSelectorAsSelector(&s)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				if r, ok := o.Object.(*rbacv1.ClusterRole); ok && selector.Matches(labels.Set(r.Labels)) {
					rules = append(rules, r.Rules...)
				}
			}
		}
		return rules
	}
	for _, test := range []struct {
		role, verb, resource string
		want                 bool
	}{
		{"muster-viewer", "watch", "queues", true},
		{"muster-viewer", "watch", "topologies", true},
		{"muster-viewer", "patch", "queues", false},
		{"muster-queue-admin", "get", "schedulingpolicies", true},
		{"muster-queue-admin", "delete", "queues", true},
		{"muster-queue-admin", "patch", "schedulingpolicies", false},
		{"muster-editor", "patch", "schedulingpolicies", true},
		{"muster-editor", "create", "topologies", true},
		{"muster-editor", "list", "queues", true},
		{"muster-editor", "patch", "queues/status", false},
	} {
		if got := may(collected(test.role), test.verb, "muster.sh", test.resource); got != test.want {
			t.Errorf("%s may %s %s: %v", test.role, test.verb, test.resource, got)
		}
	}
}

// The dashboard is JSON in which each panel has a place of its own, and asks for
// metrics that the documentation names.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile(deployDir + "grafana/muster.json")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`muster_[a-z_]+`)
	for i, p := range dashboard.Panels {
		for _, q := range dashboard.Panels[:i] {
			apart := p.GridPos.X >= q.GridPos.X+q.GridPos.W || q.GridPos.X >= p.GridPos.X+p.GridPos.W ||
				p.GridPos.Y >= q.GridPos.Y+q.GridPos.H || q.GridPos.Y >= p.GridPos.Y+p.GridPos.H
			if !apart || p.ID == q.ID {
				t.Errorf("%q and %q are in one place", p.Title, q.Title)
			}
		}
		for _, target := range p.Targets {
			asked := metric.FindAllString(target.Expr, -1)
			if len(asked) == 0 {
				t.Errorf("%q asks for no metric: %s", p.Title, target.Expr)
			}
			for _, name := range asked {
				if !bytes.Contains(docs, []byte("`"+strings.TrimSuffix(name, "_bucket")+"`")) {
					t.Errorf("%q asks for %s, which docs/kubernetes.md does not have", p.Title, name)
				}
			}
		}
	}
	if len(dashboard.Panels) < 10 {
		t.Errorf("%d panels", len(dashboard.Panels))
	}
}
