// Package guard keeps the record of the engine's panics: which jobs are to blame, for how long each is left out, and
// when the process must end.
//
// A bug in the engine is a panic. The job that the engine was working on is put in
// quarantine, and the engine is built again from the tables without it, so that one
// job stops neither the others nor, one by one, every replica:
//
//  1. A call of the engine that panics counts as refused, and the engine counts as
//     broken: it is not called until it has been built again, which happens at once. No
//     panic makes other jobs wait for longer than that.
//  2. Of a job in quarantine the engine knows the pods that have a place, as it knows
//     those of jobs on which another instance decides: their devices are not free. Its
//     waiting pods get a condition with the reason.
//  3. If the engine panics on that too, the job is kept from the engine altogether, and
//     the nodes of its pods accept no other pods.
//  4. The quarantine ends when what the job asks for changes: a pod is edited, comes
//     or goes, or its PodGroup changes. A job that fails again has to wait longer each
//     time before a change counts, even when it was deleted in between. Without that, a
//     user who edits such a job each second would cause a rebuild each second. A new
//     leader knows no such jobs: it finds them again.
//  5. A panic that no job can be blamed for is followed by one attempt to go on. The
//     next one soon after ends the process, as bugs elsewhere do.
package guard

import (
	"errors"
	"fmt"
	"maps"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

const (
	// A job that fails for the second time is in quarantine for at least firstPause,
	// then for twice as long each time, at most maxPause. Failures are forgotten
	// that are longer ago than memoryOfFailures.
	firstPause       = 10 * core.Second
	maxPause         = 3600 * core.Second
	memoryOfFailures = 2 * maxPause
	// blamelessPeriod is how long after a panic that no job was blamed for a second one
	// ends the process.
	blamelessPeriod = 600 * core.Second
)

// Panics is the record of panics.
type Panics struct {
	// Broken says that the engine panicked and was not built again since.
	Broken bool
	// Jobs counts those in quarantine; Untold those of them that the engine must not know.
	Jobs, Untold int

	blameless core.Time // the last time that no job was to blame
	failures  map[translate.Group]failures
}

// failures are how often a job was put in quarantine, and when for the last time.
type failures struct {
	times int
	last  core.Time
}

// Ending is a panic that is to end the process.
type Ending struct{ V any }

func (e Ending) String() string { return fmt.Sprint(e.V) }

// ErrBroken is what an engine that panicked answers.
var ErrBroken = errors.New("the engine panicked: it must be rebuilt")

// Blameless records a panic that no job can be blamed for. The second one soon after another ends
// the process: it panics with an [Ending].
func (p *Panics) Blameless(v any, now core.Time) {
	if p.blameless > 0 && now < p.blameless+blamelessPeriod {
		panic(Ending{v})
	}
	p.blameless = now
}

// Pause records a failure of a job, and returns its minimum time in quarantine.
func (p *Panics) Pause(id translate.Group, now core.Time) core.Time {
	maps.DeleteFunc(p.failures, func(_ translate.Group, f failures) bool { return now-f.last > memoryOfFailures })
	if p.failures == nil {
		p.failures = map[translate.Group]failures{}
	}
	times := p.failures[id].times + 1
	p.failures[id] = failures{times, now}
	if times == 1 {
		return 0
	}
	return min(firstPause<<min(times-2, 20), maxPause)
}
