// Package apiserver runs etcd and kube-apiserver in this process: a Kubernetes
// API on 127.0.0.1, with TLS, RBAC, the native Workload and PodGroup API, DRA and
// CRDs, and nothing else: no controllers, nodes or scheduler.
package apiserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/apis/core"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"

	"github.com/muster-sched/muster/devcluster/apiserver/etcdlog"
)

// Gates are the feature gates that are on in addition to the defaults. They apply to the
// whole process, so also to controllers in it.
var Gates = []string{
	"GenericWorkload", "WorkloadWithJob", "TopologyAwareWorkloadScheduling", "PodGroupPreemptionPolicy", "DRAWorkloadResourceClaims",
}

// gatesOff are the feature gates that are off although they are on by default. They cost
// much with many objects, and a cluster for tests needs none of them. One reads
// everything from etcd every five minutes to check the watch cache, one keeps an index of
// the watch cache for each recent change, and one compresses watch events, which never
// leave this machine.
var gatesOff = []string{"DetectCacheInconsistency", "ListFromCacheSnapshot", "WatchListCompression"}

// serverStart is the time limit for the API server to become ready.
const serverStart = 2 * time.Minute

// Config describes where a server keeps its data and where it listens.
type Config struct {
	// Dir is the folder of all persistent data: objects, credentials, the port and the
	// kubeconfig. It is created if it does not exist. Only one server at a time can use
	// it.
	Dir string
	// Ephemeral keeps everything in a temporary folder, which is written without waiting
	// for the disk and removed at the end. Dir must then be empty.
	Ephemeral bool
	// Port is the port on 127.0.0.1; 0 means the port of the last run, or a free one.
	Port int
}

// InputError is a mistake in a [Config], or a conflict with what is on this machine.
type InputError struct{ problem string }

func (e *InputError) Error() string { return e.problem }

func badInput(format string, args ...any) error {
	return &InputError{fmt.Sprintf(format, args...)}
}

// Server is a running API server.
type Server struct {
	// Dir is the folder of its data.
	Dir string

	config   *rest.Config
	statuses *podstore.StatusREST
	nodes    *registry.Store
	cancel   context.CancelFunc
	ended    chan struct{} // closed when the API server has ended, for whatever reason
	failure  error         // why, once ended is closed
	cleanup  []func()      // last first
}

// Start starts a server and waits until it is ready. ctx limits only the start; Stop ends
// the server. The caller can fix errors of type *[InputError].
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	s := &Server{Dir: cfg.Dir}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if err := s.claim(&cfg); err != nil {
		return nil, err
	}
	keys, err := openPKI(filepath.Join(s.Dir, "pki"))
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	listener, err := s.listen(cfg.Port)
	if err != nil {
		return nil, err
	}
	s.cleanup = append(s.cleanup, func() { listener.Close() })
	if s.config, err = s.writeKubeconfig(keys, listener.Addr().(*net.TCPAddr).Port); err != nil {
		return nil, err
	}
	sockets, err := s.sockets()
	if err != nil {
		return nil, err
	}
	log, err := s.openLog()
	if err != nil {
		return nil, err
	}
	etcd, endpoint, err := startEtcd(ctx, filepath.Join(s.Dir, "etcd"), sockets, !cfg.Ephemeral, log)
	if err != nil {
		return nil, err
	}
	s.cleanup = append(s.cleanup, etcd.Close)
	if err := s.serve(ctx, keys, listener, etcd, endpoint); err != nil {
		return nil, err
	}
	go s.watch(etcd)
	return s, s.await(ctx)
}

