// Package fair has a queue in which namespaces take turns, so that what waits for one of them does not wait for
// the many things of another; and an allowance, which bounds how many different things each uses.
package fair

// Queue takes one of each namespace that has any, in turn; of a namespace what was put first. The zero value is empty. It is
// not safe for concurrent use.
type Queue[T any] struct {
	lines map[string]*line[T] // those that are not empty
	turns []*line[T]          // the next one first
	n     int
}

// line is what waits of a namespace.
type line[T any] struct {
	namespace string
	items     []T
}

// Put adds an item of a namespace.
func (q *Queue[T]) Put(namespace string, x T) {
	l := q.lines[namespace]
	if l == nil {
		l = &line[T]{namespace: namespace}
		if q.lines == nil {
			q.lines = map[string]*line[T]{}
		}
		q.lines[namespace] = l
		q.turns = append(q.turns, l)
	}
	l.items = append(l.items, x)
	q.n++
}

// Take takes the item whose turn it is; false if there is none.
func (q *Queue[T]) Take() (x T, ok bool) {
	if len(q.turns) == 0 {
		return x, false
	}
	l := q.turns[0]
	q.turns[0], q.turns = nil, q.turns[1:]
	var none T
	x, l.items[0] = l.items[0], none
	if l.items = l.items[1:]; len(l.items) > 0 {
		q.turns = append(q.turns, l)
	} else {
		delete(q.lines, l.namespace)
	}
	q.n--
	return x, true
}

// Drop takes out all items of which a function says so.
func (q *Queue[T]) Drop(drop func(T) bool) {
	turns := q.turns[:0]
	for _, l := range q.turns {
		kept := make([]T, 0, len(l.items))
		for _, x := range l.items {
			if !drop(x) {
				kept = append(kept, x)
			}
		}
		q.n -= len(l.items) - len(kept)
		if l.items = kept; len(kept) > 0 {
			turns = append(turns, l)
		} else {
			delete(q.lines, l.namespace)
		}
	}
	clear(q.turns[len(turns):])
	q.turns = turns
}

// Len is how many items there are.
func (q *Queue[T]) Len() int { return q.n }
