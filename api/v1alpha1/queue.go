package v1alpha1

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// Queue is where the jobs of a tenant wait.
type Queue struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   Metadata  `json:"metadata"`
	Spec       QueueSpec `json:"spec"`
}

// QueueSpec is a queue but for its name.
type QueueSpec struct {
	// Parent names the queue this one belongs to; empty at the top.
	Parent string `json:"parent,omitempty"`
	// Weight is the share against the siblings; 1 when not given.
	Weight *int64 `json:"weight,omitempty" min:"1" max:"1000000"`
	// Mode says whether the quota is lent and borrowed; Shared when not given.
	Mode QueueMode `json:"mode,omitempty"`
	// Quota has at most one entry a GPU model. A queue without any has no limit.
	Quota []Quota `json:"quota,omitempty"`
}

// QueueMode is Shared or Isolated.
type QueueMode string

// Values lists the modes.
func (QueueMode) Values() []string { return []string{"Shared", "Isolated"} }

// Quota is what a queue owns of one GPU model.
type Quota struct {
	// Model is a GPU model, or "*" for all of them together.
	Model   string `json:"model"`
	Nominal GPUs   `json:"nominal"`
	// BorrowingLimit and LendingLimit have no bound when not given.
	BorrowingLimit *GPUs `json:"borrowingLimit,omitempty"`
	LendingLimit   *GPUs `json:"lendingLimit,omitempty"`
}

// Queue returns the queue as the engine takes it.
func (q *QueueSpec) Queue(name string) core.Queue {
	c := core.Queue{Name: name, Parent: q.Parent, Weight: 1}
	if q.Weight != nil {
		c.Weight = *q.Weight
	}
	if i := index(q.Mode.Values(), string(q.Mode)); i >= 0 {
		c.Mode = quota.Mode(i)
	}
	for _, e := range q.Quota {
		c.Quota = append(c.Quota, core.Quota{
			Model:          e.Model,
			Nominal:        core.Milli(e.Nominal),
			BorrowingLimit: limit(e.BorrowingLimit),
			LendingLimit:   limit(e.LendingLimit),
		})
	}
	return c
}

func limit(g *GPUs) core.Milli {
	if g == nil {
		return core.Unlimited
	}
	return core.Milli(*g)
}
