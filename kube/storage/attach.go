package storage

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// How many volumes a node can attach. The limits of CSI drivers are named amounts of
// nodes, of which a pod takes one for each of its claims. The volumes of a driver that
// no node limits are not counted at all.

// unlimited is more volumes than the pods of a node have.
const unlimited = 1 << 20

// attachments is the name of the amount of a driver's volumes.
func attachments(driver string) string { return v1.ResourceAttachableVolumesPrefix + "csi-" + driver }

// ObserveLimits records how many volumes a node can attach now.
func (x *Index) ObserveLimits(l *Limits) Change {
	return x.setLimits(map[string]map[string]int64{l.Name: l.drivers})
}

// ForgetLimits records that nothing limits any longer what a node can attach.
func (x *Index) ForgetLimits(l *Limits) Change {
	return x.setLimits(map[string]map[string]int64{l.Name: nil})
}

// ReplaceLimits records the limits of all nodes that there are.
func (x *Index) ReplaceLimits(list []*Limits) Change {
	now := map[string]map[string]int64{}
	for node := range x.limits {
		now[node] = nil
	}
	for _, l := range list {
		now[l.Name] = l.drivers
	}
	return x.setLimits(now)
}

// setLimits records the limits of some nodes, by driver.
func (x *Index) setLimits(now map[string]map[string]int64) Change {
	var c Change
	for _, node := range slices.Sorted(maps.Keys(now)) {
		old, limits := x.limits[node], now[node]
		if maps.Equal(old, limits) {
			continue
		}
		c.Nodes = append(c.Nodes, node)
		for d := range limits {
			x.limited[d]++
			c.Drivers = c.Drivers || x.limited[d] == 1
		}
		for d := range old {
			if x.limited[d]--; x.limited[d] == 0 {
				delete(x.limited, d)
				c.Drivers = true
			}
		}
		if x.limits[node] = limits; limits == nil {
			delete(x.limits, node)
		}
	}
	if c.Drivers {
		c.Pods = x.reviewAll().Pods
	}
	return c
}

// Attachable returns how many volumes a node can attach, of each driver that some node
// limits, sorted by name.
func (x *Index) Attachable(node string) []core.Amount {
	var out []core.Amount
	for _, d := range slices.Sorted(maps.Keys(x.limited)) {
		a := core.Amount{Name: attachments(d), Value: unlimited}
		if limit, ok := x.limits[node][d]; ok {
			a.Value = limit
		}
		out = append(out, a)
	}
	return out
}

// attached returns how many volumes a pod takes, of each driver that some node limits,
// sorted by name.
func (x *Index) attached(p *Pod) []core.Amount {
	if len(x.limited) == 0 {
		return nil
	}
	var out []core.Amount
	for _, k := range keys(p) {
		if d := x.driverOf(x.claims[k]); x.limited[d] > 0 {
			out = translate.AddOthers(out, []core.Amount{{Name: attachments(d), Value: 1}}, 1)
		}
	}
	return out
}

// driverOf returns the CSI driver of a claim's volume, or that is to make it; it is
// empty when there is none or it is not known.
func (x *Index) driverOf(c *Claim) string {
	if c == nil {
		return ""
	}
	if v := x.volumes[c.volume]; v != nil {
		return v.driver
	}
	if class := x.classes[c.class]; class != nil {
		return class.provisioner
	}
	return ""
}
