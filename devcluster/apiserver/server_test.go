package apiserver

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

// What a folder holds is there again after a restart: objects, and the
// kubeconfig with its port and credentials.
func TestLasts(t *testing.T) {
	// Longer than a socket's path may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 25))
	s := start(t, Config{Dir: dir})
	client := clientOf(t, s.RESTConfig())

	gang := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "gang"}, Spec: schedulingapi.PodGroupSpec{
		SchedulingPolicy: schedulingapi.PodGroupSchedulingPolicy{Gang: &schedulingapi.GangSchedulingPolicy{MinCount: 2}},
		SchedulingConstraints: &schedulingapi.PodGroupSchedulingConstraints{
			Topology: []schedulingapi.TopologyConstraint{{Key: "example.com/rack"}},
		},
	}}
	if _, err := client.SchedulingV1beta1().PodGroups("default").Create(t.Context(), gang, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	member := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "member"}, Spec: corev1.PodSpec{
		Containers:      []corev1.Container{{Name: "c", Image: "i"}},
		SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: ptr.To("gang")},
	}}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), member, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)

	s = start(t, Config{Dir: dir})
	defer stop(t, s)
	if again, err := os.ReadFile(s.Kubeconfig()); err != nil || !bytes.Equal(again, kubeconfig) {
		t.Errorf("the kubeconfig changed over a restart (%v)", err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client = clientOf(t, config)
	kept, err := client.SchedulingV1beta1().PodGroups("default").Get(t.Context(), "gang", metav1.GetOptions{})
	if err != nil || kept.Spec.SchedulingPolicy.Gang == nil || kept.Spec.SchedulingPolicy.Gang.MinCount != 2 ||
		kept.Spec.SchedulingConstraints == nil || kept.Spec.SchedulingConstraints.Topology[0].Key != "example.com/rack" {
		t.Errorf("the PodGroup is now %+v (%v)", kept, err)
	}
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), "member", metav1.GetOptions{})
	if err != nil || pod.Spec.SchedulingGroup == nil || ptr.Deref(pod.Spec.SchedulingGroup.PodGroupName, "") != "gang" {
		t.Errorf("the pod's group is now %+v (%v)", pod.Spec.SchedulingGroup, err)
	}

	t.Run("one server a folder", func(t *testing.T) {
		_, err := Start(t.Context(), Config{Dir: dir})
		wantInputError(t, err, "another process is using this folder")
	})
	t.Run("unknown clients are refused", func(t *testing.T) { testCredentials(t, s) })
	t.Run("custom resources", func(t *testing.T) { testCustomResource(t, s) })
}

func testCredentials(t *testing.T, s *Server) {
	nobody := rest.AnonymousClientConfig(s.RESTConfig())
	for _, path := range []string{"/api/v1/nodes", "/version", "/readyz"} {
		_, err := clientOf(t, nobody).Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("GET %s without credentials: %v", path, err)
		}
	}
	wrong := rest.AnonymousClientConfig(s.RESTConfig())
	wrong.BearerToken = "wrong"
	if _, err := clientOf(t, wrong).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("nodes, asked for with a wrong token: %v", err)
	}
	// Roles are those of Kubernetes: who has none may do nothing.
	someone := s.RESTConfig()
	someone.Impersonate.UserName = "someone"
	if _, err := clientOf(t, someone).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("nodes, asked for by who has no role: %v", err)
	}
	// What the kubeconfig trusts is this server, and no other certificate.
	other := s.RESTConfig()
	other.CAData = nil
	if _, err := clientOf(t, other).Discovery().ServerVersion(); err == nil {
		t.Error("the server's certificate is trusted without its authority")
	}
	for _, file := range []string{s.Kubeconfig(), filepath.Join(s.Dir, "pki", "users.csv"), filepath.Join(s.Dir, "pki", "server.key")} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s may be read by others (%v)", file, err)
		}
	}
}

func testCustomResource(t *testing.T, s *Server) {
	client, err := apiextensions.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type:                   "object",
					XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := crds.Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: crd.Name}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		for _, c := range e.Object.(*apiextensionsv1.CustomResourceDefinition).Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return
			}
		}
	}
	t.Error("the definition was not established")
}

// Of an ephemeral server nothing is left.
func TestEphemeral(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := start(t, Config{Ephemeral: true})
	if _, err := os.Stat(s.Kubeconfig()); err != nil {
		t.Error(err)
	}
	stop(t, s)
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v (%v)", os.TempDir(), left, err)
	}
}

// Admission sees of pods what it judges them by, although its copy is cut down.
func TestPodSecurityOfPodsThatAreThere(t *testing.T) {
	s := start(t, Config{Ephemeral: true})
	defer stop(t, s)
	client := clientOf(t, s.RESTConfig())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "mighty"},
		Spec:       corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var said warnings
	config := s.RESTConfig()
	config.WarningHandler = &said
	namespaces := clientOf(t, config).CoreV1().Namespaces()
	labelled := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(string(said), "mighty: host namespaces") { // until its copy has the pod
		if time.Now().After(deadline) {
			t.Fatalf("it is said %q; expected who has the host's network", said)
		}
		_, err := namespaces.Patch(t.Context(), "default", types.MergePatchType, labelled, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// warnings is what an API server warns of.
type warnings string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w += warnings(text + "\n") }

func TestBadInput(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no folder", Config{}, "expected a folder"},
		{"both", Config{Dir: t.TempDir(), Ephemeral: true}, "ephemeral"},
		{"a file", Config{Dir: file}, "expected a writable folder"},
		{"below a file", Config{Dir: filepath.Join(file, "dir")}, "expected a writable folder"},
		{"no such port", Config{Dir: t.TempDir(), Port: 65536}, "expected 0..65535"},
		{"port in use", Config{Dir: t.TempDir(), Port: port}, "port " + strconv.Itoa(port) + " of 127.0.0.1 is taken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Start(t.Context(), c.cfg)
			wantInputError(t, err, c.want)
		})
	}
}

func wantInputError(t *testing.T, err error, want string) {
	t.Helper()
	if input := (*InputError)(nil); !errors.As(err, &input) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got error %v; want an InputError of one line that says %q", err, want)
	}
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
