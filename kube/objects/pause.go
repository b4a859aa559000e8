package objects

import (
	"encoding/json"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Pause is what the scheduler wrote on a pod about the pause of its processes.
type Pause struct {
	// Reason is that of the condition, Since is when it was decided.
	Reason string
	Since  time.Time
	// Had is what the pod had before it was resized for the pause; nil when it has that again.
	Had *Had
	// GPUs are those that it has, or left.
	GPUs uint64
}

// Had is what a pod had before its processes were paused, as the message of its condition has it.
type Had struct {
	Since      time.Time               `json:"since"`
	GPUs       uint64                  `json:"gpus"` // a bit each
	CPUMilli   int64                   `json:"cpuMilli"`
	MemMiB     int64                   `json:"memMiB"`
	Containers map[string]HadContainer `json:"containers"`
	// Lead is, of a job of several pods, the one that has what was decided on all of them: itself, or another.
	Lead types.UID `json:"lead,omitempty"`
	// Decided is that, on the lead: the state of the coordinator (package checkpoint/pause).
	Decided json.RawMessage `json:"decided,omitempty"`
}

// HadContainer is what a container requested, and its memory limit, empty for none.
type HadContainer struct {
	CPU         string `json:"cpu,omitempty"`
	Memory      string `json:"memory,omitempty"`
	MemoryLimit string `json:"memoryLimit,omitempty"`
}

// PauseOf returns what the scheduler wrote on a pod; nil if nothing.
func PauseOf(p *v1.Pod) *Pause {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type != v1alpha1.PausedCondition {
			continue
		}
		x := &Pause{Reason: c.Reason, Since: c.LastTransitionTime.Time}
		if _, text, ok := strings.Cut(c.Message, placeMark); ok {
			if had := new(Had); json.Unmarshal([]byte(text), had) == nil { // what cannot be read was not written by Muster
				x.Had, x.Since, x.GPUs = had, had.Since, had.GPUs
			}
		}
		return x
	}
	return nil
}

// WithHad adds what a pod had to a message, for [PauseOf]; [WithoutPlace] takes it off.
func WithHad(message string, had *Had) string {
	text, err := json.Marshal(had)
	if err != nil {
		panic(err) // it is made of what JSON has
	}
	return message + placeMark + string(text)
}

// readPause counts for a pod that is paused what it had before: that is kept for it.
func (o *Pod) readPause(p *v1.Pod) {
	o.Pause = PauseOf(p)
	if o.Pause == nil {
		return
	}
	if had := o.Pause.Had; had != nil {
		o.Amounts.CPUMilli, o.Amounts.MemMiB = had.CPUMilli, had.MemMiB
		o.Request.CPUMilli, o.Request.MemMiB = had.CPUMilli, had.MemMiB
	}
	// Its work since it went on is what it would lose.
	if o.Pause.Reason == v1alpha1.PausedResumed && o.Pause.Since.After(o.Started) {
		o.Started = o.Pause.Since
	}
}
