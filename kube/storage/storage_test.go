package storage

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

const driver = "disks.example.com"

func claim(name, class string, with ...func(*v1.PersistentVolumeClaim)) *Claim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}}}
	c.Spec.StorageClassName = &class
	for _, f := range with {
		f(c)
	}
	return ClaimOf(c)
}

// bound gives a claim the volume of its name.
func bound(c *v1.PersistentVolumeClaim) {
	c.Spec.VolumeName, c.Status.Phase = "pv-"+c.Name, v1.ClaimBound
	c.Annotations[volume.AnnBindCompleted] = "yes"
}

func exclusive(c *v1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
}

// chosen says for which node the volume is to be made.
func chosen(node string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Annotations[volume.AnnSelectedNode] = node }
}

// volumeAt is the volume of a claim, which some hosts reach, or all if there are none.
func volumeAt(claim string, hosts ...string) *Volume {
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim}}
	v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: claim}
	v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver}
	if len(hosts) > 0 {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "host", Operator: v1.NodeSelectorOpIn, Values: hosts}},
		}}}}
	}
	return VolumeOf(v)
}

func class(name string, late bool) *Class {
	mode := storagev1.VolumeBindingImmediate
	if late {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	return ClassOf(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &mode})
}

// limits is what a node can attach; less than none is no limit.
func limits(node string, volumes int32) *Limits {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	d := storagev1.CSINodeDriver{Name: driver, NodeID: node}
	if volumes >= 0 {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &volumes}
	}
	n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "files.example.com", NodeID: node}, d}
	return LimitsOf(n)
}

// pod is a pod that was created as the nth.
func pod(name string, nth int64, claims ...string) Pod {
	p := Pod{UID: types.UID(name), Namespace: "ns", Name: name, Created: time.Unix(nth, 0)}
	for _, c := range claims {
		p.Claims = append(p.Claims, translate.Claim{Name: c})
	}
	return p
}

// says fails the test unless an observation changed these pods, separated by spaces.
func says(t *testing.T, c Change, pods string) {
	t.Helper()
	var got []string
	for _, uid := range c.Pods {
		got = append(got, string(uid))
	}
	if s := strings.Join(got, " "); s != pods {
		t.Errorf("changed %q, expected %q", s, pods)
	}
}

// waits fails the test unless a pod waits for a reason that has the text, or not at all
// if it is empty.
func waits(t *testing.T, x *Index, pod, text string) {
	t.Helper()
	if got := x.Needs(types.UID(pod)).Wait; (got == "") != (text == "") || !strings.Contains(got, text) {
		t.Errorf("%s waits: %q, expected %q", pod, got, text)
	}
}

func goes(x *Index, pod, host string) bool {
	n := x.Needs(types.UID(pod)).Nodes
	return n.Allows(map[string]string{"host": host})
}

// Until a claim is bound, the pod is told what it waits for.
func TestClaimThatBecomesBound(t *testing.T) {
	x := New()
	says(t, x.ObservePod(pod("p", 1, "data")), "p")
	waits(t, x, "p", "volume claim data does not exist")
	says(t, x.ObserveClaim(claim("data", "fast")), "p")
	waits(t, x, "p", "storage class fast of claim data does not exist")
	says(t, x.ObserveClass(class("fast", false)), "p")
	waits(t, x, "p", "claim data is not bound to a volume yet")
	says(t, x.ObserveClaim(claim("data", "fast", bound)), "p")
	waits(t, x, "p", "volume pv-data of claim data does not exist")
	says(t, x.ObserveVolume(volumeAt("data", "a", "b")), "p")
	waits(t, x, "p", "")
	if !goes(x, "p", "a") || goes(x, "p", "c") {
		t.Error("p does not go where its volume can be reached, or elsewhere")
	}
	says(t, x.ObserveVolume(volumeAt("data", "a", "b")), "") // as before
	says(t, x.ObserveClaim(claim("other", "fast")), "")      // no pod uses it
	says(t, x.ObserveClaim(claim("data", "fast", bound, func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })), "p")
	waits(t, x, "p", "being deleted")
	says(t, x.ObserveClaim(claim("data", "fast", func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimLost })), "p")
	waits(t, x, "p", "has lost its volume")
	says(t, x.ForgetClaim(claim("data", "fast")), "p")
	says(t, x.ForgetPod("p"), "")
	if waits(t, x, "p", ""); x.Len() != 0 || len(x.users) != 0 {
		t.Error("a pod is left")
	}
}

