package translate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/keys"
)

// Attributes is what labels and annotations say about a job.
type Attributes struct {
	// Queue is empty when none is named.
	Queue string
	// User is empty when none is named.
	User string
	// Kind is valid when KindGiven: else the kind of owner decides.
	Kind      core.Kind
	KindGiven bool
	Class     core.Class // valid when ClassGiven

	NotPreemptible, Locked bool
	// ClassGiven, PreemptibleGiven and LockedGiven say that an object says it, though it may say the default.
	ClassGiven, PreemptibleGiven, LockedGiven bool
	// Mobility is valid when MobilityGiven: else the namespace decides.
	Mobility                         core.Mobility
	MobilityGiven                    bool
	MinRuntime, Checkpoint, Estimate core.Time
	// LastCheckpoint is zero when unknown.
	LastCheckpoint time.Time
	// Required and Preferred are topology levels: names, node labels, "node" or
	// "hbd". Of several, separated by commas, the narrowest is meant.
	Required, Preferred string
	// Closeness is that of [core.TopologyRequest].
	Closeness    int64
	Combinations string // as [core.ParseCombinations] reads them, separated by |
	// Models are the GPU models accepted; none accepts any.
	Models []string
	// Fraction is a part of a GPU, 0 when none is asked for.
	Fraction core.Milli
	// GPUCount is how many whole GPUs are asked for that the kubelet does not count, 0 when none are.
	GPUCount int
	// GPUMemory is how much memory of one GPU is asked for, in MiB; 0 when none is.
	GPUMemory int64
	// PriorityClass names the class of the job's priority, where that of its pods
	// does not count.
	PriorityClass string
	// MinMember is the minimum number of pods of the gang, 0 if not given; Roles has
	// the minimum of each role for which one is given.
	MinMember int
	Roles     map[string]int
	// Patience is how long a gang waits for its pods to be made before those that
	// are there start one by one: 0 and, whatever other pods say, Never for ever.
	Patience core.Time
	// OnFailure says what becomes of a gang that loses a pod: "replace",
	// "requeue", or nothing.
	OnFailure string
	// StaleGrace is that of [core.Job].
	StaleGrace core.Time
	// SegmentSize is the number of pods of each segment of the gang, empty for no segments; SegmentTopology is the level
	// of which one domain holds a segment. Both are lists, separated by commas, where segments are in wider ones.
	SegmentSize, SegmentTopology string
	// Task is the role of the pod in its job, Stage the part of the job that it starts with.
	Task, Stage string
	// Unknown lists the keys in our domain or another scheduler's that are not known and suggests
	// known ones; it is empty if there are none.
	Unknown string
}

// attribute is one thing that can be said about a job: the labels or
// annotations that say it, ours first, then those of other schedulers
// ([keys.Peers]), and how the value is read.
type attribute struct {
	keys []string
	read func(a *Attributes, value string) error
}

