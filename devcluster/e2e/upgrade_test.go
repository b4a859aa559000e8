package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/deploy"
	"github.com/muster-sched/muster/kube/local"
)

// lastRelease names, in the environment, a binary of Muster as it was at the commit of testdata/upgrade. With it the
// jobs are started by that scheduler itself, and what it left behind is written to testdata/upgrade/cluster.yaml.
const lastRelease = "MUSTER_LAST_RELEASE"

// What helm upgrade makes of the objects of an earlier chart is what the present one renders, and the jobs that the
// earlier scheduler started run on: the same pods, with their GPUs. Those that waited keep their order, and queues
// what they use.
//
// There is no release yet, so testdata/upgrade has the chart, the definitions and the cluster that the first
// scheduler left behind. The present chart is the kustomize base, of which a test of tools/chart says that it is what
// Helm renders.
func TestUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("a control plane of its own")
	}
	c := beginApart(t)
	release := &helm{cluster: c}
	// 1. The last release. Helm creates the definitions of a chart, and never changes them.
	for _, doc := range documents(t, "testdata/upgrade/crds.yaml") {
		crd := parse(t, doc)
		_, err := anyKind.Resource(installed[crd.GetKind()]).Create(ctx(), crd, metav1.CreateOptions{FieldManager: "helm"})
		c.must(err)
	}
	c.must(apply(ctx(), "{apiVersion: v1, kind: Namespace, metadata: {name: "+systemNamespace+"}}", ""))
	release.upgrade(documents(t, "testdata/upgrade/chart.yaml"))
	c.nodesNamed("n", 3)
	c.until("the definitions are served", func() error {
		_, err := muster.Get().Resource("queues").Do(ctx()).Raw()
		return err
	})
	if binary := os.Getenv(lastRelease); binary != "" {
		c.liveThrough(binary, release.arguments())
	} else {
		for _, doc := range documents(t, "testdata/upgrade/cluster.yaml") {
			c.restore(parse(t, doc))
		}
	}
	running, waiting := c.runningAndWaiting()
	if len(running) != 9 || len(waiting) != 3 {
		t.Fatalf("%d pods run and %d wait: %v %v", len(running), len(waiting), running, waiting)
	}
	used := c.queueUse()

	// 2. The upgrade, as docs/kubernetes.md says: the definitions, by force, then the release.
	for _, crd := range deploy.CRDs() {
		if crd.Name != "queues.muster.sh" {
			continue
		}
		if err := apply(ctx(), string(crd.YAML), ""); !apierrors.IsConflict(err) {
			t.Fatalf("%s is applied over what Helm created: %v", crd.Name, err)
		}
	}
	c.must(local.Install(ctx(), address))
	release.upgrade(documents(t, filepath.Join(root, "deploy/kustomize/base/muster.yaml")))
	next := c.program("muster", release.arguments())
	c.until("the scheduler schedules", next.schedules)

	// 3. Nothing that ran was touched. What waited is told why, and queues use what they did.
	c.waits("wait-a", "QuotaExceeded")
	c.waits("wait-b", "QuotaExceeded")
	c.waits("large", "NoNode", "of 3 nodes, 3 have fewer than 16 GPUs")
	c.until("queues use what they did", func() error {
		if now := c.queueUse(); !maps.Equal(now, used) {
			return fmt.Errorf("%v, before %v", now, used)
		}
		return nil
	})
	c.create(pod("new", in("other")))
	c.bound("new")
	c.same(running)
	// 4. The first that waited starts when there is quota, and no other.
	delete(running, "single")
	c.delete("single")
	c.bound("wait-a")
	c.waits("wait-b", "QuotaExceeded")
	c.same(running)
	next.end()

	// 5. The last release mixed whole GPUs and parts on nodes. What runs stays; the audit is told.
	for _, n := range c.nodes {
		c.editNode(n, mixed)
	}
}

// beginApart is begin on a control plane of its own, which has nothing of Muster yet.
func beginApart(t *testing.T) *cluster {
	t.Helper()
	starting, cancel := context.WithTimeout(ctx(), patience)
	defer cancel()
	server, err := local.Start(starting, func(line string) { t.Log(line) }, "--ephemeral", "--nodes", "0")
	if err != nil {
		t.Fatal(err)
	}
	was := struct {
		admin    kubernetes.Interface
		anyKind  dynamic.Interface
		muster   *rest.RESTClient
		identity *rest.Config
		address  *rest.Config
	}{admin, anyKind, muster, identity, address}
	t.Cleanup(func() {
		server.Stop()
		admin, anyKind, muster, identity, address = was.admin, was.anyKind, was.muster, was.identity, was.address
	})
	if err := connect(server); err != nil {
		t.Fatal(err)
	}
	return begin(t)
}

// documents reads the documents of a file in YAML.
func documents(t *testing.T, file string) (docs []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(doc, "\nkind:") {
			docs = append(docs, doc)
		}
	}
	return docs
}

// helm is a release of the chart: what Helm rendered last.
type helm struct {
	*cluster
	manifest map[string]*unstructured.Unstructured // by kind and name
}

