package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// KeepAmounts forgets the lists that nothing uses: after any number of different ones few are left, those that are used have
// their numbers, and what nodes have free is what it was.
func TestKeepAmounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := New(nil)
	const nodes = 4
	for i := range nodes {
		spec := NodeSpec{Name: fmt.Sprint("n", i), Model: "G", GPUs: 8, CPUMilli: 1 << 20, MemMiB: 1 << 20, Others: []Amount{{"disk", 1 << 40}, {"fpga", 6}}}
		spec.Sets = []DeviceSet{{fmt.Sprint("rev", i), 0x0f}}
		if _, err := s.AddNode(spec); err != nil {
			t.Fatal(err)
		}
	}
	type pod struct {
		owner Owner
		r     Request
		id    AmountsID
		alloc Alloc
	}
	var pods []pod
	requests := func(yield func(*Request) bool) {
		for i := range pods {
			if !yield(&pods[i].r) {
				return
			}
		}
	}
	want := map[string]int64{}
	free := func() map[string]int64 {
		out := map[string]int64{}
		for i := range NodeID(nodes) {
			for _, name := range []string{"disk", "fpga", "odd"} {
				out[fmt.Sprint(i, name)] = s.FreeAmount(i, name)
			}
		}
		return out
	}
	count := func(p *pod, by int64) {
		for _, a := range p.r.Others {
			if a.Name == "disk" || a.Name == "fpga" || a.Name == "odd" {
				want[fmt.Sprint(p.alloc.Node, a.Name)] += by * a.Value
			}
		}
	}
	maps.Copy(want, free())
	swept := 0
	for i := range 60_000 {
		// 1. A request that nobody had before, now and then of a pod that gets a node, even if that lacks the resource.
		p := pod{owner: Owner{Job: int32(i), Pod: 0}, r: Request{GPU: WholeGPU, Others: []Amount{{"disk", int64(1 + i)}}}}
		switch i % 5 {
		case 0:
			p.r.Others = append(p.r.Others, Amount{fmt.Sprint("x", i), 1})
		case 1:
			p.r.Others = append(p.r.Others, Amount{"odd", 2})
		case 2:
			p.r.From = []Amount{{fmt.Sprint("set", i), 1}}
		case 3:
			p.r.From = []Amount{{"rev1", 1}}
		}
		p.id = s.Amounts(&p.r).ID()
		if r.IntN(1000) == 0 {
			p.alloc = Alloc{Node: NodeID(r.IntN(nodes)), Others: p.id, CPUMilli: 1, Share: WholeGPU}
			s.PlaceFound(p.owner, p.alloc)
			s.Commit()
			count(&p, -1)
			pods = append(pods, p)
		}
		if len(pods) > 20 {
			k := r.IntN(len(pods))
			s.Remove(pods[k].owner, pods[k].alloc.Node)
			s.Commit()
			count(&pods[k], 1)
			pods = slices.Delete(pods, k, k+1)
		}

		// 2. Lists go, and all others stay as they are.
		if !s.ManyAmounts() {
			continue
		}
		swept++
		epoch := s.Epoch()
		s.KeepAmounts(requests)
		if s.Epoch() == epoch {
			t.Fatal("shapes that were compiled stay good")
		}
		for k := range pods {
			if id := s.Amounts(&pods[k].r).ID(); id != pods[k].id {
				t.Fatalf("a list that a pod has was number %d, and is %d", pods[k].id, id)
			}
		}
		if got := free(); !maps.Equal(got, want) {
			t.Fatalf("free is %v; expected %v", got, want)
		}
		if n := len(s.amountsKey) + len(s.resources); n > 4*20+2 {
			t.Fatalf("%d numbers are left", n)
		}
	}
	if swept < 3 || len(s.amounts) > 4*fewAmounts {
		t.Errorf("lists went %d times, and there is room for %d", swept, len(s.amounts))
	}

	// 3. A node that comes later has a resource whose number is high, in little room.
	id, err := s.AddNode(NodeSpec{Name: "late", CPUMilli: 1, MemMiB: 1, Others: []Amount{{"late", 7}}})
	if err != nil || s.FreeAmount(id, "late") != 7 || cap(s.Node(id).others.free) > 8 {
		t.Errorf("a late node has %d, in room for %d, %v", s.FreeAmount(id, "late"), cap(s.Node(id).others.free), err)
	}
	if n := s.Node(id).Times(s.Amounts(&Request{Others: []Amount{{"late", 2}}}), 9); n != 3 {
		t.Errorf("it takes %d pods; expected 3", n)
	}
}
