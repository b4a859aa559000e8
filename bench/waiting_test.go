package bench

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
)

// Runs of a benchmark on one cluster make the same decisions: its sum over them says whether a change alters any. A change that only makes
// passes faster keeps these sums; one that is to decide otherwise comes with its own.
func TestWaitingDecides(t *testing.T) {
	for _, run := range []struct {
		name   string
		change func(*core.Policy)
		nodes  int
		sum    string
	}{
		{"shares", asItIs, 4000, "6107 decisions 3993860360 crc32"},
		{"quota", withoutShares, 1000, "2888 decisions 2622018437 crc32"},
		{"leases", withLeases, 400, "2470 decisions 1822929557 crc32"},
	} {
		m, err := waiting(run.change)(run.nodes)
		if err != nil {
			t.Fatal(err)
		}
		if found := strings.Join(strings.Fields(m.notes), " "); found != run.sum {
			t.Errorf("%s on %d nodes: the decisions were %s, expected %s", run.name, run.nodes, found, run.sum)
		}
	}
}
