package tables

import (
	"hash/fnv"
	"iter"
)

// Groups are divided by a hash of their jobs' names, so that a part of them can be looked at without a look at all.

// buckets is a power of two.
const buckets = 64

type bucket struct {
	groups map[*Group]struct{}
	most   int
}

// AddGroup adds a new group.
func (t *Tables) AddGroup(g *Group) {
	t.Groups[g.ID] = g
	b := &t.buckets[PartOf(g.Job, buckets)]
	if b.groups == nil {
		b.groups = map[*Group]struct{}{}
	}
	b.groups[g] = struct{}{}
}

// Part yields the groups of one of so many parts, a power of two, in any order. It costs a look at these, or, of more than 64 parts, at a 64th of all.
func (t *Tables) Part(part, parts int) iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		for b := part % buckets; b < buckets; b += parts {
			for g := range t.buckets[b].groups {
				if (parts <= buckets || PartOf(g.Job, parts) == part) && !yield(g) {
					return
				}
			}
		}
	}
}

// PartOf is which of so many parts, a power of two, a job is in.
func PartOf(job string, parts int) int {
	h := fnv.New32a()
	h.Write([]byte(job))
	return int(h.Sum32() % uint32(parts))
}
