// Package health reads what the conditions of nodes say about the health of their GPUs.
//
// The Ready condition says nothing of GPUs, and a device plugin may go on to offer one that is
// broken. Agents that look at them (our own, node-problem-detector with its plugins, NVSentinel on top of
// DCGM, the agents of clouds) report what they find as conditions of the node.
package health

import (
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Fault is what the conditions of a node say is wrong with its GPUs.
type Fault struct {
	// Why names the conditions, with their messages; empty if nothing is wrong.
	Why string
	// GPUs has the numbers of the GPUs that are named, if all conditions name some; 0 means any may be meant.
	GPUs uint64
}

// Conditions are the types of node conditions that are about GPUs, with the status that says that some are broken.
// Those that only report that GPUs are slow are not among them.
var Conditions = map[v1.NodeConditionType]v1.ConditionStatus{
	// node-problem-detector, as AKS configures it: learn.microsoft.com/azure/aks/gpu-health-monitoring.
	"GPUMissing": v1.ConditionTrue, "XIDErrors": v1.ConditionTrue, "GPUXIDErrors": v1.ConditionTrue,
	"NVLinkStatusInactive": v1.ConditionTrue, "UnhealthyNvidiaDevicePlugin": v1.ConditionTrue,
	// The agents of nodes: docs/agent.md.
	"GPUHealthy": v1.ConditionFalse,
	// NVSentinel, from DCGM's health watches and the logs of the driver; only fatal findings are conditions:
	// github.com/NVIDIA/NVSentinel. The watches are Gpu*Watch.
	"GpuXidError": v1.ConditionTrue, "SysLogsXIDError": v1.ConditionTrue, "SysLogsSXIDError": v1.ConditionTrue, "SysLogsGPUFallenOff": v1.ConditionTrue,
	// Nebius: docs.nebius.com/kubernetes/maintenance/health-checks.
	"NebiusGPUError": v1.ConditionTrue,
	// The node monitoring agent of EKS: docs.aws.amazon.com/eks/latest/userguide/node-health.html.
	"AcceleratedHardwareReady": v1.ConditionFalse,
}

// bad returns the status of a condition that says that GPUs are broken, "" if it is not about GPUs.
func bad(of v1.NodeConditionType) v1.ConditionStatus {
	if strings.HasPrefix(string(of), "Gpu") && strings.HasSuffix(string(of), "Watch") {
		return v1.ConditionTrue
	}
	return Conditions[of]
}

// named finds the numbers of GPUs in the messages of NVSentinel and of our agents.
var named = regexp.MustCompile(`\bGPU:(\d{1,2})\b`)

// maxMessage is how much of a message is kept.
const maxMessage = 200

// Of reads the conditions of a node.
func Of(n *v1.Node) Fault {
	var f Fault
	var why []string
	all := true
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if status := bad(c.Type); status == "" || c.Status != status {
			continue
		}
		text := string(c.Type)
		if m := c.Message; m != "" {
			text += ": " + strings.ToValidUTF8(m[:min(len(m), maxMessage)], "")
		}
		why = append(why, text)
		gpus := uint64(0)
		for _, m := range named.FindAllStringSubmatch(c.Message, -1) {
			if g, err := strconv.Atoi(m[1]); err == nil && g < 64 {
				gpus |= 1 << g
			}
		}
		all = all && gpus != 0
		f.GPUs |= gpus
	}
	if f.Why = strings.Join(why, "; "); !all {
		f.GPUs = 0
	}
	return f
}
