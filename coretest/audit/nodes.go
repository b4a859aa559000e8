package audit

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/workload"
)

// node is a node and what is allocated of it.
type node struct {
	name, model  string
	up, cordoned bool
	unhealthy    map[int]bool
	devices      []device
	cpu, mem     int64 // in all
	cpuHeld      int64
	memHeld      int64
	pods         int
	labels       map[string]string
	taints       []taint
	// domain is where the node is at each level of the file, at hbd and node;
	// an HBD there is not is "".
	domain map[string]string
	// lent are the GPUs of pods on standby, freed says when a pod left each GPU last, and freedBy
	// of which job it was. A pod may have those of several.
	lent    uint64
	freed   [64]int64
	freedBy []*job
	made    int64  // when an evicted pod left lent GPUs last
	group   string // its domain at the narrowest level that the file fills
}

// device is a GPU: how much of it is allocated, and to how many pods that have
// it whole and in part.
type device struct {
	milli       int64
	whole, part int
}

const wholeGPU = 1000

// taint keeps pods away that do not tolerate it.
type taint struct{ key, value string }

// levels are the topology levels of cluster.csv, widest first.
var levels = []string{"superspine", "spine", "leaf"}

func readCluster(path string) (map[string]*node, error) {
	in, err := openCSV(path, append([]string{"node", "gpu_model", "gpus", "cpu_milli", "mem_mib", "hbd", "labels"}, levels...)...)
	if err != nil {
		return nil, err
	}
	defer in.close()
	nodes := map[string]*node{}
	paths := map[*node][]string{}
	for {
		more, err := in.next()
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		n, names := readNode(&in)
		if in.err != nil {
			return nil, in.err
		}
		nodes[n.name], paths[n] = n, names
	}
	used := usedLevels(paths)
	for n, names := range paths {
		n.place(names, used)
	}
	return nodes, nil
}

// readNode reads a row, and the names of the node's domains apart.
func readNode(in *csvFile) (*node, []string) {
	n := &node{
		name: in.text("node"), model: in.text("gpu_model"), up: true,
		cpu: in.int("cpu_milli"), mem: in.int("mem_mib"),
		labels: map[string]string{}, domain: map[string]string{},
	}
	gpus := in.int("gpus")
	if gpus < 0 || gpus > 64 {
		in.wrong("gpus", "0 to 64")
		gpus = 0
	}
	n.devices = make([]device, gpus)
	n.domain["node"], n.domain["hbd"] = n.name, in.text("hbd")
	for tag := range strings.SplitSeq(in.text("labels"), ";") {
		key, value, _ := strings.Cut(tag, "=")
		if tainted, ok := strings.CutPrefix(key, "taint:"); ok {
			n.taints = append(n.taints, taint{tainted, value})
		} else if key != "" {
			n.labels[key] = value
		}
	}
	names := make([]string, len(levels))
	for i, l := range levels {
		names[i] = in.text(l)
	}
	return n, names
}

// usedLevels tells which levels the file fills: the others are not there.
func usedLevels(paths map[*node][]string) []bool {
	used := make([]bool, len(levels))
	for _, names := range paths {
		for i, name := range names {
			used[i] = used[i] || name != ""
		}
	}
	return used
}

// place fills in the node's domains. A domain is known by its path; below a
// name that is missing the node is on its own.
func (n *node) place(names []string, used []bool) {
	path := ""
	for i, name := range names {
		switch {
		case !used[i]:
			n.domain[levels[i]] = "alone/" + n.name
			continue
		case name == "" || strings.HasPrefix(path, "alone/"):
			path = "alone/" + n.name
		default:
			path += "in/" + name + "\x00"
		}
		n.domain[levels[i]] = path
	}
	if n.group = path; path == "" {
		n.group = "alone/" + n.name
	}
}

// tally scans the node: what is allocated of its available GPUs, how many of
// those there are, and whether the node counts as fragmented (of the nodes
// with GPUs).
func (n *node) tally() (allocated, available int64, fragmented, counts bool) {
	if !n.up || len(n.devices) == 0 {
		return 0, 0, false, false
	}
	free, full, healthy := 0, 0, 0
	for i := range n.devices {
		if n.unhealthy[i] {
			continue
		}
		healthy++
		allocated += n.devices[i].milli
		switch n.devices[i].milli {
		case 0:
			free++
		case wholeGPU:
			full++
		}
	}
	fragmented = free != healthy && full != healthy
	if n.cordoned {
		return 0, 0, fragmented, true
	}
	return allocated, int64(healthy), fragmented, true
}

// change is a row of nodes.csv.
type change struct {
	t, after     int64
	node         string
	up, cordoned bool
	unhealthy    map[int]bool
}

// changes are the rows of nodes.csv, in their order.
type changes struct{ rows []*change }

// openChanges reads nodes.csv; without one there are no changes.
func openChanges(path string) (*changes, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return &changes{}, nil
	}
	in, err := openCSV(path, "t", "node", "up", "cordoned", "unhealthy", "after")
	if err != nil {
		return nil, err
	}
	defer in.close()
	all := &changes{}
	for {
		more, err := in.next()
		if err != nil || !more {
			return all, err
		}
		c := &change{
			t: in.time("t"), after: in.int("after"), node: in.text("node"),
			up: in.bool("up"), cordoned: in.bool("cordoned"), unhealthy: map[int]bool{},
		}
		if in.err != nil {
			return nil, in.err
		}
		for g := range strings.SplitSeq(in.text("unhealthy"), "|") {
			if i, err := strconv.Atoi(g); err == nil {
				c.unhealthy[i] = true
			} else if g != "" {
				return nil, &workload.Error{File: path, Field: "unhealthy", Want: "GPU numbers, found " + strconv.Quote(g)}
			}
		}
		all.rows = append(all.rows, c)
	}
}

// next returns the next change that comes before line number lines+1, or nil.
func (c *changes) next(lines int64) *change {
	if len(c.rows) == 0 || c.rows[0].after > lines {
		return nil
	}
	first := c.rows[0]
	c.rows = c.rows[1:]
	return first
}

func (c *changes) left() int { return len(c.rows) }
