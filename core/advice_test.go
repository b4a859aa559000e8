package core

import "testing"

// Every reason to wait has advice.
func TestEveryReasonToWaitHasAdvice(t *testing.T) {
	for r := MemberLost; r <= ExceedsQuota; r++ {
		if r.Advice() == "" {
			t.Errorf("%s: no advice", r)
		}
	}
	for _, r := range []Reason{MustNotBorrow, HPExpected, Consolidation, Requested, Defragmentation} {
		if r.Advice() == "" {
			t.Errorf("%s: no advice", r)
		}
	}
}
