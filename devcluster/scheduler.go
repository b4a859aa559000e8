package main

import (
	"github.com/spf13/cobra"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// schedulerFlags are the flags of the stock scheduler for measurements: without leader
// election, without a request limit, with the native gang API. Flags of the user come
// later and win.
var schedulerFlags = []string{
	"--leader-elect=false", "--secure-port=0", "--kube-api-qps=5000", "--kube-api-burst=5000",
	"--kube-api-content-type=application/vnd.kubernetes.protobuf", "--feature-gates=GenericWorkload=true",
}

// newScheduler returns the command that runs the stock scheduler of the same version, for
// comparison.
func newScheduler() *cobra.Command {
	return &cobra.Command{
		Use:   "kube-scheduler [FLAGS]",
		Short: "Run the stock kube-scheduler of the same version",
		Long: `Runs the stock kube-scheduler of the same version as the cluster, for comparison,
with gang scheduling enabled and no request limit. It takes all flags of
kube-scheduler; only --kubeconfig is required.`,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := interruptible()
			defer stop()
			stock := app.NewSchedulerCommand()
			stock.SilenceErrors, stock.SilenceUsage = true, true
			stock.SetArgs(append(schedulerFlags, args...))
			return unlessAsked(ctx, stock.ExecuteContext(ctx))
		},
	}
}
