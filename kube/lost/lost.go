// Package lost determines which nodes count as lost because they are not ready, and how
// fast their pods may be evicted, by the rules of Kubernetes' node lifecycle controller.
//
// [Index] observes nodes as they are now. [Index.Look] returns those that are lost, and
// [Index.Turn] says whether the pods of one may be evicted. It knows nothing about pods,
// and time is an argument.
package lost

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
)

// Config says when a node that is not ready counts as lost, and how fast pods are
// evicted. With the zero value, no node is ever lost.
type Config struct {
	// After is how long this instance must have seen the node not ready without a
	// break; 0 for ever. What the API says of the time before does not count: the
	// clock that wrote it may be wrong, and an instance that has just started
	// cannot know what it missed.
	After time.Duration
	// Rate is the number of nodes of a zone that may be emptied per second. While at
	// least the share Unhealthy of the zone's nodes, and more than two, are not ready,
	// Secondary applies instead, and zones of at most Large nodes are not emptied at all.
	Rate, Secondary, Unhealthy float64
	Large                      int
}

// Default has the defaults of kube-controller-manager.
func Default() Config {
	return Config{After: 5 * time.Minute, Rate: 0.1, Secondary: 0.01, Unhealthy: 0.55, Large: 50}
}

// Check returns an error that names the flag of an invalid value.
func (c *Config) Check() error {
	switch {
	case !(c.Rate >= 0):
		return fmt.Errorf("node-eviction-rate: expected a number of nodes per second of at least 0; found %v", c.Rate)
	case !(c.Secondary >= 0):
		return fmt.Errorf("secondary-node-eviction-rate: expected a number of nodes per second of at least 0; found %v", c.Secondary)
	case !(c.Unhealthy > 0 && c.Unhealthy <= 1):
		return fmt.Errorf("unhealthy-zone-threshold: expected a share above 0 and at most 1; found %v", c.Unhealthy)
	case c.Large < 0:
		return fmt.Errorf("large-cluster-size-threshold: expected a number of nodes of at least 0; found %d", c.Large)
	}
	return nil
}

// Node is what the index knows about a node.
type Node struct {
	Name string
	// Zone groups the nodes that are likely to be lost together. Apart is set if the
	// state of this node says nothing about the others.
	Zone  string
	Apart bool
	Ready bool
}

// Index knows which nodes are ready. It is not safe for concurrent use.
type Index struct {
	Config Config // set before the first observation

	nodes map[string]*node
	zones map[string]*zone
	// unready has the nodes that are not ready and whose pods were not evicted.
	unready map[string]*node
	outage  bool // no node was ready at the last look
}

type node struct {
	Node
	since core.Time // when it was seen not ready first, of those that are not
	lost  bool
}

// zone counts the nodes of a zone, without those apart.
type zone struct {
	nodes, down int
	// emptied is when the pods of a node of it were evicted last, if any were.
	emptied core.Time
	any     bool
}

// New returns an index without nodes.
func New() *Index {
	return &Index{nodes: map[string]*node{}, zones: map[string]*zone{}, unready: map[string]*node{}}
}

// Observe records the present state of a node.
func (x *Index) Observe(now core.Time, as Node) {
	n := x.nodes[as.Name]
	if n == nil {
		n = &node{Node: Node{Ready: true, Apart: true}}
		x.nodes[as.Name] = n
	}
	x.count(&n.Node, -1)
	if n.Ready && !as.Ready {
		n.since = now
	}
	if n.Node = as; n.Ready {
		n.lost = false
		delete(x.unready, n.Name)
	} else {
		x.unready[n.Name] = n
	}
	x.count(&n.Node, 1)
}

// Forget records that a node was deleted.
func (x *Index) Forget(name string) {
	if n := x.nodes[name]; n != nil {
		x.count(&n.Node, -1)
		delete(x.nodes, name)
		delete(x.unready, name)
	}
}

// count counts a node in its zone, by times.
func (x *Index) count(n *Node, by int) {
	if n.Apart {
		return
	}
	z := x.zones[n.Zone]
	if z == nil {
		z = &zone{}
		x.zones[n.Zone] = z
	}
	if z.nodes += by; !n.Ready {
		z.down += by
	}
	if z.nodes == 0 {
		delete(x.zones, n.Zone)
	}
}

// Lost reports whether a node counts as lost.
func (x *Index) Lost(name string) bool { return x.nodes[name] != nil && x.nodes[name].lost }

// Again makes the nodes due again that are not ready and whose pods were evicted: there
// may be more pods to evict.
func (x *Index) Again() {
	for name, n := range x.nodes {
		if !n.Ready {
			x.unready[name] = n
		}
	}
}

// Look is what the index finds at a moment.
type Look struct {
	// Changed is set if Outage differs from the last look. Outage is set while no node at
	// all is ready: then the connection to the nodes is lost, not the nodes, and no node
	// counts as lost. When one node is ready again, the others get the same time to come
	// back as if they had failed then.
	Changed, Outage bool
	// Due are the lost nodes whose pods were not evicted, the longest lost first; New are
	// those of them that were not lost at the last look.
	Due, New []string
	// Wake is when more may be lost, [core.Never] for no time.
	Wake core.Time
}

// Look finds the nodes that are lost now.
func (x *Index) Look(now core.Time) Look {
	look := Look{Wake: core.Never}
	if x.Config.After <= 0 {
		return look
	}
	look.Outage = x.dark()
	if look.Changed = look.Outage != x.outage; look.Changed {
		x.outage = look.Outage
		for _, n := range x.nodes {
			n.since, n.lost = now, false
		}
	}
	if look.Outage {
		return look
	}
	var due []*node
	for _, n := range x.unready {
		if at := n.since + core.Time(x.Config.After); now < at {
			look.Wake = min(look.Wake, at)
			continue
		}
		due = append(due, n)
	}
	slices.SortFunc(due, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.Name, b.Name))
	})
	for _, n := range due {
		if look.Due = append(look.Due, n.Name); !n.lost {
			n.lost = true
			look.New = append(look.New, n.Name)
		}
	}
	return look
}

// dark reports whether no node at all is ready.
func (x *Index) dark() bool {
	nodes, down := 0, 0
	for _, z := range x.zones {
		nodes, down = nodes+z.nodes, down+z.down
	}
	return down > 0 && down == nodes
}

// Turn reports whether the pods of a lost node may be evicted now, as fast as the state of
// its zone allows, or when that may be so: [core.Never] until other nodes of the zone are
// ready.
func (x *Index) Turn(name string, now core.Time) (ok bool, at core.Time) {
	z := x.zones[x.nodes[name].Zone]
	if z == nil {
		return true, now
	}
	pause, never := x.Config.pause(z)
	if never {
		return false, core.Never
	}
	if next := z.emptied + pause; z.any && now < next {
		return false, next
	}
	z.emptied, z.any = now, true
	return true, now
}

// Emptied records that the pods of a lost node were evicted: it is no longer due.
func (x *Index) Emptied(name string) { delete(x.unready, name) }

// pause is how long after one node of the zone the next may be emptied; never
// says that none may.
func (c *Config) pause(z *zone) (pause core.Time, never bool) {
	rate := c.Rate
	if z.down > 2 && z.down < z.nodes && float64(z.down) >= c.Unhealthy*float64(z.nodes) {
		rate = c.Secondary
		if z.nodes <= c.Large {
			rate = 0
		}
	}
	if rate <= 0 {
		return 0, true
	}
	return core.Time(float64(core.Second) / rate), false
}
