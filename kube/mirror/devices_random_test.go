package mirror

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Whatever comes, no device is in two claims at a time, none is given that is
// tainted or not as asked for, and in the end, when all is well, everything that
// fits runs.
func TestClaimsRandom(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomClaims(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

func randomClaims(t *testing.T, r *rand.Rand) {
	d := newDevices(t)
	names := []string{"a", "b", "c"}
	for i, name := range names {
		d.published(name, []string{"NVIDIA H800", "NVIDIA A100"}[i%2], 4)
	}
	tainted := func(id translate.DeviceID) bool {
		for _, dev := range d.slices[id.Pool+id.Driver].Spec.Devices {
			if dev.Name == id.Name {
				return len(dev.Taints) > 0
			}
		}
		return true
	}
	d.onBind = func(b *tables.Binding) bool {
		if r.IntN(8) == 0 {
			return false
		}
		for _, o := range b.Claims {
			if o.Allocation == nil || d.claims[o.Name].Status.Allocation != nil {
				continue
			}
			for _, id := range translate.AllocatedDevices(o.Allocation) {
				if tainted(id) {
					t.Errorf("claim %s gets %v, which is tainted", o.Name, id)
				}
				if o.Name[0] == 'h' && id.Pool == "b" {
					t.Errorf("claim %s gets %v, which is no H800", o.Name, id)
				}
			}
		}
		return d.reserve(b)
	}
	var live []string  // pods
	var ended []string // claims whose pods are over, and that keep their devices yet
	uses := map[string]string{}
	free := func(name string) {
		for _, other := range uses {
			if other == name {
				return
			}
		}
		ended = append(ended, name)
	}
	evicted := func() { // takes in the pods that had to leave
		for i := 0; i < len(live); i++ {
			if d.pods["default/"+live[i]] == nil {
				claim := uses[live[i]]
				d.unreserve(claim, live[i])
				delete(uses, live[i])
				free(claim)
				live = slices.Delete(live, i, i+1)
				i--
			}
		}
	}
	for step := range 150 {
		switch r.IntN(10) {
		case 0, 1, 2:
			claim := fmt.Sprintf("%c%d", "xh"[r.IntN(2)], step)
			request := asksFor("x", "gpu.nvidia.com", int64(1+r.IntN(4)))
			if claim[0] == 'h' {
				request.Exactly.Selectors = celSelectors(`device.attributes["gpu.nvidia.com"].productName == "NVIDIA H800"`)
			}
			d.deviceClaim(claim, []resourceapi.DeviceRequest{request})
			pods := 1 + r.IntN(2)
			for i := range pods {
				name := fmt.Sprintf("p%d-%d", step, i)
				with := []change[*v1.Pod]{claiming(claim)}
				if pods > 1 && step%2 == 0 {
					with = append(with, gang(fmt.Sprint("g", step), pods))
				}
				d.pod(name, with...)
				live, uses[name] = append(live, name), claim
			}
		case 3, 4:
			if len(live) > 0 {
				i := r.IntN(len(live))
				name := live[i]
				live = slices.Delete(live, i, i+1)
				if d.pods["default/"+name] != nil {
					d.over(name)
				}
				claim := uses[name]
				delete(uses, name)
				d.unreserve(claim, name)
				free(claim)
			}
		case 5:
			if len(ended) > 0 {
				i := r.IntN(len(ended))
				d.freed(ended[i])
				ended = slices.Delete(ended, i, i+1)
			}
		case 6:
			node, gpu := names[r.IntN(3)], r.IntN(4)
			d.slice(node, "gpu.nvidia.com", func(s *resourceapi.ResourceSlice) {
				dev := &s.Spec.Devices[gpu]
				if dev.Taints = nil; r.IntN(2) == 0 {
					dev.Taints = []resourceapi.DeviceTaint{{Key: "bad", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
				}
			})
		case 7:
			d.sliceAway(names[r.IntN(3)])
		case 8:
			// A pod is taken out of its owner's hands, or given to one.
			if len(live) > 0 {
				name := live[r.IntN(len(live))]
				if p := d.pods["default/"+name]; p != nil && p.Labels[v1alpha1.GangLabel] == "" {
					d.pod(name, func(p *v1.Pod) {
						if p.OwnerReferences != nil {
							p.OwnerReferences = nil
							return
						}
						of("apps/v1", "ReplicaSet", name)(p)
					})
				}
			}
		case 9:
			if r.IntN(3) == 0 {
				if err := d.m.rebuild(); err != nil {
					t.Fatal(err)
				}
			}
		}
		d.settle()
		evicted()
	}
	// All is well again: everything over is freed, nothing is tainted.
	for _, name := range names {
		d.slice(name, "gpu.nvidia.com", func(s *resourceapi.ResourceSlice) {
			for i := range s.Spec.Devices {
				s.Spec.Devices[i].Taints = nil
			}
		})
	}
	d.onBind = d.reserve
	for range 20 {
		for _, name := range ended {
			d.freed(name)
		}
		ended = nil
		d.settle()
		evicted()
		d.now = d.now.Add(time.Hour)
	}
	used := map[string]int{}
	for _, c := range d.claims {
		for _, id := range translate.AllocatedDevices(c.Status.Allocation) {
			used[id.Pool]++
		}
	}
	for _, name := range live {
		p := d.pods["default/"+name]
		if p.Spec.NodeName != "" {
			continue
		}
		if d.m.Pods[p.UID].Group.Waiting.Reason == tables.ReasonCollecting {
			continue // the other pod of its gang was deleted
		}
		c := d.claims[uses[name]]
		if c.Status.Allocation != nil {
			t.Errorf("pod %s waits, and its claim %s has %s: %+v", name, c.Name, d.has(c.Name), d.m.Pods[p.UID].Group.Waiting)
		}
		count := int(c.Spec.Devices.Requests[0].Exactly.Count)
		for _, node := range names {
			if used[node]+count <= 4 && (c.Name[0] != 'h' || node != "b") {
				t.Errorf("pod %s waits for %d GPUs, and %s has %d in use: %+v, needs %+v", name, count, node, used[node], d.m.Pods[p.UID].Group.Waiting, d.m.Pods[p.UID].Needs)
			}
		}
	}
}

// unreserve takes a pod off a claim, as the controller does.
func (d *dra) unreserve(claim, pod string) {
	c := d.claims[claim]
	c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.Name == pod })
	d.seen(c)
}

// sliceAway has a driver take its slice back, and publish it again.
func (d *dra) sliceAway(node string) {
	s := d.slices[node+"gpu.nvidia.com"]
	inDevices((*devices.Index).ForgetSlice)(d.m, translate.SliceOf(s))
	d.settle()
	inDevices((*devices.Index).ObserveSlice)(d.m, translate.SliceOf(s))
}
