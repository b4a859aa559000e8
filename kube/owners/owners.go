// Package owners reads what the objects that make pods say of their jobs: how many pods start together, and
// by labels, annotations and fields what the pods do not say themselves.
package owners

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/keys"
	"github.com/muster-sched/muster/kube/translate"
)

// Gang is what objects say of the pods that they make, or that name them.
type Gang struct {
	// Min is the minimum number of pods of the gang, 0 if no object gives it;
	// Roles has the minimum of each role.
	Min   int
	Roles map[string]int
	// Since is when the topmost owner of such an object was made that makes another when it was stopped; zero
	// where there is none.
	Since time.Time
	// Levels has, by role, the subgroups that it is in and of which one domain of a level must hold all pods, or should, the narrowest first.
	Levels map[string][]Level
	// Attributes is what their labels, annotations and specs say of the job.
	Attributes translate.Attributes
	// Stages are the parts of the gang that start one after the other, each by itself: the controller makes the
	// pods of one when those of another run, or are done. There are none if all start together. Stage is the
	// one of which Min says how many pods start together, empty for all.
	Stages []Stage
	Stage  string
}

// Level is the topology level that a subgroup requires, or prefers, by the node label that makes it.
type Level struct {
	Subgroup, Level string
	Preferred       bool
}

// Stage is a part of a gang that starts by itself.
type Stage struct {
	Name  string
	Roles []string // of the pods
	Min   int      // the minimum number of its pods
}

// StageOf returns the stage of the pods of a role, empty for none.
func (g *Gang) StageOf(role string) string {
	for _, s := range g.Stages {
		if slices.Contains(s.Roles, role) {
			return s.Name
		}
	}
	return ""
}

// Only returns what the objects say of a stage; of a gang without stages, what they say of all.
func (g *Gang) Only(stage string) *Gang {
	if len(g.Stages) == 0 && stage == "" {
		return g
	}
	only := *g
	only.Min, only.Roles, only.Stages, only.Stage = 0, nil, nil, stage
	for _, s := range g.Stages {
		if s.Name == stage {
			only.Min = s.Min
		}
	}
	return &only
}

// WrongError says what the author of an object must change before its pods can start.
type WrongError struct{ Object, Text string }

// Error names the object.
func (e *WrongError) Error() string { return e.Object + ": " + e.Text }

// Of reads what an object says. A [WrongError] names a label, an annotation or a field, and what was expected.
func Of(o *unstructured.Unstructured) (*Gang, error) {
	g := &Gang{}
	err := g.Attributes.Read(o)
	g.Min, g.Roles = g.Attributes.MinMember, g.Attributes.Roles
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	if f := gangs[o.GroupVersionKind().GroupKind()]; f != nil && spec != nil {
		if wrong := f(object{o, spec}, g); err == nil {
			err = wrong
		}
	}
	if (g.Attributes.SegmentSize != "" || g.Attributes.SegmentTopology != "") && err == nil {
		err = fmt.Errorf("segments are of pods: expected %s, or the key of another scheduler, in the template of the pods", v1alpha1.SegmentSizeAnnotation)
	}
	if key := misplaced(o); key != "" && err == nil {
		err = fmt.Errorf("%s counts on pods alone: expected it in the template of the pods", key)
	}
	if notes, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "metadata", "annotations"); notes[v1alpha1.DependencyAnnotation] != nil && err == nil {
		err = fmt.Errorf("%s counts on what makes pods alone: expected it in the metadata of the %s itself", v1alpha1.DependencyAnnotation, o.GetKind())
	}
	if err != nil {
		err = &WrongError{o.GetKind() + " " + o.GetName(), err.Error()}
	}
	return g, err
}

// ofPods are the keys that count on pods alone.
var ofPods = append([]string{v1alpha1.GangLabel, v1alpha1.PausableAnnotation, v1alpha1.CheckpointWithinAnnotation, v1alpha1.StandbyUntilAnnotation, v1alpha1.StandbyKeepsAnnotation}, keys.Same(v1alpha1.PoolLabel)...)

// misplaced returns a key of pods that an object has and that no template in it has; empty for none.
func misplaced(o *unstructured.Unstructured) string {
	for _, key := range ofPods {
		_, labelled := o.GetLabels()[key]
		_, noted := o.GetAnnotations()[key]
		if (labelled || noted) && !within(o.Object["spec"], key, 0) {
			return key
		}
	}
	return ""
}

// deepest bounds how deep templates are looked for in an object.
const deepest = 12

