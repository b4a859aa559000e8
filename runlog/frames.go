package runlog

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/workload"
)

// framesFile is frames.json.gz: what nodes and queues held at regular times, the first at
// 0, and at the end.
type framesFile struct {
	IntervalSeconds float64 `json:"interval_s"`
	EndSeconds      float64 `json:"end_s"`
	// Queues has the GPUs of a queue at each instant; missing ones, at the end,
	// are 0.
	Queues []queueFrames `json:"queues"`
	// Nodes has a text an instant: in Base64, a byte for every row of
	// cluster.csv (see [metrics.Frame]); none for nodes that never came.
	Nodes [][]byte `json:"nodes"`
	// Idle has what becomes of idle GPUs at each instant, for pods of a shape.
	Idle []idleFrames `json:"idle,omitempty"`
}

// idleFrames has GPUs at each instant.
type idleFrames struct {
	Shape       string    `json:"shape"`
	Allocatable []float64 `json:"allocatable_gpus"`
	Fractional  []float64 `json:"fractional_gpus"`
	Stranded    []float64 `json:"stranded_gpus"`
	CPU         []float64 `json:"cpu_gpus"`
	Topology    []float64 `json:"topology_gpus"`
	Other       []float64 `json:"other_gpus"`
	Unusable    []float64 `json:"unusable_gpus"`
}

// add adds an instant.
func (f *idleFrames) add(s *frag.Split) {
	f.Allocatable = append(f.Allocatable, inGPUs(s[frag.Allocatable]))
	f.Fractional = append(f.Fractional, inGPUs(s[frag.Fractional]))
	f.Stranded = append(f.Stranded, inGPUs(s[frag.Stranded]))
	f.CPU = append(f.CPU, inGPUs(s[frag.CPU]))
	f.Topology = append(f.Topology, inGPUs(s[frag.Topology]))
	f.Other = append(f.Other, inGPUs(s[frag.Memory]+s[frag.Pods]+s[frag.Other]+s[frag.Gang]))
	f.Unusable = append(f.Unusable, inGPUs(s.Unusable()))
}

// at returns the i-th instant. All that is unusable counts as cordoned, all other resources
// as Other.
func (f *idleFrames) at(i int) (s frag.Split) {
	for c, list := range map[frag.Cause][]float64{
		frag.Allocatable: f.Allocatable, frag.Fractional: f.Fractional, frag.Stranded: f.Stranded, frag.CPU: f.CPU, frag.Topology: f.Topology, frag.Other: f.Other, frag.Cordoned: f.Unusable,
	} {
		if i < len(list) {
			s[c] = inMilli(list[i])
		}
	}
	return s
}

type queueFrames struct {
	Name string    `json:"name"`
	GPUs []float64 `json:"gpus"`
}

func writeFrames(w io.Writer, h *metrics.History) error {
	f := framesFile{
		IntervalSeconds: h.Interval.Seconds(), EndSeconds: h.End.Seconds(),
		Queues: make([]queueFrames, len(h.Queues)), Nodes: make([][]byte, len(h.Frames)),
	}
	for q, name := range h.Queues {
		f.Queues[q] = queueFrames{name, make([]float64, len(h.Frames))}
	}
	for _, shape := range h.Shapes {
		f.Idle = append(f.Idle, idleFrames{Shape: shape})
	}
	for i, frame := range h.Frames {
		f.Nodes[i] = frame.Nodes
		for k := range f.Idle {
			f.Idle[k].add(&frame.Idle[k])
		}
		for q, m := range frame.Queues {
			f.Queues[q].GPUs[i] = inGPUs(m)
		}
	}
	out, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(f); err != nil {
		return err
	}
	return out.Close()
}

// readFrames reads the frames of this many nodes.
func readFrames(path string, nodes int) (metrics.History, error) {
	var h metrics.History
	bad := func(err error) (metrics.History, error) {
		return h, &workload.Error{File: path, Want: "the frames of a run: " + cause(err)}
	}
	file, err := os.Open(path)
	if err != nil {
		return bad(err)
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		return bad(err)
	}
	var f framesFile
	if err := json.NewDecoder(in).Decode(&f); err != nil {
		return bad(err)
	}
	h.Interval, h.End = inTime(f.IntervalSeconds), inTime(f.EndSeconds)
	for _, q := range f.Queues {
		h.Queues = append(h.Queues, q.Name)
	}
	for _, s := range f.Idle {
		h.Shapes = append(h.Shapes, s.Shape)
	}
	for i, bytes := range f.Nodes {
		if len(bytes) > nodes {
			return bad(fmt.Errorf("at most %d bytes in the text of each instant, a byte a node; found %d", nodes, len(bytes)))
		}
		frame := metrics.Frame{Nodes: bytes, Queues: make([]core.Milli, len(f.Queues))}
		for q := range f.Queues {
			if i < len(f.Queues[q].GPUs) {
				frame.Queues[q] = inMilli(f.Queues[q].GPUs[i])
			}
		}
		for k := range f.Idle {
			frame.Idle = append(frame.Idle, f.Idle[k].at(i))
		}
		h.Frames = append(h.Frames, frame)
	}
	return h, nil
}

func inTime(seconds float64) core.Time { return core.Time(seconds*float64(core.Second) + 0.5) }
func inMilli(gpus float64) core.Milli  { return core.Milli(gpus*float64(core.WholeGPU) + 0.5) }
