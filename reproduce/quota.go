package reproduce

import (
	"math/bits"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// usage is what a queue used of its quota of one GPU model.
type usage struct {
	queue string
	quota core.Quota
	// gpus is the GPUs in use, mean over time; peak is the most.
	gpus float64
	peak core.Milli
}

// quotaUse is a [sim.Sink] that adds up what queues use of their quotas.
type quotaUse struct {
	model map[string]string // by node
	at    map[queueModel]*quotaAccount
	order []queueModel
}

type queueModel struct{ queue, model string }

type quotaAccount struct {
	quota      core.Quota
	used, peak core.Milli
	since      core.Time
	time       float64 // milli-GPU seconds
}

var _ sim.Sink = (*quotaUse)(nil)

func newQuotaUse(c *workload.Cluster) *quotaUse {
	u := &quotaUse{model: map[string]string{}, at: map[queueModel]*quotaAccount{}}
	for i := range c.Nodes {
		u.model[c.Nodes[i].Name] = c.Nodes[i].Model
	}
	for _, q := range c.Queues {
		for _, x := range q.Quota {
			k := queueModel{q.Name, x.Model}
			u.at[k] = &quotaAccount{quota: x}
			u.order = append(u.order, k)
		}
	}
	return u
}

// Bound implements [sim.Sink].
func (u *quotaUse) Bound(t core.Time, j *sim.Live, pods []core.Placement, _ core.Reason) error {
	u.count(t, j, pods, 1)
	return nil
}

// Released implements [sim.Sink].
func (u *quotaUse) Released(t core.Time, j *sim.Live, pods []core.Placement, _ sim.Release, _ sim.Eviction) error {
	u.count(t, j, pods, -1)
	return nil
}

func (u *quotaUse) count(t core.Time, j *sim.Live, pods []core.Placement, sign core.Milli) {
	for i := range pods {
		p := &pods[i]
		a := u.at[queueModel{j.Queue, u.model[p.Node]}]
		if a == nil {
			continue
		}
		a.pass(t)
		a.used += sign * p.GPU * core.Milli(bits.OnesCount64(p.GPUs))
		a.peak = max(a.peak, a.used)
	}
}

// pass accounts for the time up to t.
func (a *quotaAccount) pass(t core.Time) {
	t = min(t, week)
	a.time += float64(a.used) * (t - a.since).Seconds()
	a.since = t
}

// until returns the use up to t, in the order of the queues.
func (u *quotaUse) until(t core.Time) []usage {
	var all []usage
	for _, k := range u.order {
		a := u.at[k]
		a.pass(t)
		all = append(all, usage{queue: k.queue, quota: a.quota, peak: a.peak, gpus: a.time / t.Seconds() / float64(core.WholeGPU)})
	}
	return all
}

// Node implements [sim.Sink].
func (u *quotaUse) Node(core.Time, *core.Node, bool) error { return nil }

// Submitted implements [sim.Sink].
func (u *quotaUse) Submitted(core.Time, *sim.Live) error { return nil }

// Ended implements [sim.Sink].
func (u *quotaUse) Ended(core.Time, *sim.Live, *sim.Rejection) error { return nil }
