package advisor

import (
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/spelling"
	"github.com/muster-sched/muster/workload"
)

// UserMean predicts what the jobs of the same user took on average, or without users those of the queue.
type UserMean struct{ of map[string]*mean }

// Predict returns the mean.
func (a *UserMean) Predict(_ core.Time, j *workload.Job) (core.Time, error) {
	if m := a.of[owner(j)]; m != nil {
		return seconds(m.value()), nil
	}
	return 0, nil
}

// Ended adds a job.
func (a *UserMean) Ended(_ core.Time, j *workload.Job, _ core.Time) error {
	if a.of == nil {
		a.of = map[string]*mean{}
	}
	entry(a.of, owner(j)).add(j.Duration.Seconds())
	return nil
}

// owner is whose job it is: the user's, or else the queue's.
func owner(j *workload.Job) string {
	if j.User != "" {
		return j.User
	}
	return "queue " + j.Queue
}

// Rolling is the rolling estimate of QSSF (Helios, §4.2, Algorithm 1): the decayed mean of the user's jobs of a similar name, else the mean of
// the user's jobs of as many GPUs, else of all jobs of as many GPUs. Its other half, gradient boosting, is not here.
type Rolling struct {
	users map[string]*rollingUser
	gpus  map[core.Milli]*mean
	all   mean
}

type rollingUser struct {
	names []string // distinct, in order of their first ends
	of    map[string]*decayed
	gpus  map[core.Milli]*mean
	all   mean
}

// decayed is a mean in which each later value counts as much as all those before.
type decayed struct{ value float64 }

const (
	decay     = 0.5 // what the mean so far keeps, of each later job
	mostNames = 500 // of a user, to compare with
	alike     = 0.8 // the share of equal letters from which names are similar
)

// Predict returns the estimate; 0 before any job has ended.
func (a *Rolling) Predict(_ core.Time, j *workload.Job) (core.Time, error) {
	if u := a.users[owner(j)]; u != nil {
		if d := u.similar(j.Name); d != nil {
			return seconds(d.value), nil
		}
		if m := u.gpus[j.GPUs()]; m != nil {
			return seconds(m.value()), nil
		}
		return seconds(u.all.value()), nil
	}
	if m := a.gpus[j.GPUs()]; m != nil {
		return seconds(m.value()), nil
	}
	return seconds(a.all.value()), nil
}

// Ended adds a job.
func (a *Rolling) Ended(_ core.Time, j *workload.Job, _ core.Time) error {
	if a.users == nil {
		a.users, a.gpus = map[string]*rollingUser{}, map[core.Milli]*mean{}
	}
	u := a.users[owner(j)]
	if u == nil {
		u = &rollingUser{of: map[string]*decayed{}, gpus: map[core.Milli]*mean{}}
		a.users[owner(j)] = u
	}
	took := j.Duration.Seconds()
	if d := u.similar(j.Name); d != nil {
		d.value = decay*d.value + (1-decay)*took
	} else if nameOf(j.Name) != "" && len(u.names) < mostNames {
		u.names = append(u.names, nameOf(j.Name))
		u.of[nameOf(j.Name)] = &decayed{took}
	}
	entry(u.gpus, j.GPUs()).add(took)
	entry(a.gpus, j.GPUs()).add(took)
	u.all.add(took)
	a.all.add(took)
	return nil
}

func entry[K comparable](of map[K]*mean, k K) *mean {
	m := of[k]
	if m == nil {
		m = &mean{}
		of[k] = m
	}
	return m
}

// similar returns the mean of the jobs with the most similar name, the first of equals; nil if none is similar.
func (u *rollingUser) similar(name string) *decayed {
	name = nameOf(name)
	if d := u.of[name]; d != nil || name == "" {
		return d
	}
	best, most := "", alike
	for _, known := range u.names {
		longest := max(len(known), len(name))
		if share := 1 - float64(spelling.Distance(known, name))/float64(longest); share > most {
			best, most = known, share
		}
	}
	return u.of[best]
}

// nameOf returns a name without the digits at its end: nothing is left of a number.
func nameOf(name string) string { return strings.TrimRight(name, "0123456789-_.") }
