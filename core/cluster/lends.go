package cluster

import "math/bits"

// Which jobs are expected to lend their devices at times, so that their pods can be placed together.

// SetLends says whether the pods of a job are expected to lend their devices. The job has none on nodes.
func (s *State) SetLends(job int32, lends bool) {
	if !lends && int(job) >= len(s.lends) {
		return
	}
	if int(job) >= len(s.lends) {
		s.lends = append(s.lends, make([]bool, int(job)+1-len(s.lends))...)
	}
	s.lends[job] = lends
}

// AnyLends reports whether there was a job that is expected to lend its devices.
func (s *State) AnyLends() bool { return len(s.lends) > 0 }

// HPDevices returns on how many devices of a node there are pods of HP jobs that are expected to lend them, and of other HP
// jobs. O(pods of the node).
func (s *State) HPDevices(n *Node) (lend, others int) {
	for h := range n.Pods {
		job := int(h.Owner.Job)
		switch {
		case job < len(s.lends) && s.lends[job]:
			lend += bits.OnesCount64(h.Alloc.GPUs)
		case !(job < len(s.spot) && s.spot[job]):
			others += bits.OnesCount64(h.Alloc.GPUs)
		}
	}
	return lend, others
}
