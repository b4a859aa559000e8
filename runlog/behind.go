package runlog

import "io"

// behind writes to out in a goroutine of its own, one chunk at a time, so that
// compression and hashing run in parallel with the run. The caller must call Close.
type behind struct {
	out   io.WriteCloser
	chunk []byte
	full  chan []byte // to be written
	free  chan []byte // written
	done  chan struct{}
	err   error // of out; the goroutine's until done is closed
	over  bool  // it was closed
}

const (
	chunkSize = 256 << 10
	chunks    = 4
)

func newBehind(out io.WriteCloser) *behind {
	b := &behind{
		out:  out,
		full: make(chan []byte, chunks),
		free: make(chan []byte, chunks),
		done: make(chan struct{}),
	}
	for range chunks - 1 {
		b.free <- make([]byte, 0, chunkSize)
	}
	b.chunk = make([]byte, 0, chunkSize)
	go b.write()
	return b
}

// write writes the full chunks, then closes out. After an error it only takes
// them.
func (b *behind) write() {
	defer close(b.done)
	for chunk := range b.full {
		if b.err == nil {
			_, b.err = b.out.Write(chunk)
		}
		b.free <- chunk[:0]
	}
	if err := b.out.Close(); b.err == nil {
		b.err = err
	}
}

// Write implements [io.Writer]. Errors are Close's to return.
func (b *behind) Write(p []byte) (int, error) {
	b.chunk = append(b.chunk, p...)
	if len(b.chunk) > chunkSize-longLine {
		b.full <- b.chunk
		b.chunk = <-b.free
	}
	return len(p), nil
}

// longLine is how much room a chunk has left at least when it is handed on.
const longLine = 4 << 10

// Close writes what is left, closes out and returns the first error; a second call only
// returns that error.
func (b *behind) Close() error {
	if b.over {
		return b.err
	}
	b.over = true
	b.full <- b.chunk
	close(b.full)
	<-b.done
	return b.err
}
