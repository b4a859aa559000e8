package hardware

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/agent/agentpb"
)

// place is where a PCI device is in the machine, as /sys says.
type place struct {
	pci      string
	numa     *int32
	root, sw string // the PCIe root, and the switch next to the device
}

// placeOf follows a link of /sys to the folder of a PCI device; false if there is none.
func placeOf(link string) (place, bool) {
	dir, err := filepath.EvalSymlinks(link)
	if err != nil {
		return place{}, false
	}
	p := place{pci: filepath.Base(dir)}
	if text, err := os.ReadFile(filepath.Join(dir, "numa_node")); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32); err == nil && n >= 0 { // -1: unknown
			numa := int32(n)
			p.numa = &numa
		}
	}
	// …/devices/pci0000:5a/0000:5a:01.0/0000:5b:00.0/0000:5c:00.0/0000:5e:00.0: the root, its port, the switch's
	// upstream port, its downstream port, the device.
	steps := strings.Split(filepath.ToSlash(dir), "/")
	for i, step := range steps {
		if strings.HasPrefix(step, "pci") && strings.Contains(step, ":") {
			p.root = step
			if len(steps)-i >= 5 {
				p.sw = steps[len(steps)-3]
			}
			break
		}
	}
	return p, true
}

// locate says where the GPUs are, and the RDMA devices, and which of these is nearest to each GPU. root is that of the
// file system, with sys in it.
func locate(root string, gpus []*agentpb.GPU) []*agentpb.NIC {
	for _, g := range gpus {
		if p, ok := placeOf(filepath.Join(root, "sys/bus/pci/devices", g.Pci)); ok && g.Pci != "" { // else what was known of it stays
			g.Numa, g.PcieRoot, g.PcieSwitch = p.numa, p.root, p.sw
		}
	}
	var nics []*agentpb.NIC
	names, _ := filepath.Glob(filepath.Join(root, "sys/class/infiniband/*"))
	for _, name := range names {
		if p, ok := placeOf(filepath.Join(name, "device")); ok {
			nics = append(nics, &agentpb.NIC{Name: filepath.Base(name), Pci: p.pci, Numa: p.numa, PcieRoot: p.root, PcieSwitch: p.sw})
		}
	}
	slices.SortFunc(nics, func(a, b *agentpb.NIC) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	pair(gpus, nics)
	islands(gpus)
	return nics
}

// pair finds the nearest NIC of each GPU: on its PCIe switch, else on its root, else at its NUMA node. Of those that are
// equally near, the one that fewest GPUs have.
func pair(gpus []*agentpb.GPU, nics []*agentpb.NIC) {
	used := make([]int, len(nics))
	for _, g := range gpus {
		best, at := 0, -1
		for i, n := range nics {
			near := 0
			switch {
			case g.PcieSwitch != "" && g.PcieSwitch == n.PcieSwitch:
				near = 3
			case g.PcieRoot != "" && g.PcieRoot == n.PcieRoot:
				near = 2
			case g.Numa != nil && n.Numa != nil && *g.Numa == *n.Numa:
				near = 1
			}
			if near > best || near > 0 && near == best && used[i] < used[at] {
				best, at = near, i
			}
		}
		g.Nic = nil
		if at >= 0 {
			used[at]++
			nic := int32(at)
			g.Nic = &nic
		}
	}
}

// islands numbers the groups of GPUs that NVLink connects, directly or by switches. All switches of a node are one fabric.
func islands(gpus []*agentpb.GPU) {
	group := make([]int, len(gpus))
	for i := range group {
		group[i] = -1
	}
	join := func(a, b int) {
		for i, of := 0, group[a]; i < len(group); i++ {
			if group[i] == of {
				group[i] = group[b]
			}
		}
	}
	atSwitch := -1
	for i, g := range gpus {
		for _, l := range g.Links {
			if !l.Active {
				continue
			}
			if group[i] < 0 {
				group[i] = i
			}
			if l.To == "switch" {
				if atSwitch >= 0 {
					join(i, atSwitch)
				}
				atSwitch = i
			}
		}
	}
	for i, g := range gpus {
		for _, l := range g.Links {
			if j := slices.IndexFunc(gpus, func(o *agentpb.GPU) bool { return o.Pci != "" && o.Pci == l.Pci }); l.Active && l.To != "switch" && j >= 0 && group[j] >= 0 {
				join(i, j)
			}
		}
	}
	numbers := map[int]int32{}
	for i, g := range gpus {
		g.Island = nil
		if group[i] < 0 {
			continue
		}
		n, ok := numbers[group[i]]
		if !ok {
			n = int32(len(numbers))
			numbers[group[i]] = n
		}
		g.Island = &n
	}
}
