package etcdlog_test

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/muster-sched/muster/devcluster/apiserver/etcdlog"
)

// An etcd that knows no request has the API server's client complain, where we want
// it to. The logger would write to stderr had it been made before this package.
func TestRedirects(t *testing.T) {
	var said strings.Builder
	etcdlog.SetOutput(&said)
	socket := filepath.Join(t.TempDir(), "etcd")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	etcd := grpc.NewServer()
	go etcd.Serve(listener)
	defer etcd.Stop()

	prober, err := factory.CreateProber(storagebackend.Config{
		Transport: storagebackend.TransportConfig{ServerList: []string{"unix://" + socket}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prober.Close()
	if err := prober.Probe(t.Context()); err == nil {
		t.Error("an etcd that knows no request answered one")
	}
	etcdlog.SetOutput(io.Discard)
	if !strings.Contains(said.String(), "etcd-client") {
		t.Errorf("the client said %q", said.String())
	}
}
