package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/access"
)

// exposeFlags say where a scheduler or an agent answers for its metrics and health, and whom.
type exposeFlags struct {
	address   string
	secure    bool
	cert, key string
}

func (f *exposeFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.address, "metrics-address", "", "serve /metrics, /healthz and /readyz at this `ADDRESS`, such as :8080")
	flags.BoolVar(&f.secure, "metrics-secure", false, "serve them by TLS, and /metrics only to those whose bearer token is of a user who may get the non-resource URL /metrics")
	flags.StringVar(&f.cert, "metrics-tls-cert", "", "the `FILE` of the certificate for --metrics-secure, in PEM, read again when it is renewed; by default one that the process signs itself when it starts")
	flags.StringVar(&f.key, "metrics-tls-key", "", "the `FILE` of its key")
}

// check says what is wrong with the flags.
func (f *exposeFlags) check(c *cobra.Command) error {
	switch {
	case f.secure && f.address == "":
		return badUsage(c, "--metrics-secure: expected --metrics-address with it")
	case (f.cert == "") != (f.key == ""):
		return badUsage(c, "--metrics-tls-cert: expected --metrics-tls-key with it, and the other way round")
	case f.cert != "" && !f.secure:
		return badUsage(c, "--metrics-tls-cert: expected --metrics-secure with it")
	}
	return nil
}

// serve answers until ctx ends, if there is an address.
func (f *exposeFlags) serve(ctx context.Context, c *cobra.Command, api *rest.Config, h http.Handler, log *slog.Logger) error {
	if f.address == "" {
		return nil
	}
	var secure *tls.Config
	if f.secure {
		var err error
		if h, err = guarded(api, h, log); err != nil {
			return err
		}
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		if secure, err = access.Certificate(f.cert, f.key, host); err != nil {
			return badUsage(c, "--metrics-tls-cert, --metrics-tls-key: %v", err)
		}
	}
	if err := kube.Serve(ctx, f.address, h, secure); err != nil {
		return badUsage(c, "--metrics-address: expected an address that is free; found %v", err)
	}
	return nil
}

// guarded lets only those read metrics who may. Kubelets, which have no token, ask for health.
func guarded(api *rest.Config, h http.Handler, log *slog.Logger) (http.Handler, error) {
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("a client for the users of metrics: %w", err)
	}
	metrics, err := access.Guard(client, h, log)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	mux.Handle("/healthz", h)
	mux.Handle("/readyz", h)
	return mux, nil
}
