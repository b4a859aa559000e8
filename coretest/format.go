package coretest

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Format writes decisions as text, one a line:
//
//	10s bind train: 0 on a[0-3] 1 on b[0-3]
//
// says that at 10 s pod 0 of job train goes to GPUs 0 to 3 of node a. A pod
// that takes part of a GPU shows how much: a[2]x0.25.
func Format(now core.Time, ds []core.Decision) string {
	var b strings.Builder
	for i := range ds {
		d := &ds[i]
		fmt.Fprintf(&b, "%s %s", seconds(now), d.Op)
		if d.Op == core.Wake {
			fmt.Fprintf(&b, " at %s\n", seconds(d.At))
			continue
		}
		fmt.Fprintf(&b, " %s%s", d.Job, d.Node)
		if len(d.Pods) > 0 {
			b.WriteString(":")
		}
		for k := range d.Pods {
			b.WriteString(" " + placementText(&d.Pods[k]))
		}
		if d.For != "" {
			fmt.Fprintf(&b, " for %s", d.For)
		}
		if d.Reason != core.Placed {
			fmt.Fprintf(&b, " (%s)", d.Reason)
		}
		if d.Detail != "" {
			fmt.Fprintf(&b, ": %s", d.Detail)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func placementText(p *core.Placement) string {
	s := fmt.Sprintf("%d on %s", p.Pod, p.Node)
	if p.GPUs == 0 {
		return s
	}
	s += "[" + setText(p.GPUs) + "]"
	if p.GPU != core.WholeGPU {
		s += "x" + p.GPU.GPUs()
	}
	if p.NICs != p.GPUs {
		s += " nic[" + setText(p.NICs) + "]"
	}
	return s
}

// setText writes a set of small numbers: "0-3,6".
func setText(m uint64) string {
	var parts []string
	for m != 0 {
		from := bits.TrailingZeros64(m)
		n := bits.TrailingZeros64(^(m >> from))
		m &^= (1<<n - 1) << from
		if n == 64 {
			m = 0
		}
		part := strconv.Itoa(from)
		if n > 1 {
			part += "-" + strconv.Itoa(from+n-1)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

func seconds(t core.Time) string {
	return strconv.FormatFloat(t.Seconds(), 'f', -1, 64) + "s"
}
