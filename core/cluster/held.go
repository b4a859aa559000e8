package cluster

import (
	"fmt"
	"slices"
)

// many is the number of pods on a node above which a map finds a pod. Among fewer a scan
// is faster.
const many = 256

// crowd finds the pods of a node that has many.
//
// Invariant: places has the place in Node.pods of every pod on the node. The others in
// Node.pods are gaps: pods that went. As long as the journal holds changes, no pod that
// is there changes its place, so that what went can come back to its own.
type crowd struct {
	places map[Owner]int32
	gaps   int
}

// noJob marks a gap in Node.pods.
const noJob = -1

// Pods yields the pods on the node, in the order in which they came. They are for reading.
func (n *Node) Pods(yield func(*Held) bool) {
	for i := range n.pods {
		if h := &n.pods[i]; h.Owner.Job != noJob && !yield(h) {
			return
		}
	}
}

// Count returns how many pods are on the node.
func (n *Node) Count() int {
	if n.crowd == nil {
		return len(n.pods)
	}
	return len(n.pods) - n.crowd.gaps
}

// add adds a pod after all others and returns its place.
func (n *Node) add(h Held) int32 {
	at := int32(len(n.pods))
	n.pods = append(n.pods, h)
	if n.crowd != nil {
		n.crowd.places[h.Owner] = at
	}
	return at
}

// takeBack takes back the last add that is not taken back yet.
func (n *Node) takeBack() {
	last := len(n.pods) - 1
	if n.crowd != nil {
		delete(n.crowd.places, n.pods[last].Owner)
	}
	n.pods = n.pods[:last]
}

// remove takes a pod out and returns it, and the place from which putBack puts it back.
// O(pods on the node), but O(1) in a crowd.
func (n *Node) remove(o Owner) (Held, int32) {
	at, known := n.find(o)
	if !known {
		panic(fmt.Sprintf("cluster: pod %v is not on node %s", o, n.Spec.Name))
	}
	h := n.pods[at]
	if n.crowd == nil {
		n.pods = slices.Delete(n.pods, int(at), int(at)+1)
		return h, at
	}
	n.pods[at].Owner.Job = noJob
	delete(n.crowd.places, o)
	n.crowd.gaps++
	return h, at
}

func (n *Node) find(o Owner) (at int32, known bool) {
	if n.crowd != nil {
		at, known = n.crowd.places[o]
		return at, known
	}
	for i := range n.pods {
		if n.pods[i].Owner == o {
			return int32(i), true
		}
	}
	return -1, false
}

// putBack takes a remove back, when all changes after it are taken back.
func (n *Node) putBack(h Held, at int32) {
	if n.crowd == nil {
		n.pods = slices.Insert(n.pods, int(at), h)
		return
	}
	n.pods[at] = h
	n.crowd.places[h.Owner] = at
	n.crowd.gaps--
}

// settle begins or ends a crowd, and closes its gaps once they are half of it: each
// remove pays for one pod that moves up. The journal does not hold changes of the node.
func (n *Node) settle(many int) {
	c := n.crowd
	switch {
	case c == nil && len(n.pods) <= many, c != nil && 2*c.gaps < len(n.pods):
		return
	case c != nil:
		n.pods = slices.DeleteFunc(n.pods, func(h Held) bool { return h.Owner.Job == noJob })
	}
	if n.crowd = nil; 2*len(n.pods) <= many {
		return
	}
	n.crowd = &crowd{places: make(map[Owner]int32, len(n.pods))}
	for i := range n.pods {
		n.crowd.places[n.pods[i].Owner] = int32(i)
	}
}
