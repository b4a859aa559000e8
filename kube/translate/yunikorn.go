package translate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/keys"
)

// What YuniKorn's users write. An application is the pods of one application
// id; its task groups are roles, each with a minimum number of pods, that
// start together.

const (
	taskGroupsKey = "yunikorn.apache.org/task-groups"
	taskGroupKey  = "yunikorn.apache.org/task-group-name"
)

// placeholderPatience is how long YuniKorn waits by default for the pods of the
// task groups.
const placeholderPatience = 15 * 60 * core.Second

// application returns the application id of a pod, empty when it has none. A
// label "queue" names YuniKorn's queue on such pods alone: elsewhere it may mean
// anything.
func application(o keys.Labelled) string {
	_, id, _ := lookup(o, applicationKeys)
	return id
}

var applicationKeys = only("yunikorn.apache.org/app-id", "applicationId")

// userInfo reads the annotation with the user and groups of an application; the user alone matters.
func userInfo(a *Attributes, v string) error {
	var info struct {
		User string `json:"user"`
	}
	if err := json.Unmarshal([]byte(v), &info); err != nil {
		return fmt.Errorf("expected a user in JSON, such as {\"user\": \"ann\"}: %w", err)
	}
	a.User = cmp.Or(a.User, info.User)
	return nil
}

// taskGroups reads the annotation that lists them. What it says besides of
// nodes and resources are YuniKorn's placeholders' needs; the pods have their
// own.
func taskGroups(a *Attributes, v string) error {
	var list []struct {
		Name      string `json:"name"`
		MinMember int    `json:"minMember"`
	}
	if err := json.Unmarshal([]byte(v), &list); err != nil {
		return fmt.Errorf("expected a list of task groups in JSON, each with name and minMember: %w", err)
	}
	roles := make(map[string]int, len(list))
	for _, g := range list {
		if g.Name == "" || g.MinMember < 1 || g.MinMember > core.MaxPods || roles[g.Name] > 0 {
			return fmt.Errorf("task group %q, minMember %d: expected each name once, with 1 to %d pods", g.Name, g.MinMember, core.MaxPods)
		}
		roles[g.Name] = g.MinMember
	}
	a.Roles = roles
	return nil
}

// policyParameters reads "placeholderTimeoutInSeconds=30 gangSchedulingStyle=Hard".
func policyParameters(a *Attributes, v string) error {
	patience, hard := placeholderPatience, false
	for part := range strings.FieldsSeq(v) {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "placeholderTimeoutInSeconds":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > int(core.MaxTime/core.Second) {
				return fmt.Errorf("%q: expected a number of seconds", part)
			}
			if n > 0 {
				patience = core.Time(n) * core.Second
			}
		case "gangSchedulingStyle":
			if value != "Soft" && value != "Hard" {
				return fmt.Errorf("%q: expected Soft or Hard", part)
			}
			hard = value == "Hard"
		}
	}
	if a.Patience = patience; hard {
		a.Patience = core.Never
	}
	return nil
}

// inApplication makes a pod with task groups a member of its application, and
// reports whether it is one.
func (m *Membership) inApplication(p *v1.Pod, a *Attributes) bool {
	id := application(p)
	_, role, named := lookup(p, only(taskGroupKey))
	_, _, lists := lookup(p, only(taskGroupsKey))
	if id == "" || !named && !lists || sparks(p) {
		return false
	}
	m.Group.Kind, m.Group.Name = ByApplication, id
	if m.Patience = a.Patience; m.Patience == 0 {
		m.Patience = placeholderPatience // soft is the default
	}
	if named && role != "" {
		m.Role = role
		m.await(role)
	}
	return true
}

// await marks a role whose minimum must be known before the gang starts: another pod
// may give it.
func (m *Membership) await(role string) {
	if _, ok := m.Roles[role]; !ok {
		m.Roles = maps.Clone(m.Roles)
		if m.Roles == nil {
			m.Roles = map[string]int{}
		}
		m.Roles[role] = 0
	}
}

// sparks reports whether a pod is Spark's: the driver makes the executors, so
// that it cannot wait for them.
func sparks(p *v1.Pod) bool { return p.Labels["spark-role"] != "" }

// maxCount is the largest number of pods that is distinguished from larger numbers: no gang that
// asks for this many ever starts, and sums of such numbers do not overflow.
const maxCount = 1 << 30

// Number reads a whole number, at most 2^30; 0 when s is none.
func Number(s string) int {
	n, _ := strconv.Atoi(s)
	return min(max(n, 0), maxCount)
}