func TestClaimOfAnotherPod(t *testing.T) {
	x := New()
	p := pod("p", 1)
	p.Claims = []translate.Claim{{Name: "p-scratch", Ephemeral: true}}
	x.ObserveClass(class("late", true))
	x.ObserveClaim(claim("p-scratch", "late"))
	x.ObservePod(p)
	waits(t, x, "p", "was not created for this pod")
	yes := true
	x.ObserveClaim(claim("p-scratch", "late", func(c *v1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: "p", Controller: &yes}}
	}))
	waits(t, x, "p", "")
}

// A claim for one pod at a time belongs to the pod that is placed, else to the oldest
// that could be.
func TestClaimForOnePod(t *testing.T) {
	x := New()
	x.ObserveClaim(claim("one", "", bound, exclusive))
	x.ObserveVolume(volumeAt("one"))
	old, young, youngest := pod("old", 1, "one"), pod("young", 2, "one"), pod("youngest", 3, "one")
	old.Blocked = true
	says(t, x.ObservePod(young), "")
	waits(t, x, "young", "")
	says(t, x.ObservePod(youngest), "youngest")
	waits(t, x, "youngest", "volume claim one can be used by one pod at a time, and pod young uses it")
	says(t, x.ObservePod(old), "") // it takes no claim away while it is blocked
	waits(t, x, "young", "")

	young.Placed = true
	says(t, x.ObservePod(young), "old")
	old.Blocked = false
	says(t, x.ObservePod(old), "")
	waits(t, x, "old", "pod young uses it")

	young.Placed = false                               // its binding failed: the claim is the oldest's
	says(t, x.ObservePod(young), "old young youngest") // of the youngest, whose the claim is
	waits(t, x, "old", "")
	waits(t, x, "young", "pod old uses it")
	waits(t, x, "youngest", "pod old uses it")
	says(t, x.ForgetPod("old"), "young youngest")
	waits(t, x, "young", "")
}

func TestVolumesMadeForTheNode(t *testing.T) {
	x := New()
	x.ObserveClass(class("late", true))
	for _, name := range []string{"a", "b"} {
		x.ObserveClaim(claim(name, "late"))
	}
	x.ObservePod(pod("p", 1, "a", "b"))
	x.ObservePod(pod("q", 2, "b"))
	if got := x.Needs("p").Unbound; len(got) != 2 {
		t.Fatalf("volumes are to be made for %v, expected both", got)
	}
	if got := x.Make("p", "n", 100); len(got) != 2 || got[0].Node != "n" || got[0].Claim.Name != "a" || got[0].UID != "uid-a" || got[0].Pod != "p" {
		t.Errorf("chosen: %+v", got)
	}
	if got := x.Make("q", "n", 100); len(got) != 0 { // p's choice is on its way
		t.Errorf("chosen twice: %+v", got)
	}
	says(t, x.ObserveClaim(claim("b", "late", chosen("n"))), "p q")
	node := &core.Node{Labels: map[string]string{"host": "n", translate.NodeName: "n"}}
	progress := func(pod, want string, done bool) {
		t.Helper()
		if ok, failure := x.Progress(types.UID(pod), 50, node); ok != done || failure != want {
			t.Errorf("%s: done %v, failure %q; expected %v, %q", pod, ok, failure, done, want)
		}
	}
	progress("p", "", false)
	x.ObserveClaim(claim("a", "late", chosen("n")))
	progress("p", "", false)
	x.ObserveClaim(claim("a", "late", bound))
	progress("p", "", false) // the volume itself is not known yet
	x.ObserveVolume(volumeAt("a", "n"))
	x.ObserveClaim(claim("b", "late", bound))
	x.ObserveVolume(volumeAt("b", "elsewhere"))
	progress("p", "a volume was created that the node cannot reach", false)
	x.ObserveVolume(volumeAt("b", "n"))
	progress("p", "", true)
	if got := fmt.Sprint(x.Making()); got != "[q]" {
		t.Errorf("volumes are made for %s, expected q alone", got)
	}
}