// within reports whether an object below a field has metadata with a key.
func within(field any, key string, depth int) bool {
	if depth > deepest {
		return false
	}
	switch v := field.(type) {
	case map[string]any:
		for _, kind := range []string{"labels", "annotations"} {
			if m, _, _ := unstructured.NestedMap(v, "metadata", kind); m[key] != nil {
				return true
			}
		}
		for _, inner := range v {
			if within(inner, key, depth+1) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(inner any) bool { return within(inner, key, depth+1) })
	}
	return false
}

// Under adds what an object says of a gang of which objects nearer to the pods have said what g has: what
// they say counts.
func (g *Gang) Under(o *unstructured.Unstructured) error {
	over, err := Of(o)
	if g.Attributes = g.Attributes.Over(&over.Attributes); g.Min == 0 && len(g.Roles) == 0 {
		if g.Min, g.Roles, g.Levels, g.Stages = over.Min, over.Roles, over.Levels, over.Stages; len(g.Stages) > 0 {
			g.Since = o.GetCreationTimestamp().Time // the later stages wait where the first did
		}
	}
	return err
}

// Sizes reports whether the pods of an object cannot start without what it says: how large their gang is. Of
// other objects, a Job that is gone among them, it is good to know what they say.
func Sizes(o *translate.ObjectRef) bool {
	switch o.GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupKind{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}:
		return false // their pods say enough
	}
	return gangs[o.GroupKind()] != nil
}

// Notes are the annotations that say of the gang what its objects say and pods with
// the attributes do not: with them on its pods, a scheduler that starts again
// knows of a gang that runs without asking.
func (g *Gang) Notes(a *translate.Attributes) map[string]string {
	out := map[string]string{}
	note := func(key, value string, given bool) {
		if given {
			out[key] = value
		}
	}
	of := &g.Attributes
	note(v1alpha1.StageAnnotation, g.Stage, g.Stage != "" && a.Stage == "")
	note(v1alpha1.QueueLabel, of.Queue, a.Queue == "" && of.Queue != "")
	note(v1alpha1.PriorityClassAnnotation, of.PriorityClass, of.PriorityClass != "" && a.PriorityClass == "")
	note(v1alpha1.PreemptibleAnnotation, "false", of.NotPreemptible && !a.PreemptibleGiven)
	note(v1alpha1.LockedAnnotation, "true", of.Locked && !a.LockedGiven)
	if of.KindGiven && !a.KindGiven {
		out[v1alpha1.KindAnnotation] = core.Kinds[of.Kind]
	}
	note(v1alpha1.ClassAnnotation, of.Class.String(), of.ClassGiven && !a.ClassGiven)
	for key, t := range map[string][2]core.Time{
		v1alpha1.MinRuntimeAnnotation:         {of.MinRuntime, a.MinRuntime},
		v1alpha1.CheckpointIntervalAnnotation: {of.Checkpoint, a.Checkpoint},
		v1alpha1.WalltimeAnnotation:           {of.Estimate, a.Estimate},
	} {
		note(key, v1alpha1.Duration(t[0]).String(), t[0] != 0 && t[1] == 0)
	}
	note(v1alpha1.RequiredTopologyAnnotation, of.Required, of.Required != "" && a.Required == "")
	note(v1alpha1.PreferredTopologyAnnotation, of.Preferred, of.Preferred != "" && a.Preferred == "")
	note(v1alpha1.ClosenessAnnotation, core.FormatCloseness(of.Closeness), of.Closeness != 0 && a.Closeness == 0)
	note(v1alpha1.GPUCombinationsAnnotation, of.Combinations, of.Combinations != "" && a.Combinations == "")
	note(v1alpha1.GPUModelsAnnotation, strings.Join(of.Models, "|"), of.Models != nil && a.Models == nil)
	note(v1alpha1.StaleGraceAnnotation, v1alpha1.FormatStaleGrace(of.StaleGrace), of.StaleGrace != 0 && a.StaleGrace == 0)
	note(v1alpha1.OnFailureAnnotation, of.OnFailure, of.OnFailure != "" && a.OnFailure == "")
	if a.MinMember == 0 && a.Roles == nil {
		note(v1alpha1.MinMemberAnnotation, strconv.Itoa(g.Min), g.Min > 0)
		var roles []string
		for _, r := range slices.Sorted(maps.Keys(g.Roles)) {
			roles = append(roles, fmt.Sprintf("%s=%d", r, g.Roles[r]))
		}
		note(v1alpha1.MinMemberAnnotation, strings.Join(roles, ","), roles != nil)
	}
	return out
}
