package analyze

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/internal/table"
)

// WriteKernels writes a table of kernels.
func WriteKernels(w io.Writer, kernels []Kernel) error {
	t := table.Table{Align: "lrrrrrrrl"}
	t.Add("kernel", "instructions", "loads", "stores", "atomics", "copies", "generic", "by data", "limits")
	limited := 0
	for i := range kernels {
		k := &kernels[i]
		byData := strconv.Itoa(k.ByData)
		if k.Branches {
			byData += "+"
		}
		if len(k.Limits) > 0 {
			limited++
		}
		t.Add(k.Name, strconv.Itoa(k.Instructions), strconv.Itoa(k.Loads), strconv.Itoa(k.Stores), strconv.Itoa(k.Atomics),
			strconv.Itoa(k.Copies), strconv.Itoa(k.Generic), byData, strings.Join(k.Limits, ", "))
	}
	if err := t.Write(w, 0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d kernels; %d have accesses whose bytes cannot be traced.\n", len(kernels), limited)
	return err
}

// WriteGraph writes a table of the nodes with what each depends on.
func WriteGraph(w io.Writer, g *Graph) error {
	t := table.Table{Align: "lrrl"}
	t.Add("node", "reads", "writes", "depends on")
	one := 0
	for i := range g.Nodes {
		n := &g.Nodes[i]
		var on []string
		for _, e := range g.Edges {
			if e.To == n.Name {
				text := fmt.Sprintf("%s (%d B)", e.From, e.Bytes)
				if e.Next {
					text = fmt.Sprintf("%s (%d B of the iteration before)", e.From, e.Bytes)
				}
				on = append(on, text)
			}
		}
		if n.OneGPU != "" {
			one++
			on = append(on, "needs one GPU: "+n.OneGPU)
		}
		t.Add(n.Name, strconv.FormatUint(total(n.Reads), 10), strconv.FormatUint(total(n.Writes), 10), strings.Join(on, ", "))
	}
	if err := t.Write(w, 0); err != nil {
		return err
	}
	for _, b := range g.Buffers {
		if _, err := fmt.Fprintf(w, "\n%s %s: %d bytes", b.Kind, table.Printable(b.Name), b.Bytes); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n\n%d nodes, %d edges; %d nodes need one GPU.\n", len(g.Nodes), len(g.Edges), one)
	return err
}

func total(parts []Part) (n uint64) {
	for _, p := range parts {
		n += p.Bytes
	}
	return n
}
