package supervise

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// output copies what the processes print, by a named pipe: under its path they find it again when they come back, with what was in it.
type output struct {
	path  string
	read  *os.File
	write *os.File // held, so that the pipe has a writer until close

	mu    sync.Mutex
	held  chan struct{} // closed when copying may go on
	last  bool          // then with what is in the pipe alone
	ended chan struct{}
}

// open makes the pipe, and copies from it.
func open(path string, to io.Writer) (*output, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	o := &output{path: path, ended: make(chan struct{})}
	var err error
	if o.read, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	if o.write, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		o.read.Close()
		return nil, err
	}
	go o.copy(to)
	return o, nil
}

func (o *output) copy(to io.Writer) {
	defer close(o.ended)
	buffer := make([]byte, 64<<10)
	for {
		n, err := o.read.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); errors.Is(err, unix.EPIPE) {
				o.read.Close() // and the processes are told so, too, by SIGPIPE
				return
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if last := o.wait(); !last {
				continue
			}
			o.rest(to)
			return
		}
		if err != nil {
			return
		}
	}
}

// stop stops the copying until the result is closed.
func (o *output) stop(last bool) chan struct{} {
	held := make(chan struct{})
	o.mu.Lock()
	o.held, o.last = held, last
	o.mu.Unlock()
	o.read.SetReadDeadline(time.Unix(1, 0))
	return held
}

func (o *output) wait() (last bool) {
	o.mu.Lock()
	held, last := o.held, o.last
	o.mu.Unlock()
	<-held
	return last
}

// rest copies what is in the pipe.
func (o *output) rest(to io.Writer) {
	o.read.SetReadDeadline(time.Time{})
	raw, err := o.read.SyscallConn()
	if err != nil {
		return
	}
	n := 0
	if raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) == nil && err == nil {
		io.CopyN(to, o.read, int64(n))
	}
}

// hold stops the copying, so that what the processes print stays in the pipe, and goes with them. release lets it go on, or ends it where they have
// gone.
func (o *output) hold() (release func(gone bool)) {
	held := o.stop(false)
	return func(gone bool) {
		if gone {
			o.read.Close()
		}
		o.read.SetReadDeadline(time.Time{})
		close(held)
	}
}

// close copies what the processes have printed, and waits for no process that was left behind and may print more.
func (o *output) close() {
	o.write.Close()
	close(o.stop(true))
	<-o.ended
	o.read.Close()
	os.Remove(o.path)
}
