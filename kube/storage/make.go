package storage

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
)

// Volumes that are made for the node of their first pod:
//
//  1. [Index.Make] records that a node was chosen for a pod, and returns the claims into
//     which that node is to be written.
//  2. The volumes are made, or a provisioner removes the node from a claim because it can
//     make none there. [Index.Progress] reports which.
//  3. [Index.GiveUp] ends the wait, and returns the claims from which the node is to be
//     removed.

// making is a pod that waits on its node for volumes.
type making struct {
	node     string
	claims   []types.NamespacedName
	deadline core.Time
	// shown is set if the API has shown the node in all of the claims.
	shown bool
}

// Choice is a node to write into a claim, for which to create its volume; an empty Node
// removes it.
type Choice struct {
	Claim types.NamespacedName
	UID   types.UID // of the claim
	Node  string
	Pod   types.UID // for which it is made; empty with no node
}

// Make begins to make the unbound volumes of a pod for the node that was chosen for it.
func (x *Index) Make(pod types.UID, node string, deadline core.Time) []Choice {
	asked := map[types.NamespacedName]bool{} // claims for which another pod made the choice
	for _, m := range x.making {
		for _, k := range m.claims {
			asked[k] = true
		}
	}
	m := &making{node: node, claims: x.Needs(pod).Unbound, deadline: deadline}
	x.making[pod] = m
	var out []Choice
	for _, k := range m.claims {
		if c := x.claims[k]; !asked[k] && c.selected != node {
			out = append(out, Choice{k, c.UID, node, pod})
		}
	}
	return out
}

// Making lists the pods that wait for volumes to be made, in ascending order.
func (x *Index) Making() []types.UID { return slices.Sorted(maps.Keys(x.making)) }

// Deadline is when a pod that waits for volumes has waited for too long.
func (x *Index) Deadline(pod types.UID) core.Time { return x.making[pod].deadline }

// Progress reports whether all volumes of a pod in [Index.Making] are there, or says
// why they will not be. node is where it is to run, nil when it is gone. A pod that is
// done is not in the list any more.
func (x *Index) Progress(pod types.UID, now core.Time, node *core.Node) (done bool, failure string) {
	m := x.making[pod]
	shown := true
	done = true
	for _, k := range m.claims {
		c := x.claims[k]
		if c == nil || c.deleting {
			return false, fmt.Sprintf("volume claim %s no longer exists", k.Name)
		}
		done, shown = done && c.bound && x.volumes[c.volume] != nil, shown && (c.bound || c.selected != "")
	}
	switch {
	case done:
		if nodes := x.Needs(pod).Nodes; node == nil || !nodes.Allows(node.Labels) {
			return false, "a volume was created that the node cannot reach"
		}
		delete(x.making, pod)
	case m.shown && !shown:
		return false, "no volume can be created for the node"
	case now >= m.deadline:
		return false, "its volumes were not created in time"
	}
	m.shown = shown
	return done, ""
}

// GiveUp ends waiting for the volumes of a pod.
func (x *Index) GiveUp(pod types.UID) []Choice {
	m := x.making[pod]
	if m == nil {
		return nil
	}
	delete(x.making, pod)
	var out []Choice
	for _, k := range m.claims {
		if c := x.claims[k]; c != nil && !c.bound && c.selected == m.node {
			out = append(out, Choice{Claim: k, UID: c.UID})
		}
	}
	return out
}
