package snapshot

import (
	"testing"

	"github.com/muster-sched/muster/core"
)

// Whatever a job waits for, it is said what would have to change.
func TestEveryReasonToWaitHasAChange(t *testing.T) {
	for r := core.MemberLost; r <= core.Victims; r++ {
		if changes[r] == "" {
			t.Errorf("%s: nothing is said to help", r)
		}
	}
}
