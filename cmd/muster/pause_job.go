package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
	"github.com/muster-sched/muster/kube/pause"
)

// agentFlags select the cluster of a job whose pods' agents a command asks.
type agentFlags struct {
	consoleFlags
	port int
}

func (f *agentFlags) register(c *cobra.Command) {
	f.consoleFlags.register(c)
	f.portFlag(c, "JOB")
}

// registerNode is register for a command about nodes.
func (f *agentFlags) registerNode(c *cobra.Command) {
	f.api.register(c)
	f.portFlag(c, "NODE")
}

func (f *agentFlags) portFlag(c *cobra.Command, with string) {
	c.Flags().IntVar(&f.port, "agent-port", 9440, "with "+with+": the `PORT` of the agents, at the internal addresses of their nodes; the annotation muster.sh/agent of a node takes precedence")
}

func (f *agentFlags) check(c *cobra.Command) error {
	if f.port < 1 || f.port > 65535 {
		return badUsage(c, "--agent-port: expected a number from 1 to 65535; found %d", f.port)
	}
	return nil
}

// address is where the agent of a node listens.
func (f *agentFlags) address(ctx context.Context, client *console.Client, name string) (string, error) {
	node, err := client.Node(ctx, name)
	if err != nil {
		return "", err
	}
	return pause.Address(node, f.port)
}

// isJob reports whether the arguments name a job of the cluster, and no process.
func isJob(args []string) bool {
	if len(args) != 1 {
		return false
	}
	_, err := strconv.Atoi(args[0])
	return err != nil
}

// misused says which flags are for a job of the cluster alone.
func (f *agentFlags) misused(c *cobra.Command) error {
	for _, flag := range []string{"kubeconfig", "context", "namespace", "agent-port"} {
		if c.Flags().Changed(flag) {
			return badUsage(c, "--%s: expected one JOB of the cluster with it", flag)
		}
	}
	return nil
}

// ofJob finds the agents of the nodes on which the pods of a job run.
func (r *remote) ofJob(c *cobra.Command, name string) error {
	for _, flag := range []string{"gpu-dir", "backend", "agent", "pod", "id", "list"} {
		if c.Flags().Changed(flag) {
			return badUsage(c, "--%s: it does not go with a JOB of the cluster; found %s", flag, name)
		}
	}
	if err := r.cluster.check(c); err != nil {
		return err
	}
	if err := required(c, r.files); err != nil {
		return err
	}
	client, namespace, err := r.cluster.open(c)
	if err != nil {
		return err
	}
	pods, err := client.Running(c.Context(), namespace, name)
	if err != nil {
		return jobHint(err, name)
	}
	r.nodes = map[string]string{}
	for _, p := range pods {
		if p.Paused != "" {
			return fmt.Errorf("pod %s is paused by the scheduler, which lets it go on: %s", p.Name, p.Paused)
		}
		address, err := r.cluster.address(c.Context(), client, p.Node)
		if err != nil {
			return err
		}
		if !slices.Contains(r.addresses, address) {
			r.addresses = append(r.addresses, address)
		}
		if other, ok := r.nodes[address]; ok && other != p.Node {
			r.nodes[address] = "" // one agent answers for several nodes
		} else {
			r.nodes[address] = p.Node
		}
		r.pods = append(r.pods, string(p.UID))
		if r.job == "" {
			r.job = strings.ReplaceAll(p.Job, "/", "-") // agents take no slash
		}
	}
	if len(pods) == 1 {
		for _, flag := range []string{"retries", "job", "state"} {
			if c.Flags().Changed(flag) {
				return badUsage(c, "--%s: it is for jobs of several pods, and %s has one", flag, name)
			}
		}
	}
	return nil
}
