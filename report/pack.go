package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/workload"
)

// pageCluster is the nodes with GPUs of a cluster.
type pageCluster struct {
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"`
	// Packed is a clusterTable as JSON, compressed, in Base64.
	Packed string `json:"packed"`
}

// clusterTable has an entry a node in each column.
type clusterTable struct {
	Names  []string `json:"names"`
	GPUs   []int    `json:"gpus"`
	Model  []int    `json:"model"` // in Models
	Models []string `json:"models"`
	Leaf   []int    `json:"leaf"` // in Leaves; -1 when it is not known
	// Leaves are the leaf groups, by their path through the topology.
	Leaves []string `json:"leaves"`
}

// pageFrames is what the nodes of a cluster held over time.
type pageFrames struct {
	T []float64 `json:"t"`
	// Full, Cordoned and Lost are the bytes of [metrics.Frame].
	Full     int `json:"full"`
	Cordoned int `json:"cordoned"`
	Lost     int `json:"lost"`
	// Packed is the bytes of each node in turn, one a time, compressed, in
	// Base64.
	Packed string `json:"packed"`
}

func newCluster(c *workload.Cluster) (pageCluster, error) {
	var p pageCluster
	t := clusterTable{Models: []string{}, Leaves: []string{}}
	models, leaves := map[string]int{}, map[string]int{}
	number := func(name string, names *[]string, of map[string]int) int {
		i, ok := of[name]
		if !ok {
			i = len(*names)
			of[name] = i
			*names = append(*names, name)
		}
		return i
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.GPUs == 0 {
			continue
		}
		p.Nodes++
		p.GPUs += n.GPUs
		t.Names = append(t.Names, n.Name)
		t.GPUs = append(t.GPUs, n.GPUs)
		t.Model = append(t.Model, number(n.Model, &t.Models, models))
		leaf := -1
		if path := strings.Join(n.Domains, "/"); len(n.Domains) > 0 && n.Domains[len(n.Domains)-1] != "" {
			leaf = number(path, &t.Leaves, leaves)
		}
		t.Leaf = append(t.Leaf, leaf)
	}
	text, err := json.Marshal(t)
	if err != nil {
		return p, err
	}
	p.Packed, err = pack(text)
	return p, err
}

// newFrames returns the frames of a run: every one, or every second, fourth and
// so on, so that they take this many bytes at most.
func newFrames(r *Run, budget int) (pageFrames, error) {
	var nodes []int
	for i := range r.Cluster.Nodes {
		if r.Cluster.Nodes[i].GPUs > 0 {
			nodes = append(nodes, i)
		}
	}
	for step := 1; ; {
		f := pageFrames{Full: metrics.Full, Cordoned: metrics.Cordoned, Lost: metrics.Lost}
		var taken []int
		for i := range r.History.Frames {
			if i%step == 0 || i == len(r.History.Frames)-1 {
				taken = append(taken, i)
				f.T = append(f.T, round(r.History.At(i).Seconds(), 10))
			}
		}
		flat := make([]byte, 0, len(nodes)*len(taken))
		for _, n := range nodes {
			for _, i := range taken {
				b := byte(metrics.Lost) // a node that never came
				if all := r.History.Frames[i].Nodes; n < len(all) {
					b = all[n]
				}
				flat = append(flat, b)
			}
		}
		var err error
		f.Packed, err = pack(flat)
		if err != nil || len(f.Packed) <= budget || len(taken) <= 2 {
			return f, err
		}
		for over := float64(len(f.Packed)) / float64(budget); over > 1; over /= 2 {
			step *= 2
		}
	}
}

// pack compresses data for the page. Higher levels take far longer for hardly any gain.
func pack(data []byte) (string, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, 7)
	if err != nil {
		return "", err
	}
	if _, err := z.Write(data); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}
