package audit

import (
	"fmt"
	"strings"
)

// idleGPUs sums up over time what becomes of idle GPUs (docs/fragmentation.md), for the shapes
// and jobs of summary.json. It places pods one by one.
type idleGPUs struct {
	told   *fragmentation
	level  string // the narrowest level of cluster.csv
	shapes []idleShape
	jobs   []idleJob
	time   float64
}

// fragmentation is what summary.json says of it.
type fragmentation struct {
	Shapes []toldShape
	Jobs   []toldJob
}

type toldShape struct {
	Shape       string
	Idle        float64 `json:"idle_gpus"`
	Allocatable float64 `json:"allocatable_gpus"`
	Fractional  float64 `json:"fractional_gpus"`
	Stranded    float64 `json:"stranded_gpus"`
	CPU         float64 `json:"cpu_gpus"`
	Topology    float64 `json:"topology_gpus"`
	Other       float64 `json:"other_gpus"`
	Unusable    float64 `json:"unusable_gpus"`
}

type toldJob struct {
	Job            string
	Within, Across float64
}

// split is milli-GPU by what becomes of it, in the order of toldShape.
type split [8]int64

// idleShape is a pod or, of a gang, one of its pods: the gang is within one domain, or anywhere if
// there is no level.
type idleShape struct {
	gpus, cores int64 // of a pod
	pods        int64 // of a gang; 0 for a single pod
	rooms       map[[2]string]int64
	now         split
	over        [8]float64
}

// idleJob is a job of pods that each have 8 GPUs, as those of summary.json have. rooms is how
// many of these pods there is room for, by model and domain; the domain "" is the whole cluster.
type idleJob struct {
	pods, cores    int64
	rooms          map[[2]string]int64
	within, across int64
	over           [2]float64
}

const podGPUs = 8

// begin reads what summary.json asks.
func (g *idleGPUs) begin(nodes map[string]*node, told *fragmentation) error {
	if g.told = told; told == nil {
		return nil
	}
	for _, l := range levels {
		for _, n := range nodes {
			if !strings.HasPrefix(n.domain[l], "alone/") {
				g.level = l
			}
		}
	}
	for _, s := range told.Shapes {
		shape := idleShape{rooms: map[[2]string]int64{}}
		var gpus, cores int64
		if n, _ := fmt.Sscanf(s.Shape, "%dx%dc", &gpus, &cores); n == 2 && gpus >= 2*podGPUs {
			shape.gpus, shape.pods, shape.cores = podGPUs, gpus/podGPUs, cores*podGPUs
		} else if n, err := fmt.Sscanf(s.Shape, "%dg%dc", &shape.gpus, &shape.cores); n != 2 || shape.gpus < 1 {
			return fmt.Errorf("fragmentation of shape %q, expected one such as 8g64c or 128x12c: %v", s.Shape, err)
		}
		g.shapes = append(g.shapes, shape)
	}
	for _, j := range told.Jobs {
		var gpus, cores int64
		if n, err := fmt.Sscanf(j.Job, "%dx%dc", &gpus, &cores); n != 2 || gpus < podGPUs {
			return fmt.Errorf("fragmentation of job %q, expected one such as 128x12c: %v", j.Job, err)
		}
		g.jobs = append(g.jobs, idleJob{pods: gpus / podGPUs, cores: cores * podGPUs, rooms: map[[2]string]int64{}})
	}
	return nil
}

