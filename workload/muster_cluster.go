package workload

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Muster's own cluster file: one row per node. The levels are superspine, spine and leaf,
// less those of which every node's domain is empty. An empty gpu_model goes with no GPUs.
// The labels column is described at [tags], the devices column at [cluster.ParseDevices].
var musterCluster = clusterFormat{
	columns: columns{exact: true, required: []string{"node", "gpu_model", "gpus", "cpu_milli", "mem_mib",
		"leaf", "spine", "superspine", "hbd", "labels"}, optional: []string{"devices"}},
	read: readMusterCluster,
}

const (
	nodeName = iota
	nodeModel
	nodeGPUs
	nodeCPU
	nodeMem
	nodeLeaf
	nodeSpine
	nodeSuperspine
	nodeHBD
	nodeLabels
	nodeDevices
)

func readMusterCluster(t *table, _ *Options) (Cluster, error) {
	nodes, err := readNodes(t, func() core.Node { return readMusterNode(t) })
	if err != nil {
		return Cluster{}, err
	}
	c := Cluster{Levels: slices.Clone(levels), Nodes: nodes}
	c.dropEmptyLevels()
	return c, nil
}

func readMusterNode(t *table) core.Node {
	n := core.Node{
		Name:     string(t.name(nodeName)),
		GPUs:     int(t.count(nodeGPUs, 0, cluster.MaxGPUs)),
		CPUMilli: t.count(nodeCPU, 0, maxCPUMilli),
		MemMiB:   t.count(nodeMem, 0, maxMemMiB),
		Domains:  []string{string(t.text(nodeSuperspine)), string(t.text(nodeSpine)), string(t.text(nodeLeaf))},
		HBD:      string(t.text(nodeHBD)),
	}
	n.Model = t.model(nodeModel, n.GPUs)
	labels, err := parseTags(string(t.text(nodeLabels)))
	if err != nil {
		t.fail(nodeLabels, err)
	}
	n.Labels, n.Taints = labels.labels, labels.taints
	if text := string(t.field(nodeDevices)); text != "" {
		devices, ok := cluster.ParseDevices(text)
		if !ok || len(devices) != n.GPUs {
			t.wrong(nodeDevices, fmt.Sprintf("island/pcie/numa/nic of each of the %d GPUs, or island/numa/nic, separated by |, such as 0/0/0/0|0/0/1/-", n.GPUs))
		}
		n.Devices = devices
	}
	return n
}

// dropEmptyLevels removes the levels of which no node names a domain.
func (c *Cluster) dropEmptyLevels() {
	for l := len(c.Levels) - 1; l >= 0; l-- {
		named := slices.ContainsFunc(c.Nodes, func(n core.Node) bool { return n.Domains[l] != "" })
		if named {
			continue
		}
		c.Levels = slices.Delete(c.Levels, l, l+1)
		for i := range c.Nodes {
			c.Nodes[i].Domains = slices.Delete(c.Nodes[i].Domains, l, l+1)
		}
	}
}

// WriteCluster writes c as Muster's own cluster file, which reads back as the
// same nodes. Queues have no place in it. It returns an error for what the file
// cannot express: other levels than superspine, spine and leaf in that order,
// unhealthy devices, cordoned nodes, separators in names and labels. Without a node that has
// device positions there is no column of them.
func WriteCluster(w io.Writer, c Cluster) error {
	at, err := levelPositions(c.Levels)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	var r row
	columns := musterCluster.required
	positions := slices.ContainsFunc(c.Nodes, func(n core.Node) bool { return n.Devices != nil })
	if positions {
		columns = slices.Concat(columns, musterCluster.optional)
	}
	r.header(columns)
	for i := range c.Nodes {
		if err := writable(&c.Nodes[i]); err != nil {
			return err
		}
		r.node(&c.Nodes[i], at, positions)
		if _, err := out.Write(r); err != nil {
			return err
		}
		r = r[:0]
	}
	return out.Flush()
}

// levelPositions returns the indices of the superspine, spine and leaf in a node's
// Domains, -1 for those that are missing.
func levelPositions(names []string) ([]int, error) {
	at := make([]int, len(levels))
	found := 0
	for l, name := range levels {
		at[l] = slices.Index(names, name)
		if at[l] >= 0 {
			if at[l] != found {
				return nil, fmt.Errorf("write cluster: levels %q are not %q in this order", names, levels)
			}
			found++
		}
	}
	if found != len(names) {
		return nil, fmt.Errorf("write cluster: levels %q are not among %q", names, levels)
	}
	return at, nil
}

// writable returns an error for a node that has what the file cannot express.
func writable(n *core.Node) error {
	tagged := tags{n.Labels, n.Taints}
	back, err := parseTags(string(appendTags(nil, tagged)))
	positions, _ := cluster.ParseDevices(string(cluster.AppendDevices(nil, n.Devices)))
	switch {
	case len(n.Unhealthy) > 0, n.Cordoned:
		return fmt.Errorf("write node %q: health and cordons have no column", n.Name)
	case n.Devices != nil && !slices.Equal(positions, n.Devices):
		return fmt.Errorf("write node %q: the position of a device %w", n.Name, errUnwritable)
	case n.Name == "" || !validModel(n.Model) || (n.Model == "") != (n.GPUs == 0):
		return fmt.Errorf("write node %q: its name or model %w", n.Name, errUnwritable)
	case err != nil || !sameTags(back, tagged):
		return fmt.Errorf("write node %q: a label or taint %w", n.Name, errUnwritable)
	}
	for _, text := range append([]string{n.Name, n.HBD, string(appendTags(nil, tagged))}, n.Domains...) {
		if !plain(text) {
			return fmt.Errorf("write node %q: %q %w", n.Name, text, errUnwritable)
		}
	}
	return nil
}

func sameTags(a, b tags) bool {
	return len(a.labels) == len(b.labels) && (len(a.labels) == 0 || reflect.DeepEqual(a.labels, b.labels)) &&
		slices.Equal(a.taints, b.taints)
}

// node appends the row of a node, with the positions of its devices if the file has them; at
// is the result of levelPositions.
func (r *row) node(n *core.Node, at []int, positions bool) {
	r.text(n.Name)
	r.text(n.Model)
	r.int(int64(n.GPUs))
	r.int(n.CPUMilli)
	r.int(n.MemMiB)
	for l := len(levels) - 1; l >= 0; l-- {
		if at[l] >= 0 && at[l] < len(n.Domains) {
			r.text(n.Domains[at[l]])
		} else {
			r.text("")
		}
	}
	r.text(n.HBD)
	r.text(string(appendTags(nil, tags{n.Labels, n.Taints})))
	if positions {
		r.text(string(cluster.AppendDevices(nil, n.Devices)))
	}
	r.end()
}