// claim finds or creates the server's folder and locks it.
func (s *Server) claim(cfg *Config) error {
	switch {
	case cfg.Ephemeral && cfg.Dir != "":
		return badInput("%s: expected no folder for an ephemeral cluster", cfg.Dir)
	case cfg.Port < 0 || cfg.Port > 65535:
		return badInput("port %d: expected 0..65535", cfg.Port)
	case cfg.Ephemeral:
		dir, err := os.MkdirTemp("", "muster-devcluster-")
		if err != nil {
			return badInput("cannot create a temporary folder: %v", err)
		}
		s.Dir = dir
		s.cleanup = append(s.cleanup, func() { os.RemoveAll(dir) })
	case cfg.Dir == "":
		return badInput("expected a folder for a persistent cluster; found none")
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	s.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return badInput("%s: expected a writable folder; found: %v", dir, err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return badInput("%s: another process is using this folder", dir)
	}
	if err != nil {
		return badInput("%s: expected a writable folder; found: %v", dir, err)
	}
	s.cleanup = append(s.cleanup, func() { lock.Close() })
	return nil
}

// listen takes the requested port, or the port of the last run, or a free one.
func (s *Server) listen(port int) (net.Listener, error) {
	if port == 0 {
		port = s.lastPort()
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, badInput("port %d of 127.0.0.1 is taken", port)
	}
	if err != nil {
		return nil, badInput("port %d of 127.0.0.1: %v", port, err)
	}
	return l, nil
}

// lastPort is the port in the kubeconfig, or 0 if there is no kubeconfig.
func (s *Server) lastPort() int {
	cfg, err := clientcmd.LoadFromFile(s.Kubeconfig())
	if err != nil || cfg.Clusters[clusterName] == nil {
		return 0
	}
	u, err := url.Parse(cfg.Clusters[clusterName].Server)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(u.Port())
	return port
}

// clusterName is the name of the cluster in its kubeconfig.
const clusterName = "muster-devcluster"

// writeKubeconfig writes the kubeconfig and returns a client configuration of its admin.
func (s *Server) writeKubeconfig(keys *pki, port int) (*rest.Config, error) {
	ca, err := os.ReadFile(keys.ca)
	if err != nil {
		return nil, err
	}
	token, err := keys.adminToken()
	if err != nil {
		return nil, err
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[clusterName] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://127.0.0.1:%d", port), CertificateAuthorityData: ca}
	cfg.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts[clusterName] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: "admin"}
	cfg.CurrentContext = clusterName
	if err := clientcmd.WriteToFile(*cfg, s.Kubeconfig()); err != nil {
		return nil, badInput("%s: expected a writable file; found: %v", s.Kubeconfig(), err)
	}
	client, err := clientcmd.NewDefaultClientConfig(*cfg, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	client.QPS = -1 // the server has its own measures against too much
	client.ContentType = runtime.ContentTypeProtobuf
	client.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return client, nil
}

// sockets returns the folder of etcd's sockets: the server's own, unless its path
// is too long for a socket.
func (s *Server) sockets() (string, error) {
	if len(filepath.Join(s.Dir, "etcd.sock", "etcd")) <= maxSocketPath {
		dir := filepath.Join(s.Dir, "etcd.sock")
		s.cleanup = append(s.cleanup, func() { os.RemoveAll(dir) })
		return dir, os.MkdirAll(dir, 0o700)
	}
	dir, err := os.MkdirTemp("", "muster-")
	if err != nil {
		return "", badInput("cannot create a temporary folder: %v", err)
	}
	s.cleanup = append(s.cleanup, func() { os.RemoveAll(dir) })
	return dir, nil
}

// openLog redirects the logs of Kubernetes and its etcd client in this process, and the
// warnings of etcd, to the file Log, which it truncates. It returns etcd's logger.
func (s *Server) openLog() (*zap.Logger, error) {
	file, err := os.Create(s.Log())
	if err != nil {
		return nil, badInput("%s: expected a writable file; found: %v", s.Log(), err)
	}
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	for name, value := range map[string]string{"logtostderr": "false", "one_output": "true", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return nil, err
		}
	}
	klog.SetOutput(file)
	etcdlog.SetOutput(file)
	s.cleanup = append(s.cleanup, func() {
		klog.SetOutput(io.Discard)
		etcdlog.SetOutput(io.Discard)
		file.Close()
	})
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.ISO8601TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(cfg), zapcore.Lock(file), zap.WarnLevel)), nil
}

