package act

import (
	"sync"
	"time"
)

// lookPeriod is the interval at which unfinished work is checked.
const lookPeriod = time.Second

// unfinished is a list of what was begun at the API and is checked again until it has
// ended, in order, at most one entry per key.
type unfinished[T keyed] struct {
	mu   sync.Mutex
	list []T
	keys map[string]bool
}

type keyed interface{ key() string }

func (l *unfinished[T]) add(list ...T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = map[string]bool{}
	}
	for _, x := range list {
		if key := x.key(); !l.keys[key] {
			l.keys[key] = true
			l.list = append(l.list, x)
		}
	}
}

// take takes all off the list.
func (l *unfinished[T]) take() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list, l.keys = nil, nil
	return list
}

// each calls over for all, once; those for which it reports false stay, as over left them.
func (l *unfinished[T]) each(over func(*T) bool) {
	list := l.take()
	for i := range list {
		if !over(&list[i]) {
			l.add(list[i])
		}
	}
}
