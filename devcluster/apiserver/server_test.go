package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// One server at a time: the API server has state of the whole process.
func TestServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	s := start(t, Config{Dir: dir})
	client := clientOf(t, s)
	_ = client
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = start(t, Config{Dir: dir})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
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

func clientOf(t *testing.T, s *Server) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var _ = context.Background
var _ = errors.New
var _ net.Listener
var _ http.Handler
var _ = os.Stat
var _ = strings.Cut
var _ tls.Config
var _ corev1.Pod
var _ schedulingv1beta1.PodGroup
var _ = apierrors.IsNotFound
var _ metav1.ObjectMeta
var _ *rest.Config
var _ = clientcmd.LoadFromFile
