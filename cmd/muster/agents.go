package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/pause"
)

// together pauses or resumes the processes at several agents as one job.
func (r *remote) together(c *cobra.Command, action agentpb.Action, o checkpoint.Options, asJSON bool) error {
	ctx, stop := interruptible(c)
	defer stop()
	members, done, err := r.members(ctx, c)
	defer done()
	if err != nil {
		return err
	}
	file := r.state
	if file == "" {
		file = r.job + ".pause.json"
	}
	options := pause.Options{Job: r.job, Options: o, Lease: max(pauseLease, 3*o.Timeout)}
	var participants []pause.Participant
	for _, m := range members {
		participants = append(participants, m)
	}
	began := time.Now()
	if action == agentpb.Action_ACTION_PAUSE {
		err = pause.Pause(ctx, participants, pause.File(file), options)
	} else {
		err = pause.Resume(ctx, participants, pause.File(file), options)
	}
	if unfinished := (*pause.UnfinishedError)(nil); errors.As(err, &unfinished) {
		return fmt.Errorf("%w: the same command, with the same --job and --state, finishes it", err)
	}
	if err != nil {
		return err
	}
	return r.report(ctx, c, members, time.Since(began), asJSON)
}

// members are the processes that are meant, by agent and pod, in the order of the
// agents on the command line and then of the pods.
func (r *remote) members(ctx context.Context, c *cobra.Command) ([]*agent.Member, func(), error) {
	limited, cancel := context.WithTimeout(ctx, unreached)
	defer cancel()
	var members []*agent.Member
	var clients []*agent.Client
	done := func() {
		for _, client := range clients {
			client.Close()
		}
	}
	pods := r.pods
	if len(pods) == 0 {
		pods = []string{""}
	}
	found := map[string]bool{}
	for _, address := range r.addresses {
		client, err := r.dial(address)
		if err != nil {
			return nil, done, badUsage(c, "%v", err)
		}
		clients = append(clients, client)
		s, err := client.Status(limited, &agentpb.StatusRequest{Node: r.nodes[address]})
		if err != nil {
			return nil, done, r.failed(c, err, "")
		}
		before := len(members)
		for _, p := range s.Processes { // in ascending order of pod and PID
			if !slices.Contains(pods, p.Pod) {
				continue
			}
			found[p.Pod] = true
			if last := len(members) - 1; last >= before && members[last].Pod == p.Pod {
				members[last].PIDs = append(members[last].PIDs, p.Pid)
			} else {
				members = append(members, &agent.Member{Client: client, Node: r.nodes[address], Pod: p.Pod, PIDs: []int32{p.Pid}})
			}
		}
		if len(members) == before {
			return nil, done, fmt.Errorf("agent %s: no process of the job is there", address)
		}
	}
	for _, pod := range pods {
		if !found[pod] {
			return nil, done, fmt.Errorf("pod %q: no agent has a process of it", pod)
		}
	}
	return members, done, nil
}

// report writes the members' processes as they are now.
func (r *remote) report(ctx context.Context, c *cobra.Command, members []*agent.Member, took time.Duration, asJSON bool) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), unreached)
	defer cancel()
	var all []*agentpb.Process
	for _, m := range members {
		s, err := m.Client.Status(limited, &agentpb.StatusRequest{})
		if err != nil {
			return r.failed(c, err, "")
		}
		for _, p := range s.Processes {
			if p.Pod == m.Pod && slices.Contains(m.PIDs, p.Pid) {
				all = append(all, p)
			}
		}
	}
	return writeRemote(c.OutOrStdout(), all, took, asJSON)
}