// count adds the node by sign.
func (g *idleGPUs) count(n *node, sign int64) {
	if g.told == nil || !n.up || len(n.devices) == 0 {
		return
	}
	whole, parts, sick := int64(0), int64(0), int64(0)
	for i := range n.devices {
		switch free := wholeGPU - n.devices[i].milli; {
		case n.unhealthy[i]:
			sick += free
		case free == wholeGPU:
			whole++
		default:
			parts += free
		}
	}
	if whole == 0 && parts == 0 && sick == 0 {
		return
	}
	open := !n.cordoned && len(n.taints) == 0
	for i := range g.shapes {
		s := &g.shapes[i]
		now := split{whole*wholeGPU + parts + sick, 0, 0, 0, 0, 0, 0, sick}
		if open {
			pods, more := room(whole, n.cpu-n.cpuHeld, s.gpus, s.cores*1000)
			now[1], now[2] = pods*s.gpus*wholeGPU, parts
			now[4] = more * s.gpus * wholeGPU
			now[3] = (whole - (pods+more)*s.gpus) * wholeGPU
		} else {
			now[7] += whole*wholeGPU + parts
		}
		for c := range now {
			s.now[c] += sign * now[c]
		}
		if pods := now[1] / (s.gpus * wholeGPU); s.pods > 0 && pods > 0 {
			s.left(g.level, n, sign*pods)
		}
	}
	for i := range g.jobs {
		j := &g.jobs[i]
		pods, _ := room(whole, n.cpu-n.cpuHeld, podGPUs, j.cores*1000)
		if !open || pods == 0 {
			continue
		}
		j.across += j.add([2]string{n.model, ""}, sign*pods)
		if domain := n.domain[g.level]; g.level != "" && !strings.HasPrefix(domain, "alone/") {
			j.within += j.add([2]string{n.model, domain}, sign*pods)
		}
	}
}

// left adds a node's room for pods of a gang, and takes what no gang can use from what is
// allocatable.
func (s *idleShape) left(level string, n *node, pods int64) {
	at, cause := [2]string{n.model, ""}, 6
	if level != "" {
		at[1], cause = n.domain[level], 5
	}
	left := pods
	if !strings.HasPrefix(at[1], "alone/") {
		before := s.rooms[at]
		s.rooms[at] += pods
		left = (before+pods)%s.pods - before%s.pods
	}
	s.now[1] -= left * s.gpus * wholeGPU
	s.now[cause] += left * s.gpus * wholeGPU
}

// room places pods one by one, and returns how many fit, and how many more would with CPU enough.
func room(gpus, cpu, each, cores int64) (pods, more int64) {
	for ; gpus >= each; gpus -= each {
		if cpu >= cores {
			cpu -= cores
			pods++
		} else {
			more++
		}
	}
	return pods, more
}

// add adds pods to a room, and returns how many more jobs it then holds.
func (j *idleJob) add(at [2]string, pods int64) int64 {
	before := j.rooms[at]
	j.rooms[at] = before + pods
	return (before+pods)/j.pods - before/j.pods
}

// until sums up for dt seconds.
func (g *idleGPUs) until(dt float64) {
	g.time += dt
	for i := range g.shapes {
		for c, m := range g.shapes[i].now {
			g.shapes[i].over[c] += float64(m) / wholeGPU * dt
		}
	}
	for i := range g.jobs {
		g.jobs[i].over[0] += float64(g.jobs[i].within) * dt
		g.jobs[i].over[1] += float64(g.jobs[i].across) * dt
	}
}

// compare calls same with each figure of summary.json and what it is.
func (g *idleGPUs) compare(same func(what string, told, is float64)) {
	if g.told == nil || g.time == 0 {
		return
	}
	for i, s := range g.told.Shapes {
		told := [8]float64{s.Idle, s.Allocatable, s.Fractional, s.Stranded, s.CPU, s.Topology, s.Other, s.Unusable}
		for c, name := range [8]string{"idle", "allocatable", "fractional", "stranded", "cpu", "topology", "other", "unusable"} {
			same(fmt.Sprintf("fragmentation %s_gpus of shape %s", name, s.Shape), told[c], g.shapes[i].over[c]/g.time)
		}
	}
	for i, j := range g.told.Jobs {
		same("fragmentation within of job "+j.Job, j.Within, g.jobs[i].over[0]/g.time)
		same("fragmentation across of job "+j.Job, j.Across, g.jobs[i].over[1]/g.time)
	}
}