// serve starts the API server: it does the same as the server's command, in this process.
func (s *Server) serve(start context.Context, keys *pki, listener net.Listener, etcd *embed.Etcd, endpoint string) error {
	o := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	named := o.Flags()
	for _, set := range named.FlagSets {
		flags.AddFlagSet(set)
	}
	err := flags.Parse([]string{
		"--etcd-servers=" + endpoint,
		"--tls-cert-file=" + keys.serverCert, "--tls-private-key-file=" + keys.serverKey,
		"--token-auth-file=" + keys.users, "--anonymous-auth=false", "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + keys.serviceAccounts, "--service-account-signing-key-file=" + keys.serviceAccounts,
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
		"--feature-gates=" + strings.Join(Gates, "=true,") + "=true," + strings.Join(gatesOff, "=false,") + "=false",
		"--runtime-config=scheduling.k8s.io/v1beta1=true",
		// Simulated pods do not need a token. Nodes are created Ready, so they need no
		// taint for new nodes, which no controller here would remove.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--bind-address=127.0.0.1",
	})
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	o.SecureServing.Listener = listener
	o.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	// Otherwise the server looks for the address of a network, which a laptop may not
	// have.
	o.SecureServing.ExternalAddress = net.IPv4(127, 0, 0, 1)
	// With this, connections that clients keep open at the end are closed after 2 s.
	o.GenericServerRunOptions.ShutdownSendRetryAfter = true
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(start))
	s.cancel = cancel
	completed, err := o.Complete(ctx)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("kube-apiserver: %w", utilerrors.NewAggregate(errs))
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	stored := direct{config.KubeAPIs.ControlPlane.Generic.RESTOptionsGetter, etcd.Server, map[schema.GroupResource]storage.Interface{
		core.Resource("nodes"): nil, core.Resource("pods"): nil, // kubelets write them too
	}}
	config.KubeAPIs.ControlPlane.Generic.RESTOptionsGetter = stored
	if err := s.openStorage(stored); err != nil {
		return fmt.Errorf("kube-apiserver: storage: %w", err)
	}
	if err := config.KubeAPIs.ControlPlane.VersionedInformers.Core().V1().Pods().Informer().SetTransform(forAdmission); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	prepared, err := config.Complete()
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	chain, err := app.CreateServerChain(prepared)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	run, err := chain.PrepareRun()
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		s.failure = run.Run(ctx)
	}()
	return nil
}

// forAdmission removes the parts of a pod that admission does not need. The API server
// keeps a second copy of each pod for admission.
func forAdmission(object any) (any, error) {
	if p, ok := object.(*corev1.Pod); ok {
		p.ManagedFields, p.Status = nil, corev1.PodStatus{}
		for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range containers {
				containers[i].Resources = corev1.ResourceRequirements{}
			}
		}
	}
	return object, nil
}

// watch stops the API server when etcd stops by itself, as with a full disk.
func (s *Server) watch(etcd *embed.Etcd) {
	select {
	case <-etcd.Err():
		s.cancel()
	case <-s.ended:
	}
}

// await returns when the API is ready.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverStart)
	defer cancel()
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return err
	}
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		// The default namespace is created a moment after the server reports that it is
		// ready.
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			_, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		}
		if err == nil {
			return nil
		}
		select {
		case <-retry.C:
		case <-s.ended:
			return fmt.Errorf("kube-apiserver stopped: %v", s.failure)
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready: %w", err)
		}
	}
}

// Kubeconfig is the path of the kubeconfig of the cluster's admin, a file that does not
// change in restarts on the same port.
func (s *Server) Kubeconfig() string { return filepath.Join(s.Dir, "kubeconfig") }

// Log is the path of the log of this run.
func (s *Server) Log() string { return filepath.Join(s.Dir, "log") }

// URL is the address at which the server listens.
func (s *Server) URL() string { return s.config.Host }

// RESTConfig returns the client configuration of the cluster's admin: protobuf, no rate
// limit.
func (s *Server) RESTConfig() *rest.Config { return rest.CopyConfig(s.config) }

// Ended is closed when the server has ended, whether it was stopped or failed.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Stop stops the server and waits until it has ended. Every acknowledged write is then on
// disk or, if the server is ephemeral, everything is deleted. If the server had failed
// before, Stop returns the cause.
func (s *Server) Stop() error {
	s.release()
	return s.failure
}

// release stops what runs and releases resources, in reverse order.
func (s *Server) release() {
	if s.cancel != nil {
		s.cancel()
	}
	if s.ended != nil {
		<-s.ended
	}
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		s.cleanup[i]()
	}
	s.cleanup = nil
}
