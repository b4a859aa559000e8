package history

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// index finds jobs that are like another. It compares exactly: with each distinct vector once, however many jobs have it.
// Only jobs that completed are found: how long others would have taken is not known.
type index struct {
	jobs   map[string]*entry
	groups map[groupKey]*group
	views  map[viewKey]*view
	series map[string][]*entry // in order of ends
}

// entry is a job in the index.
type entry struct {
	Job
	series string
	group  *group // nil without a vector
}

type groupKey struct{ tenant, embedder, vector string }

// group is the jobs of a tenant that have the same vector, in order of ends.
type group struct {
	key   groupKey
	vec   sparse
	jobs  []*entry
	first time.Time // when the first of them ended
	at    int       // in the view
}

type viewKey struct{ tenant, embedder string }

// view is the groups of a tenant, and in how many of them each component is not 0: what a query needs of all of them.
type view struct {
	groups []*group // in no order
	counts []int
}

// count adds a group's components to the counts, or with -1 takes them off.
func count(counts []int, g *group, by int) []int {
	if n := len(g.vec.dims); n > 0 && int(g.vec.dims[n-1]) >= len(counts) {
		counts = append(counts, make([]int, int(g.vec.dims[n-1])+1-len(counts))...)
	}
	for _, d := range g.vec.dims {
		counts[d] += by
	}
	return counts
}

func newIndex() *index {
	return &index{jobs: map[string]*entry{}, groups: map[groupKey]*group{}, views: map[viewKey]*view{}, series: map[string][]*entry{}}
}

// byEnd orders jobs by their ends, and those that ended together by ID.
func byEnd(a, b *entry) int { return cmp.Or(a.End.Compare(b.End), strings.Compare(a.ID, b.ID)) }

// add adds a job, in place of an older one with its ID.
func (x *index) add(r record) {
	x.remove(r.job.ID)
	e := &entry{Job: r.job}
	x.jobs[e.ID] = e
	if e.Outcome != Completed {
		return
	}
	if e.series = e.Job.series(); e.series != "" {
		x.series[e.series] = inserted(x.series[e.series], e)
	}
	if len(r.vector) == 0 {
		return
	}
	key := groupKey{e.Tenant, r.embedder, string(r.vector)}
	g := x.groups[key]
	if g == nil {
		g = &group{key: key, vec: decode(r.vector)}
		x.groups[key] = g
		of := viewKey{key.tenant, key.embedder}
		if x.views[of] == nil {
			x.views[of] = &view{}
		}
		v := x.views[of]
		g.at, v.groups, v.counts = len(v.groups), append(v.groups, g), count(v.counts, g, 1)
	}
	e.group, g.jobs = g, inserted(g.jobs, e)
	g.first = g.jobs[0].End
}

// remove removes a job, if it is there.
func (x *index) remove(id string) {
	e := x.jobs[id]
	if e == nil {
		return
	}
	delete(x.jobs, id)
	if e.series != "" {
		if x.series[e.series] = without(x.series[e.series], e); len(x.series[e.series]) == 0 {
			delete(x.series, e.series)
		}
	}
	if g := e.group; g != nil {
		if g.jobs = without(g.jobs, e); len(g.jobs) > 0 {
			g.first = g.jobs[0].End
			return
		}
		delete(x.groups, g.key)
		v := x.views[viewKey{g.key.tenant, g.key.embedder}]
		last := v.groups[len(v.groups)-1]
		last.at, v.groups[g.at] = g.at, last
		v.groups, v.counts = v.groups[:len(v.groups)-1], count(v.counts, g, -1)
		if len(v.groups) == 0 {
			delete(x.views, viewKey{g.key.tenant, g.key.embedder})
		}
	}
}

func inserted(list []*entry, e *entry) []*entry {
	i, _ := slices.BinarySearchFunc(list, e, byEnd)
	return slices.Insert(list, i, e)
}

func without(list []*entry, e *entry) []*entry {
	i, _ := slices.BinarySearchFunc(list, e, byEnd)
	return slices.Delete(list, i, i+1)
}

// keep removes the jobs that ended first, when there are a tenth more than n, until n are left. It returns whether it did.
func (x *index) keep(n int) bool {
	if len(x.jobs) <= n+n/10 {
		return false
	}
	all := x.sorted()
	for _, e := range all[:len(all)-n] {
		x.remove(e.ID)
	}
	return true
}

// sorted returns all jobs in order of ends.
func (x *index) sorted() []*entry {
	all := make([]*entry, 0, len(x.jobs))
	for _, e := range x.jobs {
		all = append(all, e)
	}
	slices.SortFunc(all, byEnd)
	return all
}

// ended returns the jobs of a list that had ended by a time.
func ended(list []*entry, by time.Time) []*entry {
	n, _ := slices.BinarySearchFunc(list, by, func(e *entry, t time.Time) int {
		if e.End.After(t) {
			return 1
		}
		return -1
	})
	return list[:n]
}

// similar returns the jobs that are most like the query's, best first: runs of the same job, the last first, or else those with
// the highest cosine, of equals those that ended last.
func (x *index) similar(q *Query, embedder string, weighed bool, vector []float32) []Match {
	if same := ended(x.series[q.Job.series()], q.Job.Submit); len(same) > 0 {
		var found []Match
		for i := len(same) - 1; i >= 0 && len(found) < q.K; i-- {
			found = append(found, Match{Job: same[i].Job, Score: 1, Same: true})
		}
		return found
	}
	// 1. Which groups had a job that had ended, and how rare each component is in them.
	by := q.Job.Submit
	var asked []*view
	for key, v := range x.views {
		if key.embedder == embedder && (q.Shared || key.tenant == q.Job.Tenant) {
			asked = append(asked, v)
		}
	}
	weights := make([]float64, len(vector))
	for i := range weights {
		weights[i] = 1
	}
	if weighed {
		n, counts := 0, make([]int, len(vector))
		for _, v := range asked {
			n += len(v.groups)
			for d, c := range v.counts[:min(len(v.counts), len(counts))] {
				counts[d] += c
			}
			for _, g := range v.groups {
				if g.first.After(by) {
					n--
					counts = count(counts, g, -1)
				}
			}
		}
		for i := range weights {
			weights[i] = 1 + math.Log(float64(n+1)/float64(counts[i]+1))
		}
	}

	// 2. Those that are like the query.
	type scored struct {
		jobs  []*entry
		score float64
	}
	query := newQueryVector(vector, weights)
	var kept []scored
	for _, v := range asked {
		for _, g := range v.groups {
			if g.first.After(by) {
				continue
			}
			if score := query.cosine(&g.vec); score >= q.Threshold {
				kept = append(kept, scored{ended(g.jobs, q.Job.Submit), score})
			}
		}
	}
	slices.SortFunc(kept, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), byEnd(b.jobs[len(b.jobs)-1], a.jobs[len(a.jobs)-1]))
	})
	var found []Match
	for _, s := range kept {
		for i := len(s.jobs) - 1; i >= 0 && len(found) < q.K; i-- {
			found = append(found, Match{Job: s.jobs[i].Job, Score: s.score})
		}
	}
	return found
}
