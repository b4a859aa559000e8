package health

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestOf(t *testing.T) {
	is := func(of v1.NodeConditionType, status v1.ConditionStatus, message string) v1.NodeCondition {
		return v1.NodeCondition{Type: of, Status: status, Message: message}
	}
	for name, c := range map[string]struct {
		conditions []v1.NodeCondition
		want       Fault
	}{
		"nothing":        {nil, Fault{}},
		"not about GPUs": {[]v1.NodeCondition{is("KernelDeadlock", "True", "x"), is("Ready", "False", "y")}, Fault{}},
		"all is well": {[]v1.NodeCondition{is("GPUMissing", "False", "no"), is("GpuMemWatch", "False", "GPU:0 is well"), is("AcceleratedHardwareReady", "True", "")},
			Fault{}},
		"unknown":  {[]v1.NodeCondition{is("XIDErrors", "Unknown", ""), is("AcceleratedHardwareReady", "Unknown", "")}, Fault{}},
		"one":      {[]v1.NodeCondition{is("XIDErrors", "True", "Xid 79")}, Fault{Why: "XIDErrors: Xid 79"}},
		"inverted": {[]v1.NodeCondition{is("AcceleratedHardwareReady", "False", "")}, Fault{Why: "AcceleratedHardwareReady"}},
		"numbers": {[]v1.NodeCondition{is("GpuMemWatch", "True", "ErrorCode:DCGM_FR_X GPU:0 PCI:0000:1b GPU:3 Recommended Action=RESTART"), is("GpuXidError", "True", "GPU:5")},
			Fault{"GpuMemWatch: ErrorCode:DCGM_FR_X GPU:0 PCI:0000:1b GPU:3 Recommended Action=RESTART; GpuXidError: GPU:5", 1<<0 | 1<<3 | 1<<5}},
		"one names none": {[]v1.NodeCondition{is("GpuMemWatch", "True", "GPU:0"), is("GPUMissing", "True", "7 of 8")}, Fault{Why: "GpuMemWatch: GPU:0; GPUMissing: 7 of 8"}},
		"no number":      {[]v1.NodeCondition{is("GpuNvlinkWatch", "True", "GPU:99")}, Fault{Why: "GpuNvlinkWatch: GPU:99"}},
	} {
		if got := Of(&v1.Node{Status: v1.NodeStatus{Conditions: c.conditions}}); got != c.want {
			t.Errorf("%s: %+v, expected %+v", name, got, c.want)
		}
	}
}
