// Package etcdlog redirects what the API server's etcd client logs.
//
// k8s.io/apiserver creates that logger in an init function, for stderr, and offers no way
// to replace it. The init function reads etcd's default configuration, which this package
// has already changed by then: Go initialises packages that do not depend on each other
// in the order of their import paths, and this package depends on no package of
// Kubernetes.
package etcdlog

import (
	"io"
	"net/url"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
)

// scheme is the scheme of the paths that zap opens as our sink.
const scheme = "etcdlog"

func init() {
	if err := zap.RegisterSink(scheme, func(*url.URL) (zap.Sink, error) { return &out, nil }); err != nil {
		panic(err)
	}
	logutil.DefaultZapLoggerConfig.OutputPaths = []string{scheme + ":"}
	logutil.DefaultZapLoggerConfig.ErrorOutputPaths = []string{scheme + ":"}
}

// SetOutput sets where the lines go from now on. Before the first call they are
// dropped.
func SetOutput(w io.Writer) {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.to = w
}

var out = sink{to: io.Discard}

// sink is a [zap.Sink] whose target may change.
type sink struct {
	mu sync.Mutex
	to io.Writer
}

func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(line)
}

func (s *sink) Sync() error  { return nil }
func (s *sink) Close() error { return nil }
