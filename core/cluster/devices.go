package cluster

import (
	"strconv"
	"strings"
)

// MostPosition is the highest number of a NIC, an island, a PCIe switch or a NUMA node that
// [ParseDevices] accepts.
const MostPosition = 63

// ParseDevices parses the positions of a node's GPUs, separated by |: of each
// island/pcie/numa/nic, the numbers of its NVLink island, its PCIe switch, its NUMA node and the
// nearest NIC, 0 to 63, - for none; or island/numa/nic if no PCIe switch is known. It returns
// false for any other text.
func ParseDevices(text string) ([]DeviceSpec, bool) {
	var all []DeviceSpec
	for one := range strings.SplitSeq(text, "|") {
		d := DeviceSpec{-1, -1, -1, -1}
		at := []*int8{&d.Island, &d.PCIe, &d.NUMA, &d.NIC}
		fields := strings.Split(one, "/")
		switch len(fields) {
		case 3:
			at = []*int8{&d.Island, &d.NUMA, &d.NIC}
		case 4:
		default:
			return nil, false
		}
		for i, field := range fields {
			if field == "-" {
				continue
			}
			v, err := strconv.ParseUint(field, 10, 8)
			if err != nil || v > MostPosition {
				return nil, false
			}
			*at[i] = int8(v)
		}
		all = append(all, d)
	}
	return all, true
}

// AppendDevices appends positions to b as [ParseDevices] parses them, of three numbers each if no
// PCIe switch is known.
func AppendDevices(b []byte, devices []DeviceSpec) []byte {
	switches := false
	for _, d := range devices {
		switches = switches || d.PCIe >= 0
	}
	for i, d := range devices {
		if i > 0 {
			b = append(b, '|')
		}
		b = append(appendPosition(b, d.Island), '/')
		if switches {
			b = append(appendPosition(b, d.PCIe), '/')
		}
		b = append(appendPosition(b, d.NUMA), '/')
		b = appendPosition(b, d.NIC)
	}
	return b
}

func appendPosition(b []byte, v int8) []byte {
	if v < 0 {
		return append(b, '-')
	}
	return strconv.AppendInt(b, int64(v), 10)
}
