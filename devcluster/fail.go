package main

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-sched/muster/devcluster/fleet"
)

// newFail returns the command that makes simulated nodes, GPUs and pods fail.
func newFail() *cobra.Command {
	c := &cobra.Command{Use: "fail", Short: "Make a simulated node, GPU or pod fail"}
	connect := kubeconfigFlag(c)
	var gone bool
	node := &cobra.Command{
		Use:   "node NAME",
		Short: "Make a node unreachable or, with --gone, remove it",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := connect()
			if err != nil {
				return err
			}
			if gone {
				return fleet.RemoveNode(c.Context(), client, args[0])
			}
			return fleet.FailNode(c.Context(), client, args[0])
		},
	}
	node.Flags().BoolVar(&gone, "gone", false, "remove the node from the cluster; repair adds it again")
	c.AddCommand(node, gpuCommand("Make a GPU unhealthy", connect, fleet.FailGPU), &cobra.Command{
		Use:   "pod NAMESPACE/NAME",
		Short: "Crash the containers of a running pod",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok || namespace == "" || name == "" {
				return badUsage(c, "expected NAMESPACE/NAME; found %q", args[0])
			}
			client, err := connect()
			if err != nil {
				return err
			}
			return fleet.FailPod(c.Context(), client, namespace, name)
		},
	})
	return c
}

// newRepair returns the command that repairs failed nodes and GPUs.
func newRepair() *cobra.Command {
	c := &cobra.Command{Use: "repair", Short: "Make a failed node or GPU work again"}
	connect := kubeconfigFlag(c)
	c.AddCommand(gpuCommand("Make a GPU healthy", connect, fleet.RepairGPU), &cobra.Command{
		Use:   "node NAME",
		Short: "Make a node reachable again, or add a removed one again",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := connect()
			if err != nil {
				return err
			}
			return fleet.RepairNode(c.Context(), client, args[0])
		},
	})
	return c
}

func gpuCommand(short string, connect func() (kubernetes.Interface, error),
	do func(ctx context.Context, client kubernetes.Interface, node string, index int) error,
) *cobra.Command {
	return &cobra.Command{
		Use:   "gpu NODE INDEX",
		Short: short,
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			index, err := strconv.Atoi(args[1])
			if err != nil {
				return badUsage(c, "expected the index of a GPU, from 0; found %q", args[1])
			}
			client, err := connect()
			if err != nil {
				return err
			}
			return do(c.Context(), client, args[0], index)
		},
	}
}

// kubeconfigFlag adds --kubeconfig to c and the commands below it, and returns a function
// that creates a client from it.
func kubeconfigFlag(c *cobra.Command) func() (kubernetes.Interface, error) {
	var file string
	c.PersistentFlags().StringVar(&file, "kubeconfig", os.Getenv(clientcmd.RecommendedConfigPathEnvVar), "the cluster's kubeconfig `FILE`")
	return func() (kubernetes.Interface, error) {
		if file == "" {
			return nil, badUsage(c, "expected --kubeconfig or $%s", clientcmd.RecommendedConfigPathEnvVar)
		}
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			return nil, badUsage(c, "--kubeconfig: %s", err)
		}
		config.QPS = -1
		return kubernetes.NewForConfig(config)
	}
}