var attributes = []attribute{
	{keys.Same(v1alpha1.QueueLabel), func(a *Attributes, v string) error {
		a.Queue = v
		return nil
	}},
	{keys.Same(v1alpha1.UserAnnotation), func(a *Attributes, v string) error {
		a.User = v
		return nil
	}},
	{only("yunikorn.apache.org/user.info"), userInfo},
	{keys.Same(v1alpha1.KindAnnotation), func(a *Attributes, v string) error {
		k := slices.Index(core.Kinds[:], v)
		if k < 0 {
			return fmt.Errorf("%q: expected one of %s", v, strings.Join(core.Kinds[:], ", "))
		}
		a.Kind, a.KindGiven = core.Kind(k), true
		return nil
	}},
	{keys.Same(v1alpha1.ClassAnnotation), func(a *Attributes, v string) error {
		switch v {
		case "HP", "LSE", "LSR", "LS":
			a.Class = core.HP
		case "LP", "BE":
			a.Class = core.LP
		default:
			return fmt.Errorf("%q: expected HP or LP", v)
		}
		a.ClassGiven = true
		return nil
	}},
	{keys.Same(v1alpha1.PreemptibleAnnotation), func(a *Attributes, v string) error {
		switch v {
		case "true", "preemptible":
			a.NotPreemptible = false
		case "false", "non-preemptible":
			a.NotPreemptible = true
		default:
			return fmt.Errorf("%q: expected true or false", v)
		}
		a.PreemptibleGiven = true
		return nil
	}},
	{keys.Same(v1alpha1.PriorityClassAnnotation), func(a *Attributes, v string) error {
		a.PriorityClass = v
		return nil
	}},
	{keys.Same(v1alpha1.LockedAnnotation), func(a *Attributes, v string) (err error) {
		a.Locked, err = boolean(v)
		a.LockedGiven = err == nil
		return err
	}},
	{mobilityKeys, func(a *Attributes, v string) (err error) {
		a.Mobility, err = mobility(v)
		a.MobilityGiven = err == nil
		return err
	}},
	{keys.Same(v1alpha1.MinRuntimeAnnotation), duration(func(a *Attributes) *core.Time { return &a.MinRuntime })},
	{keys.Same(v1alpha1.CheckpointIntervalAnnotation), duration(func(a *Attributes) *core.Time { return &a.Checkpoint })},
	{keys.Same(v1alpha1.WalltimeAnnotation), duration(func(a *Attributes) *core.Time { return &a.Estimate })},
	{keys.Same(v1alpha1.LastCheckpointAnnotation), func(a *Attributes, v string) error {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return fmt.Errorf("%q: expected a time such as 2026-01-31T12:00:00Z", v)
		}
		a.LastCheckpoint = t
		return nil
	}},
	{keys.Same(v1alpha1.RequiredTopologyAnnotation),
		func(a *Attributes, v string) error {
			a.Required = v
			return nil
		}},
	{keys.Same(v1alpha1.PreferredTopologyAnnotation),
		func(a *Attributes, v string) error {
			a.Preferred = v
			return nil
		}},
	{keys.Same(v1alpha1.ClosenessAnnotation), func(a *Attributes, v string) (err error) {
		if a.Closeness, err = core.ParseCloseness(v); err != nil {
			return fmt.Errorf("%q: expected %w", v, err)
		}
		return nil
	}},
	{keys.Same(v1alpha1.GPUCombinationsAnnotation), func(a *Attributes, v string) error { a.Combinations = v; return nil }},
	{keys.Same(v1alpha1.GPUModelsAnnotation), func(a *Attributes, v string) error {
		a.Models = nil
		for m := range strings.SplitSeq(strings.ReplaceAll(v, ",", "|"), "|") {
			if m = strings.TrimSpace(m); m == "" {
				return fmt.Errorf("%q: expected GPU models such as H800|A100", v)
			}
			a.Models = append(a.Models, m)
		}
		return nil
	}},
	{fractionKeys, func(a *Attributes, v string) (err error) {
		a.Fraction, err = fraction(v)
		return err
	}},
	{countKeys, func(a *Attributes, v string) (err error) {
		a.GPUCount, err = gpuCount(v)
		return err
	}},
	{keys.Same(v1alpha1.GPUMemoryAnnotation), func(a *Attributes, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 || n > 1<<30 {
			return fmt.Errorf("%q: expected an amount of one GPU's memory in MiB, such as 8192", v)
		}
		a.GPUMemory = n
		return nil
	}},
	{only("gpu-fraction-num-devices"), func(_ *Attributes, v string) error {
		if v != "1" {
			return fmt.Errorf("%q: a pod can have a fraction of one GPU, or whole GPUs: expected 1", v)
		}
		return nil
	}},
	{keys.Same(v1alpha1.MinMemberAnnotation), minMember},
	{only(taskGroupsKey), taskGroups},
	{only("yunikorn.apache.org/schedulingPolicyParameters"), policyParameters},
	{only(koordinatorGangs), func(_ *Attributes, v string) error { // MembershipOf uses it
		var list []string
		if err := json.Unmarshal([]byte(v), &list); err != nil {
			return fmt.Errorf("expected gangs in JSON, such as [\"namespace/name\"]: %w", err)
		}
		return nil
	}},
	{only("gang.scheduling.koordinator.sh/network-topology-spec"), gathering},
	{keys.Same(v1alpha1.OnFailureAnnotation), func(a *Attributes, v string) error {
		if v != "replace" && v != "requeue" {
			return fmt.Errorf("%q: expected replace or requeue", v)
		}
		a.OnFailure = v
		return nil
	}},
	{keys.Same(v1alpha1.StaleGraceAnnotation), func(a *Attributes, v string) (err error) {
		a.StaleGrace, err = v1alpha1.ParseStaleGrace(v)
		return err
	}},
	{keys.Same(v1alpha1.SegmentSizeAnnotation), func(a *Attributes, v string) (err error) {
		a.SegmentSize = v
		_, err = segmentSizes(v)
		return err
	}},
	{keys.Same(v1alpha1.SegmentTopologyAnnotation), func(a *Attributes, v string) error {
		a.SegmentTopology = v
		return nil
	}},
	{only(keys.KueueSlices), func(a *Attributes, v string) (err error) {
		if a.SegmentSize, a.SegmentTopology, err = keys.ReadKueueSlices(v); err == nil {
			_, err = segmentSizes(a.SegmentSize)
		}
		return err
	}},
	{keys.Same(v1alpha1.StageAnnotation), func(a *Attributes, v string) error {
		a.Stage = v
		return nil
	}},
	{keys.Same(v1alpha1.TaskAnnotation), func(a *Attributes, v string) error {
		a.Task = v
		return nil
	}},
}