// upgrade makes the objects of a manifest what it says, as Helm does: a patch of three, the last manifest, this one
// and what is there; objects that are in the last alone are deleted.
func (h *helm) upgrade(docs []string) {
	h.Helper()
	groups, err := restmapper.GetAPIGroupResources(admin.Discovery())
	h.must(err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	api := func(o *unstructured.Unstructured) dynamic.ResourceInterface {
		gvk := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		h.must(err)
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			return anyKind.Resource(mapping.Resource)
		}
		return anyKind.Resource(mapping.Resource).Namespace(systemNamespace)
	}
	last := h.manifest
	h.manifest = map[string]*unstructured.Unstructured{}
	for _, doc := range docs {
		o := parse(h.T, doc)
		name := o.GetKind() + " " + o.GetName()
		h.manifest[name] = o
		is, err := api(o).Get(ctx(), o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = api(o).Create(ctx(), o, metav1.CreateOptions{FieldManager: "helm"})
		} else if err == nil {
			var patch []byte
			if patch, err = threeWay(last[name], o, is); err == nil {
				_, err = api(o).Patch(ctx(), o.GetName(), types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "helm"})
			}
		}
		if err != nil {
			h.Fatalf("helm: %s: %v", name, err)
		}
	}
	for name, o := range last {
		if h.manifest[name] == nil {
			h.must(api(o).Delete(ctx(), o.GetName(), metav1.DeleteOptions{}))
		}
	}
}

func threeWay(last, next, is *unstructured.Unstructured) ([]byte, error) {
	if last == nil {
		last = next // it is there, though the last release did not make it
	}
	typed, err := scheme.Scheme.New(next.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	schema, err := strategicpatch.NewPatchMetaFromStruct(typed)
	if err != nil {
		return nil, err
	}
	var texts [3][]byte
	for i, o := range []*unstructured.Unstructured{last, next, is} {
		if texts[i], err = o.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	return strategicpatch.CreateThreeWayMergePatch(texts[0], texts[1], texts[2], schema, true)
}

// arguments are those of the scheduler's container, as its Deployment has them now.
func (h *helm) arguments() []string {
	h.Helper()
	d, err := admin.AppsV1().Deployments(systemNamespace).Get(ctx(), "muster-scheduler", metav1.GetOptions{})
	h.must(err)
	args := slices.Clone(d.Spec.Template.Spec.Containers[0].Args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_NAMESPACE)", systemNamespace)
	}
	return args
}

// program is a scheduler that runs as a process, with the identity of the ServiceAccount.
type program struct {
	*cluster
	*exec.Cmd
	said record
}

// program starts a binary of Muster with arguments of the chart. Of these the address of the metrics alone is
// another one.
func (c *cluster) program(binary string, args []string) *program {
	c.Helper()
	c.until("the scheduler has its permissions", func() error {
		return errors.Join(may(ctx(), "list", "", "nodes"), may(ctx(), "create", "coordination.k8s.io", "leases"))
	})
	as, err := account(ctx())
	c.must(err)
	file := filepath.Join(c.TempDir(), "kubeconfig")
	c.must(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: as.Host, CertificateAuthorityData: as.CAData, CertificateAuthority: as.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: as.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	p := &program{cluster: c}
	p.Cmd = exec.Command(binary, append(slices.Clone(args), "--kubeconfig="+file, "--metrics-address=127.0.0.1:0")...)
	p.Stdout, p.Stderr = &p.said, &p.said
	c.must(p.Start())
	c.Cleanup(func() { _ = p.Process.Kill() }) // an error says that it has ended
	return p
}

// schedules returns an error unless the process has begun to schedule.
func (p *program) schedules() error {
	if text := p.said.String(); !strings.Contains(text, "this instance schedules") {
		return fmt.Errorf("it says: %s", text)
	}
	return nil
}

// end ends the process as a kubelet does, and fails the test if it had something to complain of.
func (p *program) end() {
	p.Helper()
	p.must(p.Process.Signal(syscall.SIGTERM))
	if err := p.Wait(); err != nil {
		p.Errorf("the scheduler ended with %v", err)
	}
	for line := range strings.Lines(p.said.String()) {
		if strings.Contains(line, "is forbidden") || strings.Contains(line, "refused an event") {
			p.Errorf("the scheduler said: %s", line)
		}
	}
	if p.Failed() {
		p.Logf("the scheduler said:\n%s", p.said.String())
	}
}

// runningAndWaiting returns where the pods of the test are that have nodes, and which they are; and those that have
// none.
func (c *cluster) runningAndWaiting() (running map[string]string, waiting []string) {
	c.Helper()
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	running = map[string]string{}
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName == "" {
			waiting = append(waiting, p.Name)
		} else {
			running[p.Name] = fmt.Sprintf("%s on %s, GPUs %s, deleted %v, %s", p.UID, p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation], p.DeletionTimestamp, p.Status.Phase)
		}
	}
	return running, waiting
}

// same fails the test unless these pods run as they did.
func (c *cluster) same(running map[string]string) {
	c.Helper()
	now, _ := c.runningAndWaiting()
	for name, was := range running {
		if now[name] != was {
			c.Errorf("%s is %q, and was %q", name, now[name], was)
		}
	}
}

// queueUse is what the statuses of the queues say of jobs and GPUs.
func (c *cluster) queueUse() map[string]string {
	c.Helper()
	use := map[string]string{}
	for _, name := range []string{"team", "other"} {
		q := &v1alpha1.Queue{}
		c.must(muster.Get().Resource("queues").Name(name).Do(ctx()).Into(q))
		use[name] = fmt.Sprint(q.Status.Nominal, q.Status.Used, q.Status.RunningJobs, q.Status.PendingJobs, q.Status.Usage)
	}
	return use
}
