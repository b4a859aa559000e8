// Package doc is how a policy documents itself: help, documentation and tests
// read it from here.
package doc

import "github.com/muster-sched/muster/core"

// Doc is a policy and what people should know of it.
type Doc struct {
	Name, Title string
	// Source is the paper and section.
	Source string
	// Since is the first release with the policy.
	Since  string
	Policy core.Policy
}
