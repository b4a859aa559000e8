package frag

// Tally keeps the causes of the nodes' idle GPU up to date while nodes change, for several
// shapes, and how many jobs fit. A change of a node costs O(GPUs + shapes + jobs).
type Tally struct {
	// Splits is the result for Shapes, Gangs and Fits are those for Jobs, in their order. They are
	// for reading.
	Shapes []Shape
	Splits []Split
	Jobs   []Job
	Gangs  []Split // for gangs of a job's pods, on one model each: within one domain, or, without a level, anywhere
	Fits   []Fit   // with Model "": of single models, summed up

	level   int // a job must be within one of its domains
	models  map[string]int32
	domains map[domain]int32
	rooms   []jobRooms // one a job
}

// jobRooms counts how many pods of a job there is room for, by model and by domain of a model.
type jobRooms struct{ across, within []int }

// Place is where a node counts.
type Place struct{ model, domain int32 }

// NewTally returns a tally of no nodes. level is the number of a level of the topology.
func NewTally(shapes []Shape, jobs []Job, level int) *Tally {
	return &Tally{
		Shapes: shapes, Splits: make([]Split, len(shapes)), Jobs: jobs, Gangs: make([]Split, len(jobs)), Fits: make([]Fit, len(jobs)),
		level: level, models: map[string]int32{}, domains: map[domain]int32{}, rooms: make([]jobRooms, len(jobs)),
	}
}

// Place returns where a node counts, as long as its model and domains stay the same.
func (t *Tally) Place(n *Node) Place {
	model := n.Spec.Model
	p := Place{number(t.models, model), -1}
	if path, known := Path(n.Spec, t.level); known {
		p.domain = number(t.domains, domain{path, model})
	}
	for k := range t.rooms {
		r := &t.rooms[k]
		r.across, r.within = grow(r.across, len(t.models)), grow(r.within, len(t.domains))
	}
	return p
}

func number[K comparable](m map[K]int32, key K) int32 {
	i, ok := m[key]
	if !ok {
		i = int32(len(m))
		m[key] = i
	}
	return i
}

func grow(s []int, n int) []int { return append(s, make([]int, n-len(s))...) }

// Count adds a node to the tally, or by -1 takes it out as it was added.
func (t *Tally) Count(n *Node, at Place, by int) {
	i := n.idle()
	if i == (idle{healthy: i.healthy}) {
		return // nothing is idle
	}
	for k := range t.Shapes {
		s, _ := t.Shapes[k].split(n, i)
		t.Splits[k].Add(&s, by)
	}
	for k := range t.Jobs {
		j, r, f := &t.Jobs[k], &t.rooms[k], &t.Fits[k]
		s, _ := j.Shape.split(n, i)
		t.Gangs[k].Add(&s, by)
		pods := by * int(s[Allocatable]/j.Shape.GPU)
		if pods == 0 {
			continue
		}
		across := change(&r.across[at.model], pods, j.Pods)
		f.Across += across
		within := 0 // in an unknown domain there is room for none
		if at.domain >= 0 {
			within = change(&r.within[at.domain], pods, j.Pods)
			f.Within += within
		}
		switch {
		case j.Pods < 2:
		case t.level == Across:
			t.Gangs[k].lack(Gang, j.Shape.GPU*Milli(pods-across*j.Pods))
		default:
			t.Gangs[k].lack(Topology, j.Shape.GPU*Milli(pods-within*j.Pods))
		}
	}
}

// lack moves GPU from what is allocatable to a cause.
func (s *Split) lack(c Cause, gpu Milli) {
	s[Allocatable] -= gpu
	s[c] += gpu
}

// change adds pods to a room, and returns how many more jobs of this many pods it then holds.
func change(room *int, pods, job int) int {
	before := *room / job
	*room += pods
	return *room/job - before
}
