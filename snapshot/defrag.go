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
