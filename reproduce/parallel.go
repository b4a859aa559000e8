package reproduce

import (
	"context"
	"runtime"
	"sync"
)

// inParallel calls do with 0..n-1, as many at a time as there are cores, and
// returns the first error in that order. say is called before each, by one
// goroutine and in order. When ctx ends, no more is begun.
func inParallel(ctx context.Context, n int, say func(i int), do func(i int) error) error {
	next := make(chan int)
	errs := make([]error, n)
	var all sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := range next {
				errs[i] = do(i)
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		say(i)
		next <- i
	}
	close(next)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