func TestVolumesThatAreNotMade(t *testing.T) {
	for what, c := range map[string]struct {
		then    *Claim
		now     core.Time
		failure string
		removed int // choices
	}{
		"too late":         {claim("a", "late", chosen("n")), 100, "its volumes were not created in time", 1},
		"returned":         {claim("a", "late"), 50, "no volume can be created for the node", 0},
		"claim is deleted": {nil, 50, "volume claim a no longer exists", 0},
	} {
		t.Run(what, func(t *testing.T) {
			x := New()
			x.ObserveClass(class("late", true))
			x.ObserveClaim(claim("a", "late"))
			x.ObservePod(pod("p", 1, "a"))
			x.Make("p", "n", 100)
			x.ObserveClaim(claim("a", "late", chosen("n")))
			if done, failure := x.Progress("p", 50, &core.Node{}); done || failure != "" {
				t.Fatalf("done %v, failure %q", done, failure)
			}
			if c.then == nil {
				x.ForgetClaim(claim("a", "late"))
			} else {
				x.ObserveClaim(c.then)
			}
			if done, failure := x.Progress("p", c.now, &core.Node{}); done || failure != c.failure {
				t.Errorf("done %v, failure %q; expected %q", done, failure, c.failure)
			}
			got := x.GiveUp("p")
			if len(got) != c.removed || len(got) > 0 && (got[0].Node != "" || got[0].UID != "uid-a") {
				t.Errorf("to be removed: %+v", got)
			}
			if len(x.Making()) > 0 || x.GiveUp("p") != nil {
				t.Error("it is waited for still")
			}
		})
	}
}

func TestVolumesThatNodesAttach(t *testing.T) {
	x := New()
	x.ObserveClass(class("late", true))
	for _, name := range []string{"a", "b"} {
		x.ObserveClaim(claim(name, "late"))
	}
	x.ObservePod(pod("p", 1, "a", "b"))
	x.ObservePod(pod("none", 1))
	if x.Attachable("n") != nil || x.Needs("p").Attached != nil {
		t.Error("volumes are counted that no node limits")
	}
	c := x.ObserveLimits(limits("n", 3))
	if says(t, c, "p"); !c.Drivers || !slices.Equal(c.Nodes, []string{"n"}) {
		t.Errorf("a driver is counted from now on: %+v", c)
	}
	if got := fmt.Sprint(x.Needs("p").Attached, x.Attachable("n"), x.Attachable("other")); got !=
		"[{attachable-volumes-csi-disks.example.com 2}] [{attachable-volumes-csi-disks.example.com 3}] [{attachable-volumes-csi-disks.example.com 1048576}]" {
		t.Errorf("taken, and there: %s", got)
	}
	c = x.ObserveLimits(limits("m", 1))
	if says(t, c, ""); c.Drivers || !slices.Equal(c.Nodes, []string{"m"}) {
		t.Errorf("the driver was counted before: %+v", c)
	}
	if c := x.ObserveLimits(limits("m", 1)); !reflect.DeepEqual(c, Change{}) {
		t.Errorf("nothing changed: %+v", c)
	}
	if c := x.ReplaceLimits([]*Limits{limits("n", 3), limits("m", -1)}); c.Drivers || !slices.Equal(c.Nodes, []string{"m"}) {
		t.Errorf("m has no limit: %+v", c)
	}
	c = x.ForgetLimits(limits("n", 3))
	if says(t, c, "p"); !c.Drivers || x.Attachable("n") != nil || len(x.limits)+len(x.limited) > 0 {
		t.Errorf("nothing is counted any more: %+v", c)
	}
}

