package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler answers for metrics (/metrics), health (/healthz: the loop is not stuck)
// and readiness (/readyz: the cluster has been seen; a standby is ready too).
func (s *Scheduler) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.watchdog.stuck.Load() {
			http.Error(w, stuckError{s.watchdog.limit}.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-s.listed:
			_, _ = w.Write([]byte("ok\n"))
		default:
			http.Error(w, "the cluster has not been listed yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// Profiles serves /debug/pprof. Use it on a private port only.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// Serve serves HTTP at address until ctx ends, by TLS if secure is not nil. The error says why
// it cannot listen there.
func Serve(ctx context.Context, address string, h http.Handler, secure *tls.Config) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the listener is ours: nothing else closes it
		}
	}()
	return nil
}
