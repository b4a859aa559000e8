package translate

import (
	"github.com/muster-sched/muster/api/v1alpha1"
)

// Levels returns the levels of a Topology, widest first. A level goes by its
// alias where it has one that is no other level's label.
func Levels(s *v1alpha1.TopologySpec) []Level {
	labels := map[string]bool{}
	for _, l := range s.Levels {
		labels[l.NodeLabel] = true
	}
	var out []Level
	for _, l := range s.Levels {
		name := l.NodeLabel
		if l.Alias != "" && !labels[l.Alias] {
			name = l.Alias
		}
		if l.NodeLabel != v1alpha1.HostnameLabel {
			out = append(out, Level{Name: name, Label: l.NodeLabel})
		}
	}
	return out
}

// LevelFamilies are the node labels by which clouds and tools say where in the
// network a node is, each family widest first. Earlier families say more.
//
// Topograph's tiers count from the node outwards; AWS counts its layers from the
// spine inwards.
var LevelFamilies = [...][]Level{
	{
		{"tier-4", "fabric.topograph.run/tier-4"}, {"tier-3", "fabric.topograph.run/tier-3"}, {"tier-2", "fabric.topograph.run/tier-2"},
		{"tier-1", "fabric.topograph.run/tier-1"}, {"tier-0", "fabric.topograph.run/tier-0"},
	},
	{{"core", "network.topology.nvidia.com/core"}, {"spine", "network.topology.nvidia.com/spine"}, {"leaf", "network.topology.nvidia.com/leaf"}},
	{{"datacenter", "network.topology.nvidia.com/datacenter"}, {"block", "network.topology.nvidia.com/block"}},
	{
		{"layer-1", "topology.k8s.aws/network-node-layer-1"}, {"layer-2", "topology.k8s.aws/network-node-layer-2"},
		{"layer-3", "topology.k8s.aws/network-node-layer-3"},
	},
	{{"block", "cloud.google.com/gce-topology-block"}, {"subblock", "cloud.google.com/gce-topology-subblock"}},
	{{"block", "oci.oraclecloud.com/host.network_block_id"}, {"rack", "oci.oraclecloud.com/host.rack_id"}},
	{{"block", "cloud.provider.com/topology-block"}, {"rack", "cloud.provider.com/topology-rack"}},
	{{"zone", "topology.kubernetes.io/zone"}},
}

// FamilyLabels says which of the labels of all [LevelFamilies], counted through
// in their order, are in labels: a bit each.
func FamilyLabels(labels map[string]string) uint64 {
	set, i := uint64(0), 0
	for _, f := range LevelFamilies {
		for _, l := range f {
			if labels[l.Label] != "" {
				set |= 1 << i
			}
			i++
		}
	}
	return set
}
