package reports

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/stats"
)

// Statuses returns the queues, policies and topologies whose status has changed. The instance that
// holds the rest of the cluster writes them; a status that the API has already is not written
// again.
func (r *Reporter) Statuses(e Engine, now metav1.Time) []act.Status {
	if !r.Shards.Held[r.Shards.Rest] {
		return nil // another instance writes them
	}
	var out []act.Status
	if len(r.Queues.Objects) > 0 {
		byName, shares := map[string]*stats.Queue{}, map[string][]core.Share(nil)
		var resources map[string][]stats.Usage
		var users map[string][]core.UserHolds
		var overbooked []core.Overbooked
		r.Guarded(nil, func() {
			shares, resources, users, overbooked = e.Shares(), e.ResourceUsage(), e.UsersHold(), e.Overbooked()
		})
		if r.Now >= r.stood+Every { // they change all the time
			r.stood = r.Now
			r.Guarded(nil, func() { r.standings = e.Standings(r.Now) })
		}
		st := r.Census.Stats()
		for i := range st.Queues {
			st.Queues[i].Subtree.Shares = shares[st.Queues[i].Name]
			st.Queues[i].Subtree.Resources = resources[st.Queues[i].Name]
			byName[st.Queues[i].Name] = &st.Queues[i]
		}
		for _, name := range slices.Sorted(maps.Keys(r.Queues.Objects)) {
			q := *r.Queues.Objects[name]
			old := q.Status
			q.Status = r.QueueStatus(&q, byName[name], now)
			r.Exceeds(&q, overbooked, now)
			q.Status.GPUTime, q.Status.Users = standing(r.standings, name), usersOf(users[name])
			if !equality.Semantic.DeepEqual(q.Status, old) {
				out = append(out, act.Status{Resource: "queues", Name: name, Object: &q})
			}
		}
	}
	for _, p := range r.Policies.Statuses(now) {
		out = append(out, act.Status{Resource: "schedulingpolicies", Name: p.Name, Object: p})
	}
	for _, t := range r.Topologies.Statuses(now) {
		out = append(out, act.Status{Resource: "topologies", Name: t.Name, Object: t})
	}
	return out
}

// mostUsers is how many users the status of a queue has.
const mostUsers = 100

// usersOf is what users hold, those who hold most.
func usersOf(all []core.UserHolds) (out []v1alpha1.QueueUser) {
	for _, u := range all[:min(len(all), mostUsers)] {
		out = append(out, v1alpha1.QueueUser{Name: u.User, GPUs: v1alpha1.GPUs(u.GPU), CPU: v1alpha1.QuantityOf("cpu", core.Milli(u.CPUMilli))})
	}
	return out
}

// standing is where a queue stands, for people; nil if it is not known.
func standing(all map[string]core.Standing, name string) *v1alpha1.QueueStanding {
	s, ok := all[name]
	if !ok {
		return nil
	}
	hours := func(gpuSeconds float64) string { return rounded(gpuSeconds / 3600) }
	return &v1alpha1.QueueStanding{Received: hours(s.Received), Deserved: hours(s.Deserved), Index: rounded(s.Index)}
}

// rounded writes a number with three digits, at most three of them after the point: those of a queue that has run for long
// change rarely, and so does its status.
func rounded(x float64) string {
	if math.IsInf(x, 1) {
		return "infinite"
	}
	if x >= 100 {
		unit := math.Pow(10, math.Floor(math.Log10(x))-2)
		return strconv.FormatFloat(math.Round(x/unit)*unit, 'f', 0, 64)
	}
	places := 3
	if x >= 10 {
		places = 1
	} else if x >= 1 {
		places = 2
	}
	return strconv.FormatFloat(x, 'f', places, 64)
}
