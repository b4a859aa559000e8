package cluster

import "slices"

// What SpotGPU's ranking of nodes looks at beside room (ASI, §4.2): which pods are LP, and how
// often LP pods were evicted from a node.

// SetSpot says whether the pods of a job are LP. The job has none on nodes.
func (s *State) SetSpot(job int32, spot bool) {
	if int(job) >= len(s.spot) {
		s.spot = append(s.spot, make([]bool, int(job)+1-len(s.spot))...)
	}
	s.spot[job] = spot
}

// HostsHP reports whether the node hosts a pod of an HP job that takes GPUs. O(pods of the node).
func (s *State) HostsHP(n *Node) bool {
	for h := range n.Pods {
		if h.Alloc.GPUs != 0 && !(int(h.Owner.Job) < len(s.spot) && s.spot[h.Owner.Job]) {
			return true
		}
	}
	return false
}

// CountEvictions counts more LP pods that were evicted from a node; none if more is negative. The
// count stays when the node is lost and comes back, since what made room there is likely to come
// again. It is not part of the journal. The caller then removes the pod, or has just added the node,
// so that rankings notice.
func (s *State) CountEvictions(id NodeID, more int) {
	if more <= 0 {
		return
	}
	if int(id) >= len(s.evictions) {
		s.evictions = append(s.evictions, slices.Repeat([]int32{0}, int(id)+1-len(s.evictions))...)
	}
	s.evictions[id] += int32(more)
}

// Evictions returns how many LP pods were evicted from a node.
func (s *State) Evictions(id NodeID) int {
	if int(id) >= len(s.evictions) {
		return 0
	}
	return int(s.evictions[id])
}

// EvictionsFrom is [State.Evictions] of a node in a pool.
func (s *State) EvictionsFrom(n *Node) int {
	return s.Evictions(s.pools[n.pool].nodes[n.member])
}
