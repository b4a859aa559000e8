package frag

// Tally keeps the causes of the nodes' idle GPU up to date while nodes change, for several
// shapes, and how many jobs fit. A change of a node costs O(GPUs + shapes + jobs).
type Tally struct {
	// Splits and Fits are the results for Shapes and Jobs, in their order. They are for
	// reading.
	Shapes []Shape
	Splits []Split
	Jobs   []Job
	Fits   []Fit // with Model "": of single models, summed up

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
		Shapes: shapes, Splits: make([]Split, len(shapes)), Jobs: jobs, Fits: make([]Fit, len(jobs)),
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
		pods := by * int(s[Allocatable]/j.Shape.GPU)
		if pods == 0 {
			continue
		}
		f.Across += change(&r.across[at.model], pods, j.Pods)
		if at.domain >= 0 {
			f.Within += change(&r.within[at.domain], pods, j.Pods)
		}
	}
}

// change adds pods to a room, and returns how many more jobs of this many pods it then holds.
func change(room *int, pods, job int) int {
	before := *room / job
	*room += pods
	return *room/job - before
}
