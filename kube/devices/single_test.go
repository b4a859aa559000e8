package devices

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

const (
	index = `device.attributes["gpu.nvidia.com"].index`
	root  = `device.attributes["resource.kubernetes.io"].pcieRoot`
)

func named(name string, r resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	r.Name = name
	return r
}

// first asks for the first of some selectors that a node has.
func first(count int64, of ...string) resourceapi.DeviceRequest {
	r := resourceapi.DeviceRequest{Name: "first"}
	for i, s := range of {
		r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{Name: fmt.Sprint(i), DeviceClassName: "gpu", Count: count, Selectors: cel(s)})
	}
	return r
}

// Selectors that hold for single devices of a node are sets of its GPUs, among which the engine picks; of what it picked, each
// request gets devices that it accepts.
func TestSingleDevices(t *testing.T) {
	for _, c := range []struct {
		name     string
		requests []resourceapi.DeviceRequest
		gpus     int
		sets     string // how many of which GPUs, in the order of the names of the sets
		picked   uint64
		granted  string
	}{
		{"one", []resourceapi.DeviceRequest{asks("gpu", 1, index+" == 2")}, 1, "1 of 0100", 0b0100, "xgpu:gpu2"},
		{"overlapping", []resourceapi.DeviceRequest{named("a", asks("gpu", 2, index+" < 3")), named("b", asks("gpu", 1, index+" == 1"))}, 3, "1 of 0010, 2 of 0111", 0b0111, "a:gpu0 a:gpu2 b:gpu1"},
		{"the same", []resourceapi.DeviceRequest{named("a", asks("gpu", 1, index+" > 1")), named("b", asks("gpu", 1, index+" > 1"))}, 2, "2 of 1100", 0b1100, "a:gpu2 b:gpu3"},
		{"beside any", []resourceapi.DeviceRequest{named("a", asks("gpu", 1)), named("b", asks("gpu", 1, index+" == 0"))}, 2, "1 of 0001", 0b0101, "a:gpu2 b:gpu0"},
		{"all", []resourceapi.DeviceRequest{asks("gpu", 0, index+" >= 2")}, 2, "2 of 1100", 0b1100, "xgpu:gpu2 xgpu:gpu3"},
		{"the first", []resourceapi.DeviceRequest{first(1, index+" == 3", index+" == 0")}, 1, "1 of 1001", 0b1000, "first/0:gpu3"},
		{"the second", []resourceapi.DeviceRequest{first(1, index+" == 3", index+" == 0")}, 1, "1 of 1001", 0b0001, "first/1:gpu0"},
		{"a network device", []resourceapi.DeviceRequest{asks("gpu", 2), asks("nic", 1, root+` == "root1"`)}, 2, "1 of 0010", 0b0011, "xgpu:gpu0 xgpu:gpu1 xnic:dra1"},
		{"both", []resourceapi.DeviceRequest{asks("gpu", 2, index+" < 3"), asks("nic", 1, root+` == "root1"`)}, 2, "1 of 0010, 1 of 0111", 0b0110, "xgpu:gpu1 xgpu:gpu2 xnic:dra1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
			w.ObserveSlice(slice("a", "dra.net", 4))
			p := w.pod("p", "c")
			w.claim("c", c.requests)
			n := w.takes(p, c.gpus)
			node := core.Node{Name: "a", Labels: map[string]string{}}
			if w.Describe(&node); !n.Request.Allows(node.Labels) {
				t.Errorf("%+v is not for %+v", n.Request, node)
			}
			if err := n.Request.Check(); err != nil {
				t.Error(err)
			}
			var sets []string
			for _, a := range n.Request.From {
				for _, s := range node.Sets {
					if s.Name == a.Name {
						sets = append(sets, fmt.Sprintf("%d of %04b", a.Value, s.Devices))
					}
				}
			}
			if got := strings.Join(sets, ", "); got != c.sets && strings.Join([]string{sets[len(sets)-1], sets[0]}, ", ") != c.sets {
				t.Errorf("p wants %s, expected %s", got, c.sets)
			}
			granted, _ := w.Grant([]Start{{Needs: n, Node: "a", GPUs: c.picked}})
			var got []string
			for _, x := range granted[0].Claims {
				if x.Wrong != "" {
					t.Error(x.Wrong)
					continue
				}
				for _, r := range x.Allocation.Devices.Results {
					got = append(got, r.Request+":"+r.Device)
				}
			}
			if strings.Join(got, " ") != c.granted {
				t.Errorf("granted: %s, expected %s", got, c.granted)
			}
		})
	}
}

// What the engine could not pick for all requests at once is refused in words.
func TestSingleDevicesRefused(t *testing.T) {
	for _, c := range []struct {
		text     string
		requests []resourceapi.DeviceRequest
	}{
		{"with several alternatives, expected a count of 1", []resourceapi.DeviceRequest{first(2, index+" > 1", index+" < 2")}},
		{"match some network devices of a node but not all", []resourceapi.DeviceRequest{named("a", asks("gpu", 1)), named("b", asks("gpu", 1)), asks("nic", 1, root+` == "root1"`)}},
		{"on no node is such a network device the nearest to a GPU", []resourceapi.DeviceRequest{asks("gpu", 1, index+" == 0"), asks("nic", 1, root+` == "root1"`)}},
	} {
		w := newWorld(t)
		w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
		w.ObserveSlice(slice("a", "dra.net", 4))
		p := w.pod("p", "c")
		w.claim("c", c.requests)
		w.waits(p, ReasonMisconfigured, c.text)
	}
}

// A selector that has held for all GPUs of nodes holds for single ones when another node comes: who uses it is resolved again.
func TestSingleDevicesThatComeLater(t *testing.T) {
	w := newWorld(t)
	w.ObserveSlice(slice("a", "gpu.nvidia.com", 1))
	p := w.pod("p", "c")
	w.claim("c", []resourceapi.DeviceRequest{asks("gpu", 1, index+" == 0")})
	if n := w.takes(p, 1); n.Request.From != nil {
		t.Errorf("p wants %v, though all GPUs are such", n.Request.From)
	}
	w.says(w.ObserveSlice(slice("b", "gpu.nvidia.com", 2)), "p", "a b")
	n := w.takes(p, 1)
	for _, name := range []string{"a", "b"} {
		node := core.Node{Name: name, Labels: map[string]string{}}
		if w.Describe(&node); !n.Request.Allows(node.Labels) || len(node.Sets) != 1 || node.Sets[0].Devices != 1 || n.Request.From[0].Name != node.Sets[0].Name {
			t.Errorf("%+v is for %+v", n.Request, node)
		}
	}

	// Where its devices are others by the time that it is bound, it is told so.
	w.ObserveSlice(translate.SliceOf(&resourceapi.ResourceSlice{}))
	granted, _ := w.Grant([]Start{{Needs: n, Node: "b", GPUs: 0b10}})
	if x := granted[0].Claims[0]; !strings.Contains(x.Wrong, "node b no longer has the devices for request xgpu") {
		t.Errorf("granted: %+v", x)
	}
}
