package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/keys"
)

// evil sets the title of a terminal, clears it, colours it by the 8-bit form of an escape, turns
// the direction of writing, and forges a line.
const evil = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202egnorw\r\nlevel=ERROR msg=forged\x7f"

// A tenant writes escapes for terminals, and values of hundreds of kilobytes, wherever the API takes
// them on pods. Nothing that the scheduler or the commands say has them: conditions, events, both formats
// of the log, metrics, and what muster prints; and all of that is short.
func TestTenantEscapes(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.queue("mine", 8)
	tenant := c.tenant()
	names := map[string]bool{}
	make := func(name string, options ...func(*v1.Pod)) {
		t.Helper()
		names[name] = true
		c.createAs(tenant, pod(name, append([]func(*v1.Pod){in("mine"), asks(0)}, options...)...))
	}
	for i, key := range v1alpha1.Keys {
		make(fmt.Sprintf("own-%d", i), note(key, evil))
		make(fmt.Sprintf("long-%d", i), note(key, strings.Repeat("x", 8000)))
	}
	for _, key := range []string{v1alpha1.WalltimeAnnotation, v1alpha1.GPUModelsAnnotation, "example.com/of-no-one", "kai.scheduler/unknown"} {
		make("longest-"+strings.NewReplacer("/", "-", ".", "-").Replace(key), note(key, strings.Repeat("\x1b[31m", 40_000)))
	}
	n := 0
	for _, p := range keys.Peers {
		for _, k := range p.Keys {
			if k.Answer != keys.Irrelevant && !strings.HasSuffix(k.Name, "*") {
				make(fmt.Sprintf("peer-%d", n), note(k.Name, evil))
				n++
			}
		}
	}
	make("owned", func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1" + evil, Kind: evil, Name: evil, UID: "x", Controller: ptr.To(true)}}
	})
	// Texts of the spec that the API does not look at.
	claims := func(name string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		}
	}
	make("claims", claims(evil))
	make("claims-long", claims(strings.Repeat("\x1b[31m", 100_000)))
	make("host", func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, HostIP: evil}}
	})
	make("host-taken", func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, HostIP: evil}}
	})
	make("runs", func(p *v1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = "x"+evil, []string{evil}
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "E", Value: evil}}
	})

	config := func(name string, c *clientcmdapi.AuthInfo, cluster *clientcmdapi.Cluster, namespace string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters: map[string]*clientcmdapi.Cluster{"c": cluster}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": c},
			Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u", Namespace: namespace}}, CurrentContext: "x",
		}, file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	people := config("people", &clientcmdapi.AuthInfo{
		Token: address.BearerToken, ClientCertificate: address.CertFile, ClientKey: address.KeyFile, ClientCertificateData: address.CertData, ClientKeyData: address.KeyData,
	}, &clientcmdapi.Cluster{Server: address.Host, CertificateAuthorityData: address.CAData, CertificateAuthority: address.CAFile}, c.namespace)

	for _, format := range []string{"json", "text"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		c.must(err)
		at := l.Addr().String()
		c.must(l.Close())
		s := c.process("--log-format", format, "--log-level", "debug", "--metrics-address", at)
		c.until("every pod has a node, or is told why it has none", func() error {
			list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				p := &list.Items[i]
				if names[p.Name] && p.Spec.NodeName == "" && condition(p, v1alpha1.WaitingCondition) == nil {
					return fmt.Errorf("%s has neither", p.Name)
				}
			}
			return nil
		})
		var metrics []byte
		c.until("the metrics are read", func() error {
			answer, err := http.Get("http://" + at + "/metrics")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			metrics, err = io.ReadAll(answer.Body)
			return err
		})
		plain(t, "the metrics", string(metrics), 1000)
		s.interrupt()
		plain(t, "the log as "+format, s.said.String(), 20_000)
	}

	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	for i := range list.Items {
		p := &list.Items[i]
		for _, k := range p.Status.Conditions {
			plain(t, fmt.Sprintf("condition %s of %s", k.Type, p.Name), k.Reason+" "+k.Message, 3000)
		}
	}
	events, err := admin.CoreV1().Events(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	if len(events.Items) < 20 { // of one source, few come at a time
		t.Errorf("there are %d events", len(events.Items))
	}
	for _, e := range events.Items {
		plain(t, "event "+e.Reason+" of "+e.InvolvedObject.Name, e.Reason+" "+e.Message, 3000)
	}
	commands := [][]string{
		{"queue", "--all-namespaces"}, {"queue", "-o", "wide"}, {"queue", "--json"}, {"queue", "-o", "yaml"}, {"queue", "jobs"}, {"queue", "--start"},
		{"nodes"}, {"nodes", "--json"}, {"top", "--once"},
		{"explain", "owned"}, {"explain", "owned", "--json"}, {"explain", "longest-muster-sh-walltime"}, {"explain", "longest-muster-sh-walltime", "-o", "yaml"},
	}
	for i := range 8 {
		commands = append(commands, []string{"explain", fmt.Sprintf("own-%d", i*len(v1alpha1.Keys)/8), "-o", "wide"})
	}
	defer func() { // the audit reads what they say
		c.must(admin.CoreV1().Pods(c.namespace).DeleteCollection(ctx(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{}))
	}()
	for _, args := range commands {
		out, _ := exec.Command("muster", append(args, "--kubeconfig", people)...).CombinedOutput() // some of these jobs are over
		if len(out) == 0 {
			t.Errorf("muster %s prints nothing", strings.Join(args, " "))
		}
		plain(t, "muster "+strings.Join(args, " "), string(out), 20_000)
	}
}

// plain fails the test if a text has what a terminal acts on, or a line of more than a number of bytes.
func plain(t *testing.T, what, text string, most int) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("%s: it has %q in %q", what, r, text[max(0, i-80):min(len(text), i+40)])
			break
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > most {
			t.Errorf("%s: a line has %d bytes: %q…", what, len(line), line[:80])
			break
		}
		if strings.HasPrefix(line, "level=ERROR") {
			t.Errorf("%s: a line is forged: %q", what, line)
		}
	}
}
