package place

import "github.com/muster-sched/muster/core/cluster"

// anyNode returns a node with room that accept allows (nil allows all), each as
// likely as the others, and a device that holds a part. The draws depend on how
// many there were before.
func (p *Placer) anyNode(sh *Shape, pools []*cluster.Pool, accept func(cluster.NodeID) bool) (cluster.NodeID, uint64, bool) {
	var fit []cluster.NodeID
	for _, pool := range pools {
		for _, id := range pool.Members() {
			if id >= 0 && p.hasRoom(id, sh) && (accept == nil || accept(id)) {
				fit = append(fit, id)
			}
		}
	}
	if len(fit) == 0 {
		return 0, 0, false
	}
	id := fit[p.draw(len(fit))]
	if sh.Part == 0 {
		return id, 0, true
	}
	var devices []int
	for d := range p.state.Node(id).Spec.GPUs {
		if p.state.Node(id).FreeOn(d) >= sh.Part {
			devices = append(devices, d)
		}
	}
	return id, 1 << devices[p.draw(len(devices))], true
}

// draw returns a number below n.
func (p *Placer) draw(n int) int {
	p.drawn++
	return int(MixBits(p.drawn*0x9e3779b97f4a7c15) % uint64(n))
}

// Drawn returns how many random numbers were drawn. A caller that takes back what was
// placed resets it with [Placer.Redraw], so that the trial changes no later choice.
func (p *Placer) Drawn() uint64 { return p.drawn }

// Redraw resets the number of random numbers drawn to n: those after it are drawn again.
func (p *Placer) Redraw(n uint64) { p.drawn = n }

// MixBits scrambles a number, for draws that depend on what is drawn for (the finalizer of SplitMix64).
func MixBits(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