// fractionKeys ask for a part of a GPU.
var fractionKeys = keys.Same(v1alpha1.GPUFractionAnnotation)

// countKeys ask for whole GPUs that the kubelet does not count.
var countKeys = keys.Same(v1alpha1.GPUCountAnnotation)

// mobilityKeys say how running pods may be moved.
var mobilityKeys = keys.Same(v1alpha1.MobilityAnnotation)

func only(k ...string) []string { return k }

// SystemClasses is the prefix of the PriorityClasses for the cluster's own pods.
const SystemClasses = "system-"

// MayNameClass reports whether a label or an annotation may name a PriorityClass for a
// job. The limits that Kubernetes sets on the use of classes do not cover labels and
// annotations.
func MayNameClass(class, namespace string) bool {
	return !strings.HasPrefix(class, SystemClasses) || namespace == metav1.NamespaceSystem
}

// Read sets the attributes that the object's labels and annotations contain; others do
// not change. Our keys take precedence over those of other schedulers, and labels over
// annotations. The first error names the label and what was expected; valid values are
// set even then.
func (a *Attributes) Read(o keys.Labelled) error {
	var bad error
	for i := range attributes {
		key, value, ok := lookup(o, attributes[i].keys)
		if !ok {
			continue
		}
		if err := attributes[i].read(a, value); err != nil && bad == nil {
			bad = fmt.Errorf("%s: %w", key, err)
		}
	}
	if _, v, ok := lookup(o, only("queue")); ok && a.Queue == "" && application(o) != "" {
		a.Queue = v
	}
	a.Unknown = keys.Unknown(o)
	return cmp.Or(bad, a.volcanoTopology(o), keys.Refusal(o))
}

// Over returns the attributes of a and, where a has none, those of b.
func (a Attributes) Over(b *Attributes) Attributes {
	a.Queue, a.User, a.Task = cmp.Or(a.Queue, b.Queue), cmp.Or(a.User, b.User), cmp.Or(a.Task, b.Task)
	a.Required, a.Preferred = cmp.Or(a.Required, b.Required), cmp.Or(a.Preferred, b.Preferred)
	a.Closeness, a.Combinations = cmp.Or(a.Closeness, b.Closeness), cmp.Or(a.Combinations, b.Combinations)
	a.SegmentSize, a.SegmentTopology = cmp.Or(a.SegmentSize, b.SegmentSize), cmp.Or(a.SegmentTopology, b.SegmentTopology)
	if !a.KindGiven {
		a.Kind, a.KindGiven = b.Kind, b.KindGiven
	}
	if !a.MobilityGiven {
		a.Mobility, a.MobilityGiven = b.Mobility, b.MobilityGiven
	}
	if !a.ClassGiven {
		a.Class, a.ClassGiven = b.Class, b.ClassGiven
	}
	if !a.PreemptibleGiven {
		a.NotPreemptible, a.PreemptibleGiven = b.NotPreemptible, b.PreemptibleGiven
	}
	if !a.LockedGiven {
		a.Locked, a.LockedGiven = b.Locked, b.LockedGiven
	}
	a.MinRuntime, a.Checkpoint = cmp.Or(a.MinRuntime, b.MinRuntime), cmp.Or(a.Checkpoint, b.Checkpoint)
	a.Estimate, a.MinMember = cmp.Or(a.Estimate, b.Estimate), cmp.Or(a.MinMember, b.MinMember)
	a.Fraction, a.OnFailure = cmp.Or(a.Fraction, b.Fraction), cmp.Or(a.OnFailure, b.OnFailure)
	a.PriorityClass, a.Unknown = cmp.Or(a.PriorityClass, b.PriorityClass), cmp.Or(a.Unknown, b.Unknown)
	a.Patience, a.GPUMemory = cmp.Or(a.Patience, b.Patience), cmp.Or(a.GPUMemory, b.GPUMemory)
	a.GPUCount, a.StaleGrace = cmp.Or(a.GPUCount, b.GPUCount), cmp.Or(a.StaleGrace, b.StaleGrace)
	if a.Roles == nil {
		a.Roles = b.Roles
	}
	if a.LastCheckpoint.IsZero() {
		a.LastCheckpoint = b.LastCheckpoint
	}
	if a.Models == nil {
		a.Models = b.Models
	}
	return a
}

