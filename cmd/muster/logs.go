package main

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/muster-sched/muster/semantic/logtext"
)

// openLog opens the log of a job: a file, also one that gzip compressed, or - for stdin.
func openLog(path string, stdin io.Reader) (io.ReadCloser, error) {
	in := io.NopCloser(stdin)
	if path != "-" {
		f, err := openLogFile(path)
		if err != nil {
			return nil, err
		}
		in = f
	}
	r, err := logtext.Plain(in)
	if err != nil {
		in.Close()
		return nil, unreadable(path, err)
	}
	return both{r, in}, nil
}

// both reads from one thing and closes another.
type both struct {
	io.Reader
	io.Closer
}

func openLogFile(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if s, err := f.Stat(); err == nil && s.IsDir() {
		f.Close()
		return nil, unreadable(path, syscall.EISDIR)
	}
	return f, nil
}

// growing reads a file that others write to. At its end it waits for more, until the context is done. A file that was emptied is read again
// from its begin.
type growing struct {
	ctx  context.Context
	file *os.File
	poll time.Duration
	at   int64
}

func (g *growing) Read(p []byte) (int, error) {
	for {
		n, err := g.file.ReadAt(p, g.at)
		if g.at += int64(n); n > 0 {
			return n, nil
		}
		if err != io.EOF {
			return 0, err
		}
		if s, err := g.file.Stat(); err == nil && s.Size() < g.at {
			g.at = 0
			continue
		}
		select {
		case <-g.ctx.Done():
			return 0, io.EOF
		case <-time.After(g.poll):
		}
	}
}
