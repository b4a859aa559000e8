// Package feed turns what the watches of client-go observe into facts in a mailbox, which one
// goroutine applies to the tables that it owns. It knows neither the tables nor the objects.
//
//	mailbox.go   facts, in the order in which they arrived
//	feed.go      a watched kind of object: each change of an object becomes a fact
package feed

import (
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Feed is where a watch of one kind of object puts what it observes.
type Feed interface {
	cache.ReflectorStore
	// Synced is closed when all objects of the kind have been listed once.
	Synced() <-chan struct{}
}

// Tables are what facts change. An object on which a change panics is left out, so that it
// does not end the process.
type Tables interface {
	// TakeIn calls a function that adds or removes an object, and reports whether it did not panic.
	TakeIn(object any, f func()) bool
	// Reduce leaves only the minimum of an object on which TakeIn failed.
	Reduce(object any)
	// Unread says that an object is left out, with the value of the panic and its stack.
	Unread(object, value any, stack []byte)
}

// Watched is a kind of object that is watched: what is kept of it, and how it changes the
// tables M.
type Watched[M Tables, T any] struct {
	// Bare is what is kept of an object that cannot be cut down; nil for nothing.
	Bare   func(any) (T, bool)
	box    *Mailbox[M]
	trim   func(any) (T, bool)
	seen   func(M, T)
	gone   func(M, T)
	listed func(M, []T)
	once   sync.Once
	synced chan struct{} // closed when all were listed once
}

// Follow returns the feed of a kind of object of type O, of which a T is kept. seen and gone
// handle one object, listed all objects of the kind.
func Follow[M Tables, O, T any](box *Mailbox[M], trim func(O) T, seen, gone func(M, T), listed func(M, []T)) *Watched[M, T] {
	return &Watched[M, T]{box: box, trim: As(trim), seen: seen, gone: gone, listed: listed, synced: make(chan struct{})}
}

// As turns a function of an object of type O into one of the object of a watch.
func As[O, T any](trim func(O) T) func(any) (T, bool) {
	return func(o any) (T, bool) {
		if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = d.Obj
		}
		if whole, ok := o.(O); ok {
			return trim(whole), true
		}
		var none T
		return none, false
	}
}

// Transformer lets a list be trimmed object by object as it comes.
func (w *Watched[M, T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := w.trimmed(o); ok {
			return t, nil
		}
		return o, nil
	}
}

func (w *Watched[M, T]) trimmed(o any) (t T, ok bool) {
	if t, ok := o.(T); ok {
		return t, true
	}
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			w.box.Put(func(m M) { m.Unread(o, v, stack) })
			if w.Bare != nil {
				t, ok = w.Bare(o)
			}
		}
	}()
	return w.trim(o)
}

// Add handles a new object.
func (w *Watched[M, T]) Add(o any) error { return w.each(o, w.seen, true) }

// Update handles a changed object.
func (w *Watched[M, T]) Update(o any) error { return w.each(o, w.seen, true) }

// Delete handles a deleted object.
func (w *Watched[M, T]) Delete(o any) error { return w.each(o, w.gone, false) }

func (w *Watched[M, T]) each(o any, f func(M, T), stays bool) error {
	t, ok := w.trimmed(o)
	if !ok {
		return fmt.Errorf("unexpected %T", o)
	}
	w.box.Put(func(m M) {
		if !m.TakeIn(t, func() { f(m, t) }) && stays {
			m.Reduce(t)
		}
	})
	return nil
}

// Replace handles the list of all objects: at the start, and after a watch was lost.
func (w *Watched[M, T]) Replace(list []any, _ string) error {
	all := make([]T, 0, len(list))
	for _, o := range list {
		if t, ok := w.trimmed(o); ok {
			all = append(all, t)
		}
	}
	w.box.Put(func(m M) { m.TakeIn(all, func() { w.listed(m, all) }) })
	w.once.Do(func() { close(w.synced) })
	return nil
}

// Synced is closed when all objects were listed once.
func (w *Watched[M, T]) Synced() <-chan struct{} { return w.synced }

// Resync has nothing to do: nothing is cached.
func (w *Watched[M, T]) Resync() error { return nil }

// Compare calls seen for all objects of a list, and gone for all others in the table.
func Compare[M Tables, K comparable, V, T any](m M, table map[K]V, list []T, key func(T) K, seen func(T), gone func(K)) {
	there := make(map[K]bool, len(list))
	for _, o := range list {
		there[key(o)] = true
		if !m.TakeIn(o, func() { seen(o) }) {
			m.Reduce(o)
		}
	}
	for k := range table {
		if !there[k] {
			m.TakeIn(k, func() { gone(k) })
		}
	}
}