// OfGPUs reports whether there is any value about GPUs.
func (a *Attributes) OfGPUs() bool {
	return a.Models != nil || a.Fraction > 0 || a.GPUCount > 0 || a.GPUMemory > 0
}

// Minimum is the minimum number of pods of the gang, of all its roles; 0 if not given.
func (a *Attributes) Minimum() int { return max(a.MinMember, sum(a.Roles)) }

func sum(roles map[string]int) int {
	n := 0
	for _, minimum := range roles {
		n += minimum
	}
	return n
}

// NamespaceQueue is the queue that the labels of a namespace name, for all that
// name none themselves.
func NamespaceQueue(labels map[string]string) string {
	_, queue, _ := lookup(&metav1.ObjectMeta{Labels: labels}, attributes[0].keys)
	return queue
}

// NamespaceMobility is what the labels of a namespace say about all its jobs that say
// nothing themselves: they stay, unless a label says otherwise.
func NamespaceMobility(labels map[string]string) core.Mobility {
	_, v, _ := lookup(&metav1.ObjectMeta{Labels: labels}, mobilityKeys)
	m, _ := mobility(v)
	return m
}

// NamespaceSaysMobility reports whether the labels of a namespace say anything about that.
func NamespaceSaysMobility(labels map[string]string) bool {
	_, _, ok := lookup(&metav1.ObjectMeta{Labels: labels}, mobilityKeys)
	return ok
}

// lookup finds the first of the keys that is a label or an annotation of o.
func lookup(o keys.Labelled, names []string) (key, value string, ok bool) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	for _, k := range names {
		if v, ok := labels[k]; ok {
			return k, v, true
		}
		if v, ok := annotations[k]; ok {
			return k, v, true
		}
	}
	return "", "", false
}

// minMember reads how many pods a gang needs: a number or, by role,
// "ps=1,worker=3".
func minMember(a *Attributes, v string) error {
	if !strings.Contains(v, "=") {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > core.MaxPods {
			return fmt.Errorf("%q: expected a number of pods from 1 to %d, or one for each role, as in ps=1,worker=3", v, core.MaxPods)
		}
		a.MinMember = n
		return nil
	}
	roles := map[string]int{}
	for part := range strings.SplitSeq(v, ",") {
		role, minimum, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(minimum)
		if err != nil || n < 1 || n > core.MaxPods || role == "" || roles[role] > 0 {
			return fmt.Errorf("%q: expected each role once with its number of pods from 1 to %d, as in ps=1,worker=3", v, core.MaxPods)
		}
		roles[role] = n
	}
	a.Roles = roles
	return nil
}

// gathering reads Koordinator's strategies for the layers of its network
// topology.
func gathering(a *Attributes, v string) error {
	var spec struct {
		GatherStrategy []struct{ Layer, Strategy string }
	}
	if err := json.Unmarshal([]byte(v), &spec); err != nil {
		return fmt.Errorf("expected a gatherStrategy in JSON: %w", err)
	}
	var required, preferred []string
	for _, s := range spec.GatherStrategy {
		if s.Layer == "NodeTopologyLayer" {
			s.Layer = cluster.NodeLevel
		}
		switch s.Strategy {
		case "MustGather":
			required = append(required, s.Layer)
		case "PreferGather":
			preferred = append(preferred, s.Layer)
		default:
			return fmt.Errorf("strategy %q: expected MustGather or PreferGather", s.Strategy)
		}
	}
	a.Required, a.Preferred = cmp.Or(a.Required, strings.Join(required, ",")), cmp.Or(a.Preferred, strings.Join(preferred, ","))
	return nil
}

func mobility(v string) (core.Mobility, error) {
	i := slices.Index(core.Mobilities[:], v)
	if i < 0 {
		return core.Stays, fmt.Errorf("%q: expected one of %s", v, strings.Join(core.Mobilities[:], ", "))
	}
	return core.Mobility(i), nil
}

func boolean(v string) (bool, error) {
	switch v {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q: expected true or false", v)
}

func duration(field func(*Attributes) *core.Time) func(*Attributes, string) error {
	return func(a *Attributes, v string) error {
		var d v1alpha1.Duration
		if err := d.UnmarshalText([]byte(v)); err != nil {
			return fmt.Errorf("%q: expected %w", v, err)
		}
		*field(a) = core.Time(d)
		return nil
	}
}
