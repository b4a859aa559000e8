package tables

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/after"
	"github.com/muster-sched/muster/kube/owners"
)

// This file has the objects that say more of a job read again while the job waits for what they may say wrongly: its
// author corrects the object, and nothing of the pods changes.

// correctable are the reasons to wait that an object of the job may have caused.
var correctable = []string{
	ReasonCollecting, ReasonQueueNotFound, ReasonQueueForbidden, ReasonJobForbidden, ReasonPriorityClassNotFound, ReasonPriorityClassForbidden, ReasonMisconfigured,
}

// collectingFor is how long a gang waits for its pods before its object is read again: most are created at once.
const collectingFor = 5 * core.Second

// Stuck reports whether a group whose objects were read waits for what they may say wrongly.
func (g *Group) Stuck() bool {
	return !g.Submitted && len(g.Pods) > 0 && len(g.Objects) > 0 && slices.Contains(correctable, g.Waiting.Reason)
}

// Stall has a group wait. It returns the group in ask if its objects are to be read, for the first time or again, and notes
// that they are; in later if that is to be seen at a time, which is [core.Never] otherwise.
func (g *Group) Stall(now core.Time, reason, detail string) (ask, later []*Group, at core.Time) {
	g.Wait(now, reason, detail)
	switch first := g.Says == nil && len(g.Objects) > 0 && reason == ReasonGangUnknown; {
	case g.Asking || !first && (g.Says == nil || !g.Stuck()):
		return nil, nil, core.Never
	case !first && reason == ReasonCollecting && now < g.Waiting.Since+collectingFor:
		return nil, []*Group{g}, g.Waiting.Since + collectingFor
	}
	g.Asking = true
	return []*Group{g}, nil, core.Never
}

// Unread says why a group waits whose objects have not been read: what the last attempt found, if there was one.
func (g *Group) Unread() (reason, detail string) {
	if g.Asking && slices.Contains([]string{ReasonDependency, ReasonDependencyNever, ReasonMisconfigured}, g.Waiting.Reason) {
		return g.Waiting.Reason, g.Waiting.Detail
	}
	return ReasonGangUnknown, g.Objects[0].String() + " has not been observed yet"
}

// Corrigible reports whether an error of reading objects is about what their author wrote, or says that the job
// starts after others.
func Corrigible(err error) bool {
	wrong, unmet := (*owners.WrongError)(nil), (*after.UnmetError)(nil)
	return errors.As(err, &wrong) || errors.As(err, &unmet)
}

// Unanswered has a group wait whose objects could not be read, or are wrong, or say that it starts after others.
func (g *Group) Unanswered(now core.Time, err error) {
	g.Unsay()
	wrong, unmet := (*owners.WrongError)(nil), (*after.UnmetError)(nil)
	switch {
	case errors.As(err, &wrong):
		g.Wait(now, ReasonMisconfigured, wrong.Error())
	case errors.As(err, &unmet) && unmet.Never:
		g.Wait(now, ReasonDependencyNever, unmet.Text)
	case unmet != nil:
		g.Wait(now, ReasonDependency, unmet.Text)
	default:
		g.Wait(now, ReasonGangUnknown, fmt.Sprintf("%s cannot be read: %v", g.Objects[0], err))
	}
}

// Same takes note that the objects of a group were read, and reports whether they still say what they said. What they
// said before does not count any longer if they do not. They are read again while the group is stuck.
func (g *Group) Same(says *owners.Gang) bool {
	g.Asking = g.Says != nil && g.Stuck()
	if g.Says != nil && reflect.DeepEqual(g.Says, says.Only(g.Stage)) {
		return true
	}
	g.Unsay()
	return false
}

// Unsay forgets what the objects of a group said. The group has the size that its pods give it.
func (g *Group) Unsay() {
	if g.Says == nil {
		return
	}
	g.Says, g.Min, g.Roles, g.Patience, g.Sized = nil, 0, nil, 0, false
	for _, p := range g.Pods {
		g.Observe(&p.Object.Membership)
	}
}
