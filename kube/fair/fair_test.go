package fair

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func all(q *Queue[string]) string {
	var out []string
	for x, ok := q.Take(); ok; x, ok = q.Take() {
		out = append(out, x)
	}
	return strings.Join(out, " ")
}

func put(q *Queue[string], items ...string) {
	for _, x := range items {
		q.Put(x[:1], x)
	}
}

// A namespace with much to do delays each thing of another one by one of its own.
func TestTurns(t *testing.T) {
	var q Queue[string]
	for i := range 1000 {
		q.Put("a", fmt.Sprint("a", i))
	}
	put(&q, "b1", "c1", "b2")
	var first []string
	for range 6 {
		x, _ := q.Take()
		first = append(first, x)
	}
	if got := strings.Join(first, " "); got != "a0 b1 c1 a1 b2 a2" || q.Len() != 997 {
		t.Errorf("%s, and %d left", got, q.Len())
	}
	// What comes to a namespace that had its turn waits for one of each other namespace.
	put(&q, "b3", "c2", "b4")
	if got := all(&q); !strings.HasPrefix(got, "a3 b3 c2 a4 b4 a5 a6 ") || q.Len() != 0 {
		t.Errorf("%.40s, and %d left", got, q.Len())
	}
	if len(q.lines)+len(q.turns) > 0 {
		t.Errorf("the empty queue keeps %d namespaces", len(q.lines))
	}
}

// What is dropped is gone, and turns stay.
func TestDrop(t *testing.T) {
	var q Queue[string]
	put(&q, "a1", "b1", "a2", "c1", "b2", "c2")
	q.Drop(func(x string) bool { return slices.Contains([]string{"a1", "b1", "b2"}, x) })
	if q.Len() != 3 {
		t.Errorf("%d are left", q.Len())
	}
	put(&q, "b3")
	if got := all(&q); got != "a2 c1 b3 c2" {
		t.Errorf("%s", got)
	}
}
