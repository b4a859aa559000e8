package selector

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/kube/translate"
)

// dev writes a device: its name, then attributes as k=v, where v is a whole
// number, true, false, or text.
func dev(name string, attributes ...string) resourceapi.Device {
	d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}
	for _, a := range attributes {
		k, v, _ := strings.Cut(a, "=")
		var n int64
		var value resourceapi.DeviceAttribute
		if _, err := fmt.Sscanf(v, "%d", &n); err == nil && fmt.Sprint(n) == v {
			value.IntValue = &n
		} else if v == "true" || v == "false" {
			value.BoolValue = ptr.To(v == "true")
		} else {
			value.StringValue = &v
		}
		d.Attributes[resourceapi.QualifiedName(k)] = value
	}
	return d
}

func TestSelector(t *testing.T) {
	d := translate.SliceOf(&resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{NodeName: ptr.To("n"), Driver: "gpu.nvidia.com", Devices: []resourceapi.Device{
		dev("gpu-0", "type=gpu", "index=3"),
	}}}).Devices[0]
	d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}
	for expression, want := range map[string]bool{
		`device.driver == "gpu.nvidia.com"`:                                                       true,
		`device.attributes["gpu.nvidia.com"].index == 3`:                                          true,
		`device.attributes["gpu.nvidia.com"].missing == 3`:                                        false,
		`device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) > 0`:                true,
		`device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("100Gi"))`:               false,
		`"other" in device.attributes && device.attributes["other"].exists(k, k.startsWith("x"))`: false,
	} {
		s, err := Compile([]string{`device.driver != ""`, expression})
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		if got := s.Holds(&d); got != want {
			t.Errorf("%s: %t; want %t", expression, got, want)
		}
	}
	if _, err := Compile([]string{"device.driver"}); err == nil || !strings.Contains(err.Error(), `selector "device.driver"`) {
		t.Errorf("a text as condition: %v", err)
	}
}

// Kept answers are those that evaluating gives, for devices that differ in
// whatever the conditions ask for.
func TestSelectorKeeps(t *testing.T) {
	var list []translate.Device
	for i := range 4 {
		d := dev(fmt.Sprint("gpu-", i), fmt.Sprint("index=", i), fmt.Sprintf("model=m%d", i%2), "own.example.com/x="+fmt.Sprint(i/2))
		if i == 3 {
			delete(d.Attributes, "model")
		}
		list = append(list, translate.SliceOf(&resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			NodeName: ptr.To("n"), Driver: "d.example.com", Devices: []resourceapi.Device{d},
		}}).Devices[0])
		list[i].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(fmt.Sprint(i%2+1, "Gi"))}}
	}
	const own = `device.attributes["d.example.com"]`
	for expression, known := range map[string]bool{
		`device.driver == "d.example.com"`:                                          true,
		own + `.model == "m1"`:                                                      true,
		own + `["model"] == "m0" || ` + own + `["index"] == 2`:                      true,
		`has(` + own + `.model) && device.attributes["own.example.com"].x == 0`:     true,
		`"model" in ` + own:                                                         true,
		`device.capacity["d.example.com"].memory.compareTo(quantity("1500Mi")) > 0`: true,
		own + `["in" + "dex"] == 1`:                                                 false,
		own + `.exists(k, k == "model")`:                                            false,
		`"d.example.com" in device.attributes`:                                      false,
		`cel.bind(a, ` + own + `, a.index == 3)`:                                    false,
		`[device][0].attributes["d.example.com"].index == 1`:                        false,
	} {
		s, err := Compile([]string{expression})
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		if s.known != known {
			t.Errorf("%s: what it asks for is known: %t; want %t", expression, s.known, known)
		}
		for range 2 {
			for i := range list {
				if got, want := s.Holds(&list[i]), s.evaluate(&list[i]); got != want {
					t.Errorf("%s of device %d: %t; want %t", expression, i, got, want)
				}
			}
		}
	}
}

// What evaluations cost is counted, and a condition that costs too much holds for no device.
func TestCost(t *testing.T) {
	d := translate.SliceOf(&resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{NodeName: ptr.To("n"), Driver: "gpu.nvidia.com", Devices: []resourceapi.Device{
		dev("gpu-0", "index=3"),
	}}}).Devices[0]
	list := "[" + strings.Repeat("1,", 99) + "1]"
	for expression, most := range map[string]int64{
		`device.attributes["gpu.nvidia.com"].index == 3`: 200,
		list + `.all(a, a > 0)`:                          2000,
		list + `.all(a, ` + list + `.all(b, a + b > 0))`: MaxCost + 2*evaluation,
	} {
		s, err := Compile([]string{expression})
		if err != nil {
			t.Fatal(err)
		}
		holds, cost := s.Holds(&d), s.Spent()
		if dear := s.Dear() != ""; dear != (most > MaxCost) || holds == dear || cost < most/4 || cost > most {
			t.Errorf("%.60s holds: %t, dear: %q, for %d units; expected at most %d", expression, holds, s.Dear(), cost, most)
		}
		if s.Holds(&d); s.Spent() > 2*lookup {
			t.Errorf("%.60s is evaluated twice", expression)
		}
	}
}
