package kube

import (
	"sync"
	"time"
)

// lookPeriod is how often what is unfinished is looked at.
const lookPeriod = time.Second

// unfinished is what was begun at the API and is looked at again until it is over,
// in order, one of each key.
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

// each looks at all once; those of which over does not say so stay, as it left them.
func (l *unfinished[T]) each(over func(*T) bool) {
	l.mu.Lock()
	list := l.list
	l.list, l.keys = nil, nil
	l.mu.Unlock()
	for i := range list {
		if !over(&list[i]) {
			l.add(list[i])
		}
	}
}
