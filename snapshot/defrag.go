package snapshot

import "github.com/muster-sched/muster/core"

// Consolidation returns the moves by which the engine would vacate nodes of the snapshot: no
// waiting pod starts before.
func Consolidation(s Snapshot, d core.Defrag) (plan core.Migrations, err error) {
	err = play(s, func(r *runner) error {
		plan = r.engine.Consolidation(d)
		return nil
	})
	return plan, err
}

// RoomFor returns moves after which a job that waits, once the engine has started what it can,
// could start. See [core.Engine.RoomFor].
func RoomFor(s Snapshot, job string, d core.Defrag) (plan core.Migrations, found bool, err error) {
	err = play(s, func(r *runner) (err error) {
		if _, err = r.round(); err == nil {
			plan, found, err = r.engine.RoomFor(job, d)
		}
		return err
	})
	return plan, found, err
}
