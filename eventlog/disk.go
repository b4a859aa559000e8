package eventlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-sched/muster/internal/durable"
)

// disk writes files in a goroutine of its own, so that no caller waits for a disk
// that hangs.
type disk struct {
	dir  string
	most int // files
	acts chan act
	done chan struct{}
	busy atomic.Int64 // acts that are not done
	// sync makes what was written durable: that a disk is full may show only then.
	sync func(*os.File) error

	mu  sync.Mutex
	err error // since the last file was created
}

// act is one operation: create a file, append data to it, or close it.
type act struct {
	create, end bool
	data        []byte
	did         chan struct{} // closed when it is done, if set
}

// backlog is the maximum number of waiting acts.
const backlog = 256

var errSlow = errors.New("the disk is too slow")

func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func newDisk(dir string, most int) *disk {
	d := &disk{dir: dir, most: most, sync: (*os.File).Sync, acts: make(chan act, backlog), done: make(chan struct{})}
	go d.work()
	return d
}

// create requests another file, and clears the error of the last file.
func (d *disk) create() bool { return d.put(act{create: true}) }

// write requests an append to the file. Like the others, it reports whether the backlog
// had room for the request.
func (d *disk) write(data []byte) bool { return d.put(act{data: data}) }

func (d *disk) end() bool { return d.put(act{end: true}) }

func (d *disk) put(a act) bool {
	d.busy.Add(1)
	select {
	case d.acts <- a:
		return true
	default:
		d.busy.Add(-1)
		d.note(errSlow)
		return false
	}
}

func (d *disk) note(err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
	}
}

func (d *disk) error() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *disk) failed() bool { return d.error() != nil }

// idle reports whether all requests are done without an error.
func (d *disk) idle() bool { return d.busy.Load() == 0 && !d.failed() }

// wait waits until all requests are done.
func (d *disk) wait() {
	did := make(chan struct{})
	if d.put(act{did: did}) {
		<-did
	}
}

// close ends the goroutine, but does not wait for a disk that hangs.
func (d *disk) close() error {
	close(d.acts)
	select {
	case <-d.done:
		return d.error()
	case <-time.After(closeWithin):
		return errSlow
	}
}

func (d *disk) work() {
	defer close(d.done)
	var f *os.File
	var synced time.Time
	for a := range d.acts {
		var err error
		switch {
		case a.create:
			if f != nil {
				_ = d.sync(f) // the file that begins has all that is in it
				f.Close()
			}
			d.mu.Lock()
			d.err = nil
			d.mu.Unlock()
			f, err = d.next()
			synced = time.Now()
		case a.did != nil:
			close(a.did)
		case f == nil:
		case a.end:
			err = errors.Join(d.sync(f), f.Close())
			f = nil
		default:
			if _, err = f.Write(a.data); err == nil && time.Since(synced) >= syncEvery {
				err = d.sync(f)
				synced = time.Now()
			}
		}
		if err != nil {
			d.note(err)
			if f != nil {
				f.Close()
				f = nil
			}
		}
		d.busy.Add(-1)
	}
	if f != nil {
		d.note(errors.Join(d.sync(f), f.Close()))
	}
}

// syncEvery is the time after which what was written is made durable: a machine that loses
// its power loses no more.
const syncEvery = 5 * time.Second

// next creates the file after the last one, and removes the oldest files above the limit.
func (d *disk) next() (*os.File, error) {
	files, err := list(d.dir)
	if err != nil {
		return nil, err
	}
	n := 1
	if len(files) > 0 {
		n += files[len(files)-1]
	}
	f, err := os.OpenFile(filepath.Join(d.dir, name(n)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err == nil {
		err = durable.Folder(d.dir)
	}
	for k := 0; err == nil && k <= len(files)-d.most; k++ {
		if gone := os.Remove(filepath.Join(d.dir, name(files[k]))); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = fmt.Errorf("an old file is in the way: %w", gone)
		}
	}
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return f, err
}

// list returns the numbers of the files of a folder, in order.
func list(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir) // by name
	if err != nil {
		return nil, err
	}
	var all []int
	for _, e := range entries {
		if n, ok := number(e.Name()); ok {
			all = append(all, n)
		}
	}
	return all, nil
}
