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

// RoomFor returns moves and restarts after which a job that waits, once the engine has started what
// it can, could start. The engine makes no such plan by itself before. See [core.Engine.RoomFor].
func RoomFor(s Snapshot, job string, d core.Defrag) (plan core.Migrations, found bool, err error) {
	restarts := s.Policy.Room.Restarts
	s.Policy.Room = core.Room{}
	err = play(s, func(r *runner) (err error) {
		if _, err = r.round(); err == nil {
			plan, found, err = r.engine.RoomFor(job, d, restarts)
		}
		return err
	})
	return plan, found, err
}
