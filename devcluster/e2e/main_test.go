// Package e2e has the tests of Muster on a real Kubernetes API: etcd and
// kube-apiserver with the controllers that jobs need, and simulated nodes. Each
// behaviour has a file. Tests run one after the other; each has a namespace,
// nodes and a scheduler of its own and leaves nothing behind. The scheduler has
// the identity that the chart gives it, and may do nothing else.
//
// It needs the programs that `make build devcluster` makes; `make test-e2e` runs
// it.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/local"
)

// What all tests share.
var (
	admin   kubernetes.Interface
	anyKind dynamic.Interface
	muster  *rest.RESTClient // for Queues
	// identity is how the scheduler reaches the API: as the ServiceAccount of
	// the chart.
	identity *rest.Config
	// address is how the admin does.
	address *rest.Config
	// agents has what clients of the nodes' agents need.
	agents string
)

// systemNamespace is where the chart is installed.
const systemNamespace = "muster-system"

// root is the repository.
const root = "../.."

func TestMain(m *testing.M) {
	if text := os.Getenv(asScheduler); text != "" {
		os.Exit(runScheduler(text))
	}
	for name, run := range map[string]func(string) error{asTrainer: train, asAgent: serveAgent} {
		if text := os.Getenv(name); text != "" {
			if err := run(text); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // that an API is beta
	klog.SetLogger(logr.Discard())                   // what client-go says of watches that break off
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		return 0, err
	}
	if err := os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return 0, err
	}
	if agents, err = os.MkdirTemp("", "agents"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(agents)
	var log bytes.Buffer
	server, err := local.Start(ctx, func(line string) { fmt.Fprintln(&log, line) }, "--ephemeral", "--nodes", "0", "--agents", agents)
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, &log)
	}
	defer server.Stop()
	if err := connect(server); err != nil {
		return 0, err
	}
	if err := local.Install(ctx, address); err != nil {
		return 0, err
	}
	if err := installForeign(ctx); err != nil {
		return 0, err
	}
	if identity, err = chartIdentity(ctx); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// connect makes clients of a control plane, as its admin.
func connect(server *local.Cluster) (err error) {
	if address, err = server.Config(); err != nil {
		return err
	}
	address.QPS = -1
	if anyKind, err = dynamic.NewForConfig(address); err != nil {
		return err
	}
	if muster, err = kube.NewClient(address); err != nil {
		return err
	}
	fast := rest.CopyConfig(address)
	fast.ContentType, fast.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	admin, err = kubernetes.NewForConfig(fast)
	return err
}

// chartIdentity installs the roles of the chart, as the kustomize base has them,
// and returns the scheduler's identity.
func chartIdentity(ctx context.Context) (*rest.Config, error) {
	for _, file := range []string{"namespace.yaml", "muster.yaml"} {
		data, err := os.ReadFile(filepath.Join(root, "deploy/kustomize/base", file))
		if err != nil {
			return nil, err
		}
		for doc := range strings.SplitSeq(string(data), "\n---\n") {
			if isTenantPolicy(doc) {
				continue // tests show what the scheduler makes of what the policy refuses
			}
			if err := apply(ctx, doc, systemNamespace); err != nil {
				return nil, err
			}
		}
	}
	// The API server takes a moment to know the roles: that of the cluster, and that of the namespace.
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return may(ctx, "list", "", "nodes") == nil && may(ctx, "create", "coordination.k8s.io", "leases") == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the permissions of the scheduler: %w", err)
	}
	return account(ctx)
}

// account returns the identity of the scheduler's ServiceAccount.
func account(ctx context.Context) (*rest.Config, error) {
	seconds := int64(24 * time.Hour / time.Second)
	token, err := admin.CoreV1().ServiceAccounts(systemNamespace).CreateToken(ctx, "muster",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("a token for the scheduler: %w", err)
	}
	c := rest.AnonymousClientConfig(address)
	c.BearerToken = token.Status.Token
	return c, nil
}

// may returns an error unless the API server lets the scheduler's identity do something.
func may(ctx context.Context, verb, group, resource string) error {
	user := "system:serviceaccount:" + systemNamespace + ":muster"
	answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: group, Resource: resource, Namespace: systemNamespace,
		}},
	}, metav1.CreateOptions{})
	if err == nil && !answer.Status.Allowed {
		err = fmt.Errorf("%s may not %s %s", user, verb, resource)
	}
	return err
}

// installed are the kinds that apply can apply: there is no workload that would
// run the scheduler, for it runs in this process.
var installed = map[string]schema.GroupVersionResource{
	"Namespace":                        {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":                   {Version: "v1", Resource: "serviceaccounts"},
	"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"Role":                             {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"CustomResourceDefinition":         {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"MutatingAdmissionPolicy":          {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"},
	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	"PriorityLevelConfiguration":       {Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"},
	"FlowSchema":                       {Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"},
	"MutatingAdmissionPolicyBinding":   {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"},
}

// apply applies an object in YAML as kubectl apply --server-side does.
func apply(ctx context.Context, doc, namespace string) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
		return err
	}
	resource, ok := installed[o.GetKind()]
	if !ok {
		return nil
	}
	api := dynamic.ResourceInterface(anyKind.Resource(resource))
	if ns := o.GetNamespace(); ns != "" || o.GetKind() == "ServiceAccount" {
		api = anyKind.Resource(resource).Namespace(namespace)
	}
	data, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = api.Patch(ctx, o.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "e2e"})
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// chart renders a template of the chart that needs no more than the release's
// name and its labels.
func chart(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "deploy/helm/muster/templates", name))
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := template.New(name).Funcs(template.FuncMap{
		"include": func(string, any) string { return "app.kubernetes.io/instance: muster" },
		"nindent": func(n int, s string) string { return "\n" + strings.Repeat(" ", n) + s },
	}).Parse(string(data))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = tmpl.Execute(&out, map[string]any{
		"Release": map[string]any{"Name": "muster", "Namespace": systemNamespace},
		"Values": map[string]any{
			"quotaGate": map[string]any{"enabled": true},
			"agents":    map[string]any{"daemonSet": map[string]any{"enabled": true, "publish": true}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(out.String(), "\n---\n")
}
