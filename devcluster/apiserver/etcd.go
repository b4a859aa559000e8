package apiserver

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	// etcdQuota is the maximum size of etcd's file, in bytes: eight times the state of
	// 155,409 pods on 37,707 nodes.
	etcdQuota = 16 << 30
	// defragAbove is the free space in etcd's file, in MiB, above which the next start
	// defragments it.
	defragAbove = 128
	// etcdStart is the time limit for etcd to load its data and elect itself.
	etcdStart = time.Minute
	// maxSocketPath is the longest path of a socket that every system allows, with the
	// terminating zero.
	maxSocketPath = 103
)

// startEtcd starts etcd with its data in dir and returns it with its endpoint, a socket
// in the folder sockets. Only processes that may read that folder can connect.
func startEtcd(ctx context.Context, dir, sockets string, fsync bool, log *zap.Logger) (*embed.Etcd, string, error) {
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "etcd")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "peer")}
	cfg := embed.NewConfig()
	cfg.Name = "devcluster"
	cfg.Dir = dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.QuotaBackendBytes = etcdQuota
	cfg.BootstrapDefragThresholdMegabytes = defragAbove
	cfg.UnsafeNoFsync = !fsync
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("etcd: %w", err)
	}
	limit := time.NewTimer(etcdStart)
	defer limit.Stop()
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, client.String(), nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-limit.C:
		err = fmt.Errorf("not ready after %v", etcdStart)
	}
	etcd.Close()
	return nil, "", fmt.Errorf("etcd: %w", err)
}
