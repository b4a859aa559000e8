package v1alpha1

import "github.com/muster-sched/muster/core"

// GPUTime is GPU time received and deserved: whole numbers below 2^120, in millionths of a GPU
// times nanoseconds. GPUs count by the rates of the policy.
type GPUTime struct {
	// +kubebuilder:validation:Pattern=`^[0-9]{1,37}$`
	Received string `json:"received,omitempty"`
	// +kubebuilder:validation:Pattern=`^[0-9]{1,37}$`
	Deserved string `json:"deserved,omitempty"`
}

// QueueGPUTime is the GPU time of a queue with all below it and, in Own, of its own jobs.
type QueueGPUTime struct {
	// +kubebuilder:validation:Pattern=`^[0-9]{1,37}$`
	Received string `json:"received,omitempty"`
	// +kubebuilder:validation:Pattern=`^[0-9]{1,37}$`
	Deserved string  `json:"deserved,omitempty"`
	Own      GPUTime `json:"own,omitzero"`
}

// Served returns it as the engine takes it.
func (t GPUTime) Served() core.Served { return core.Served(t) }

// QueueGPUTimeOf is the reverse of [QueueGPUTime.Queue].
func QueueGPUTimeOf(q core.QueueTime) QueueGPUTime {
	return QueueGPUTime{Received: q.All.Received, Deserved: q.All.Deserved, Own: GPUTime(q.Own)}
}

// Queue returns it as the engine takes that of a queue.
func (t QueueGPUTime) Queue(name string) core.QueueTime {
	return core.QueueTime{Queue: name, All: core.Served{Received: t.Received, Deserved: t.Deserved}, Own: t.Own.Served()}
}