// What an observation reports is what it changed, and the answers are those of an index
// that learned the same at once.
func TestChangesAreWhatChanged(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		pick := func(prefix string) string { return fmt.Sprint(prefix, r.IntN(3)) }
		x := New()
		pods, claims, volumes := map[types.UID]Pod{}, map[string]*Claim{}, map[string]*Volume{}
		classes, nodes := map[string]*Class{}, map[string]*Limits{}
		for range 200 {
			before := map[types.UID]*Needs{}
			for uid := range pods {
				before[uid] = x.Needs(uid)
			}
			var c Change
			switch r.IntN(9) {
			case 0, 1:
				name := fmt.Sprint("p", r.IntN(6))
				p, there := pods[types.UID(name)]
				if !there {
					p = pod(name, r.Int64N(4), "c0", "c1", "c2")
					p.Claims = p.Claims[r.IntN(3):]
				}
				p.Placed, p.Blocked = r.IntN(3) == 0, r.IntN(3) == 0
				pods[p.UID] = p
				c = x.ObservePod(p)
			case 2:
				uid := types.UID(fmt.Sprint("p", r.IntN(6)))
				delete(pods, uid)
				c = x.ForgetPod(uid)
			case 3, 4, 5:
				o := claim(pick("c"), pick("s"), func(o *v1.PersistentVolumeClaim) {
					if r.IntN(2) == 0 {
						bound(o)
					}
					if r.IntN(2) == 0 {
						exclusive(o)
					}
					if r.IntN(4) == 0 {
						chosen("n0")(o)
					}
				})
				if claims[o.Name] = o; r.IntN(4) > 0 {
					c = x.ObserveClaim(o)
				} else {
					delete(claims, o.Name)
					c = x.ForgetClaim(o)
				}
			case 6:
				v := volumeAt(pick("c"), pick("n"))
				if volumes[v.Name] = v; r.IntN(3) > 0 {
					c = x.ObserveVolume(v)
				} else {
					delete(volumes, v.Name)
					c = x.ForgetVolume(v)
				}
			case 7:
				o := class(pick("s"), r.IntN(2) == 0)
				if classes[o.Name] = o; r.IntN(3) > 0 {
					c = x.ObserveClass(o)
				} else {
					delete(classes, o.Name)
					c = x.ForgetClass(o)
				}
			case 8:
				l := limits(pick("n"), r.Int32N(3)-1)
				nodes[l.Name] = l
				c = x.ObserveLimits(l)
			}
			twin := New()
			for _, p := range pods {
				twin.ObservePod(p)
			}
			twin.ReplaceClaims(values(claims))
			twin.ReplaceVolumes(values(volumes))
			twin.ReplaceClasses(values(classes))
			twin.ReplaceLimits(values(nodes))
			var changed []types.UID
			for uid := range pods {
				now := x.Needs(uid)
				if want := twin.Needs(uid); !now.equal(want) {
					t.Fatalf("seed %d: %s needs %+v, expected %+v", seed, uid, now, want)
				}
				if old := before[uid]; old != nil && !now.equal(old) || old == nil && !now.equal(&nothing) {
					changed = append(changed, uid)
				}
			}
			if slices.Sort(changed); !slices.Equal(changed, c.Pods) {
				t.Fatalf("seed %d: %v are reported, %v changed", seed, c.Pods, changed)
			}
		}
	}
}

func values[T any](m map[string]T) []T {
	var out []T
	for _, v := range m {
		out = append(out, v)
	}
	return out
}
