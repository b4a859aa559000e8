package follow

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/translate"
)

// A job is told when an object changes that was read for it: at once, then at most once a second.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the test shows it the objects
		var mu sync.Mutex
		var told []string
		w := New(nil, func(g translate.Group) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, g.Name)
		}, slog.New(slog.DiscardHandler))
		groups := schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
		w.kinds[groups] = map[types.NamespacedName]*followed{} // as if it was watched
		k := kind{w, groups}
		version := 0
		object := func(name string, generation int64, queue string) *metav1.PartialObjectMetadata {
			version++
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, UID: "1", Generation: generation, Labels: map[string]string{"queue": queue}, ResourceVersion: strconv.Itoa(version),
			}}
		}
		job := func(name string) translate.Group {
			return translate.Group{Namespace: "ns", Kind: translate.ByGang, Name: name}
		}
		at := func(name string) Object { return Object{groups, "ns", name} }
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(told)
			if !slices.Equal(told, want) {
				t.Errorf("%s: told %v, want %v", what, told, want)
			}
			told = nil
		}
		read := func(of, name string, o *metav1.PartialObjectMetadata) {
			w.Follow(ctx, job(of), at(name))
			if o == nil {
				w.Read(job(of), at(name), nil)
			} else {
				w.Read(job(of), at(name), o)
			}
		}
		both := object("both", 1, "q")
		read("a", "a", object("a", 1, "q"))
		read("b", "both", both)
		read("c", "both", both)
		read("c", "none", nil)
		_ = k.Replace([]any{object("a", 1, "q"), object("both", 1, "q")}, "")
		_ = k.Update(object("a", 1, "q")) // of its status
		_ = k.Update(object("x", 2, "q")) // nobody's
		expect("nothing has changed")
		_ = k.Update(object("a", 2, "q"))
		expect("another spec", "a")
		_ = k.Update(object("a", 2, "p"))
		_ = k.Update(object("a", 3, "p"))
		expect("too soon")
		time.Sleep(pause)
		expect("once for both", "a")
		time.Sleep(pause)
		_ = k.Add(object("none", 1, "q"))
		expect("made late", "c")
		time.Sleep(pause)
		_ = k.Delete(object("both", 1, "q"))
		expect("deleted", "b", "c")
		time.Sleep(pause)
		_ = k.Replace([]any{object("a", 3, "p"), object("both", 1, "q")}, "")
		expect("seen after the watch was lost", "b", "c")
		// What changes while it is read.
		time.Sleep(pause)
		w.Follow(ctx, job("d"), at("late"))
		was := object("late", 1, "q")
		_ = k.Update(object("late", 2, "q"))
		expect("not read yet")
		w.Read(job("d"), at("late"), was)
		expect("read before it changed", "d")
		w.Read(job("d"), at("late"), nil)
		time.Sleep(pause)
		expect("read before it was made", "d")
		w.Drop(job("d"))
		// The watch is behind: the other job learns of it from the one that reads.
		time.Sleep(pause)
		was, now := object("both", 1, "q"), object("both", 5, "q")
		read("c", "both", now)
		_ = k.Update(was)
		_ = k.Update(now)
		expect("read by another", "b")
		w.Drop(job("c"))
		time.Sleep(pause)
		_ = k.Delete(object("none", 1, "q"))
		_ = k.Update(object("both", 6, "q"))
		expect("dropped", "b")
		w.Drop(job("a"))
		w.Drop(job("b"))
		if len(w.kinds[groups]) > 0 || len(w.jobs) > 0 {
			t.Errorf("something is left: %v, %v", w.kinds, w.jobs)
		}
	})
}
