package kube

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// How many volumes a node can attach. The limits of CSI drivers are named amounts of
// nodes, of which a pod takes one for each of its claims. Drivers that no node limits
// are not counted at all.

// csiNodeObject is what the scheduler needs of a CSINode.
type csiNodeObject struct {
	metav1.ObjectMeta
	limits map[string]int64 // volumes, by driver; without those that have no limit
}

func trimCSINode(n *storagev1.CSINode) *csiNodeObject {
	o := &csiNodeObject{ObjectMeta: trimMeta(&n.ObjectMeta)}
	for i := range n.Spec.Drivers {
		if d := &n.Spec.Drivers[i]; d.Allocatable != nil && d.Allocatable.Count != nil {
			if o.limits == nil {
				o.limits = map[string]int64{}
			}
			o.limits[d.Name] = int64(*d.Allocatable.Count)
		}
	}
	return o
}

// unlimited is more volumes than the pods of a node have.
const unlimited = 1 << 20

// attachments is the name of the amount of a driver's volumes.
func attachments(driver string) string { return v1.ResourceAttachableVolumesPrefix + "csi-" + driver }

// csiNodeSeen takes in how many volumes a node can attach now.
func (m *mirror) csiNodeSeen(o *csiNodeObject) { m.setLimits(o.Name, o.limits) }

func (m *mirror) csiNodeGone(o *csiNodeObject) { m.setLimits(o.Name, nil) }

func (m *mirror) csiNodesListed(list []*csiNodeObject) {
	compare(m, m.storage.limits, list, nameOf, m.csiNodeSeen, func(name string) { m.setLimits(name, nil) })
}

func (m *mirror) setLimits(name string, limits map[string]int64) {
	old := m.storage.limits[name]
	if maps.Equal(old, limits) {
		return
	}
	changed := false
	count := func(drivers map[string]int64, by int) {
		for d := range drivers {
			was := m.storage.limited[d]
			if m.storage.limited[d] = was + by; was+by == 0 {
				delete(m.storage.limited, d)
			}
			changed = changed || was == 0 || was+by == 0
		}
	}
	count(limits, 1)
	count(old, -1)
	if m.storage.limits[name] = limits; limits == nil {
		delete(m.storage.limits, name)
	}
	if n := m.nodes[name]; n != nil {
		m.dirtyNodes[name] = n
	}
	if changed { // what runs takes amounts that it did not take before, or no longer
		m.weighAll()
		m.outdated = true
	}
}

// attachable is how many volumes a node can attach, of each driver that some node
// limits.
func (m *mirror) attachable(node string) []core.Amount {
	var out []core.Amount
	for d := range m.storage.limited {
		a := core.Amount{Name: attachments(d), Value: unlimited}
		if limit, ok := m.storage.limits[node][d]; ok {
			a.Value = limit
		}
		out = append(out, a)
	}
	return out
}

// attached is how many volumes a pod takes, of each driver that some node limits, by
// name.
func (m *mirror) attached(p *pod) []core.Amount {
	if len(m.storage.limited) == 0 {
		return nil
	}
	var out []core.Amount
	for _, c := range p.object.claims {
		if d := m.driverOf(m.storage.claims[key(p.object.Namespace, c.Name)]); m.storage.limited[d] > 0 {
			out = translate.AddOthers(out, []core.Amount{{Name: attachments(d), Value: 1}}, 1)
		}
	}
	return out
}

// driverOf is the CSI driver of a claim's volume, or that will make it; empty when it
// has none or is not known.
func (m *mirror) driverOf(c *claimObject) string {
	if c == nil {
		return ""
	}
	if v := m.storage.volumes[c.volume]; v != nil {
		return v.driver
	}
	if class := m.storage.classes[c.class]; class != nil {
		return class.provisioner
	}
	return ""
}

// recount counts anew what a pod of another scheduler takes of its node, if it has
// other volumes now.
func (m *mirror) recount(p *pod, v volumes) {
	if !p.counted || slices.Equal(v.attached, p.volumes.attached) {
		p.volumes = v
		return
	}
	m.uncount(p)
	p.volumes = v
	m.countOn(p)
}
