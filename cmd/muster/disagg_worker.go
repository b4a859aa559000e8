package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/disagg/worker"
	"github.com/muster-sched/muster/gpu/driver"
)

// workerTLS are the files by which the machines of a run know each other.
type workerTLS struct{ cert, key, ca string }

func (f *workerTLS) add(c *cobra.Command) {
	c.Flags().StringVar(&f.cert, "tls-cert", "", "the file of one's own certificate, in PEM, for servers and clients")
	c.Flags().StringVar(&f.key, "tls-key", "", "the file of its key")
	c.Flags().StringVar(&f.ca, "tls-ca", "", "the file of the authority that signed the certificates of all machines of a run")
}

// config is nil without files.
func (f *workerTLS) config(c *cobra.Command) (*tls.Config, error) {
	if f.cert == "" && f.key == "" && f.ca == "" {
		return nil, nil
	}
	if f.cert == "" || f.key == "" || f.ca == "" {
		return nil, badUsage(c, "--tls-cert, --tls-key, --tls-ca: expected a file of each; found %q, %q and %q", f.cert, f.key, f.ca)
	}
	config, err := worker.TLS(f.cert, f.key, f.ca)
	if err != nil {
		return nil, badUsage(c, "%v", err)
	}
	return config, nil
}

// listenFor listens for workers. Without certificates it is for this machine only: who connects can run kernels.
func listenFor(c *cobra.Command, address string, files *tls.Config) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || files == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, badUsage(c, "--listen: expected HOST:PORT, of this machine's loopback unless there is --tls-cert; found %q", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, badUsage(c, "--listen: %v", err)
	}
	if files != nil {
		l = tls.NewListener(l, files)
	}
	return l, nil
}

func newDisaggWorker() *cobra.Command {
	var listen, path string
	var files workerTLS
	c := &cobra.Command{
		Use:   "worker --listen HOST:PORT",
		Short: "Let muster disagg run on other machines use the GPUs of this one",
		Long: `Worker runs the part of requests that a plan puts on this machine's GPUs, for muster disagg
run --on GPU=HOST:PORT/DEVICE. Who connects can run kernels here: so machines know each
other by certificates (mutual TLS), and without them only this machine can connect.
It takes the program bin/gpu/muster-gpu-worker, which make gpu builds. MUSTER_CUBLAS names
another libcublas.so than the one that the linker finds.`,
		Example: `  muster disagg worker --listen 127.0.0.1:7441
  muster disagg worker --listen 10.0.0.2:7441 --tls-cert node-2.crt --tls-key node-2.key --tls-ca ca.crt`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := files.config(c)
			if err != nil {
				return err
			}
			l, err := listenFor(c, listen, config)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			s := &worker.Server{
				Driver: driver.Options{Program: gpuProgram("muster-gpu-worker", "MUSTER_GPU_WORKER"), Driver: path}, Dial: worker.Dialer(config),
				Log: func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), "muster: "+format+"\n", args...) },
			}
			fmt.Fprintf(c.OutOrStdout(), "worker listens on %s\n", l.Addr())
			go func() {
				<-ctx.Done()
				l.Close()
			}()
			s.Serve(l)
			s.Close()
			return nil
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&listen, "listen", "127.0.0.1:7441", "the `ADDRESS` to listen on")
	flags.StringVar(&path, "driver", os.Getenv("MUSTER_GPU_DRIVER"), "the `PATH` of the driver, libcuda.so.1; by default where the linker finds it")
	files.add(c)
	return c
}
