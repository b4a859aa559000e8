package metrics

import (
	"math/bits"

	"github.com/muster-sched/muster/core"
)

// Class is a class of jobs by the GPUs of all their pods together, rounded up
// to whole ones; class 0 holds the jobs that need less than one.
type Class int

// Classes names the classes, smallest first, as summary.json spells them.
var Classes = [...]string{
	"<1", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128",
	"129-256", "257-512", "513-1024", "1025-2048", ">2048",
}

func (c Class) String() string { return Classes[c] }

// ClassOf returns the class of a job whose pods need m together.
func ClassOf(m core.Milli) Class {
	if m < core.WholeGPU {
		return 0
	}
	gpus := uint64((m + core.WholeGPU - 1) / core.WholeGPU)
	return Class(min(1+bits.Len64(gpus-1), len(Classes)-1))
}
