package checkpoint

import "sync"

// held is the processes that a backend leads, by ID: what it has open of each is locked, so that no other command leads it, until it is
// closed. It is safe for concurrent use.
type held[T interface{ Close() }] struct {
	mu sync.Mutex
	of map[int]T
}

// get returns what is open of a process, false if the backend does not lead it.
func (h *held[T]) get(pid int) (T, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.of[pid]
	return x, ok
}

// lead returns what is open of a process. If nothing is, it opens and locks it.
func (h *held[T]) lead(pid int, open func() (T, error), lock func(T) error) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x, ok := h.of[pid]; ok {
		return x, nil
	}
	x, err := open()
	if err != nil {
		return x, err
	}
	if err := lock(x); err != nil {
		x.Close()
		return x, err
	}
	if h.of == nil {
		h.of = map[int]T{}
	}
	h.of[pid] = x
	return x, nil
}

// release lets other commands lead a process.
func (h *held[T]) release(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x, ok := h.of[pid]; ok {
		x.Close()
		delete(h.of, pid)
	}
}

// close is release for all processes.
func (h *held[T]) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.of {
		x.Close()
	}
	h.of = nil
}
