package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The layout of a page, and the numbers in it: gpu/shim/page.h.
const (
	pageSize    = 4096
	pageMagic   = 0x5047554d
	pageVersion = 1

	atPID, atGate, atCommand, atOp, atDone, atResult, atState      = 8, 12, 16, 20, 24, 28, 32
	atInFlight, atUntracked, atErrno                               = 36, 40, 44
	atLease, atStarted, atReserved, atActive, atWaited, atReopened = 48, 56, 64, 72, 80, 88
	atSaves, atNamespace                                           = 92, 96

	// What a replay says, behind the page's own words.
	atObjects, atRefusal, refusalSize = 2048, 2052, 508
)

// Gate says whether calls that use the GPU go on.
type Gate uint32

const (
	Open   Gate = 0
	Closed Gate = 1 // they wait; who closed it may open it
	Sealed Gate = 2 // they wait; the memory is being copied, or is gone
)

// Command is what the shim carries out.
type Command uint32

const (
	Save    Command = 1 // copy the memory in use to a file, and release the GPU's
	Restore Command = 2 // the way back of both; the gate is closed then
	Hand    Command = 3 // hand all memory over to the process's ghost, which Calls makes, and release it

	// Record and replay: docs/adr/0066.
	Examine Command = 16 // can it be released? ErrRefused
	Release Command = 17 // destroy what a saved process has on the GPU beside its memory, contexts included
	Replay  Command = 18 // the way back: it is saved then
)

// States of the page.
const (
	stateRunning  = 0
	stateSaved    = 1
	stateHanded   = 2 // a ghost has the memory, and makes it saved
	stateReleased = 16
)

// Results of a command other than those of the CUDA driver.
const (
	resultOutOfMemory = 2
	resultCancelled   = 10001
	resultCorrupt     = 10002
	resultFile        = 10003
	resultLost        = 10004
	resultGhost       = 10005
	resultRefused     = 10016
)

var (
	// ErrGone is what has become of a process that ended, or was never there.
	ErrGone = errors.New("the process has ended")
	// ErrNoPage is a process that runs without the shim, or with another folder.
	ErrNoPage = errors.New("the process does not run with Muster's libcuda.so.1, or has not called cuInit yet")
	// ErrElsewhere is a process of a container, seen from another one, or without permission.
	ErrElsewhere = errors.New("the process is in a container that cannot be looked into from here: run the command in that container, or as root on the host")
	// ErrCancelled is a save during which the gate was opened.
	ErrCancelled = errors.New("the pause was given up, or its lease ran out")
	// ErrNoMemory is a restore for which the GPU has no room. It may be tried again.
	ErrNoMemory = errors.New("the GPU has too little free memory")
	// ErrDamaged is a restore whose file is not what was saved. The process cannot go on.
	ErrDamaged = errors.New("the saved memory is damaged")
	// ErrNoData is a paused process whose memory is not beside its page.
	ErrNoData = errors.New("its saved memory is not there")
	// ErrLost is a process whose memory was held by a ghost that was killed, with its keeper. It cannot go on.
	ErrLost = errors.New("its GPU memory was lost with muster-gpu-call, which held it and was killed: restart the job from its last checkpoint")
	// ErrNoGhost is a hand-over that failed: the process has its memory.
	ErrNoGhost = errors.New("its memory could not be handed over")
	// ErrRefused is a process of which a replay would miss something. It has all that it had.
	ErrRefused = errors.New("the process cannot be replayed")
	// ErrBusy is a page at which another command is at work.
	ErrBusy = errors.New("another command is at work on it")
)

// Page is the control page of one process.
type Page struct {
	PID  int // in its own PID namespace
	here int // the same process's ID here
	dir  string
	file *os.File
	data []byte
}

// List returns the IDs of the processes that have a page in the folder, in
// ascending order. A folder that does not exist has none.
func List(dir string) ([]int, error) { return numbered(dir, ".page") }

// mostFiles is how many files a folder of pages may have: a pod may write into its own what it likes.
const mostFiles = 1 << 14

// numbered returns the numbers of a folder's files NUMBER.SUFFIX, in ascending order.
func numbered(dir, suffix string) ([]int, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(mostFiles + 1)
	if len(names) > mostFiles {
		return nil, fmt.Errorf("%s: expected at most %d files", dir, mostFiles)
	} else if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		name, ok := strings.CutSuffix(name, suffix)
		if n, err := strconv.Atoi(name); ok && err == nil && n > 0 && strconv.Itoa(n) == name {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// OpenPage maps the page of the process with the ID, in its own PID namespace:
// ErrNoPage if it has none, ErrGone if the process has ended, whose files are then
// removed, ErrElsewhere if it cannot be seen from here.
func OpenPage(dir string, pid int) (*Page, error) {
	path := filepath.Join(dir, strconv.Itoa(pid)+".page")
	file, err := os.OpenFile(path, os.O_RDWR|noFollow, 0) // a link may lead to another user's page
	if errors.Is(err, os.ErrNotExist) {
		if _, err := StartTime(pid); err != nil {
			removeFiles(dir, pid) // what is left of it beside the page
			return nil, ErrGone
		}
		return nil, ErrNoPage
	}
	if err != nil {
		return nil, err
	}
	data, err := mapFile(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p := &Page{PID: pid, dir: dir, file: file, data: data}
	switch {
	case binary.NativeEndian.Uint32(data) != pageMagic || p.load(atPID) != uint32(pid):
		err = fmt.Errorf("%s: expected the control page of process %d; found something else", path, pid)
	case p.load(4) != pageVersion:
		err = fmt.Errorf("%s: expected version %d; found %d: the process runs with the libcuda.so.1 of another version of Muster", path, pageVersion, p.load(4))
	default:
		p.here, err = findProcess(pid, p.load64(atStarted), p.load64(atNamespace))
	}
	if errors.Is(err, ErrGone) {
		if p.Lock() == nil { // else it is a process that Revive brings back
			removeFiles(dir, pid)
		}
		if _, other := StartTime(pid); other == nil && p.load64(atNamespace) == namespaceOf("self") {
			err = ErrNoPage // its ID is another one's now
		}
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close unmaps the page, and ends Lock.
func (p *Page) Close() {
	unmapFile(p.data)
	p.file.Close()
}

// Lock lets only one command at a time change the page: ErrBusy. A command that dies gives it back.
func (p *Page) Lock() error { return lockFile(p.file) }

// Alive says whether the process still runs.
func (p *Page) Alive() bool {
	started, err := StartTime(p.here)
	return err == nil && started == p.load64(atStarted)
}

// Gate is the gate's state.
func (p *Page) Gate() Gate { return Gate(p.load(atGate)) }

// IsSaved says whether the process's memory is in the file and not on the GPU.
func (p *Page) IsSaved() bool { return p.load(atState) == stateSaved || p.IsReleased() }

// IsReleased says whether a saved process has nothing on the GPU, and is to be replayed first.
func (p *Page) IsReleased() bool { return p.load(atState) == stateReleased }

// Objects is how many objects of the driver's the process has, which a replay would make again.
func (p *Page) Objects() int { return int(p.load(atObjects)) }

// HasNone says whether the process has no memory on the GPU: it is saved, or a ghost holds it.
func (p *Page) HasNone() bool { return p.load(atState) != stateRunning }

// InFlight is the number of calls that have passed the gate and have not returned.
func (p *Page) InFlight() int { return int(p.load(atInFlight)) }

// Untracked is the number of allocations that the shim did not make. They stay on the GPU.
func (p *Page) Untracked() int { return int(p.load(atUntracked)) }

// Reserved is the GPU memory that the shim holds for the process, in bytes; while it is saved, held before.
func (p *Page) Reserved() int64 { return int64(p.load64(atReserved)) }

// Active is what of it was in use and was copied at the last save, in bytes.
func (p *Page) Active() int64 { return int64(p.load64(atActive)) }

// SetLease lets the shim end the pause by itself after d; with 0, never.
func (p *Page) SetLease(d time.Duration) {
	until := uint64(0)
	if d > 0 {
		until = uint64(time.Now().Add(d).UnixMilli())
	}
	atomic.StoreUint64(p.word64(atLease), until)
}

// CloseGate closes an open gate, and says whether it was open.
func (p *Page) CloseGate() bool {
	was := atomic.CompareAndSwapUint32(p.word(atGate), uint32(Open), uint32(Closed))
	wake(p.word(atGate))
	return was
}

// OpenGate opens a closed gate, and says whether it was closed. A sealed one stays.
func (p *Page) OpenGate() bool {
	atomic.AddUint32(p.word(atReopened), 1) // before: the shim compares it, to know whether the gate was closed all the time
	was := atomic.CompareAndSwapUint32(p.word(atGate), uint32(Closed), uint32(Open))
	wake(p.word(atGate))
	return was
}

// Idle says whether the shim has ended the last command.
func (p *Page) Idle() bool { return p.load(atCommand) == p.load(atDone) }

// Start gives the shim a command. The page is idle.
func (p *Page) Start(c Command) {
	atomic.StoreUint32(p.word(atOp), uint32(c))
	atomic.AddUint32(p.word(atCommand), 1)
	wake(p.word(atCommand))
}

// Result is how the last command ended.
func (p *Page) Result() error {
	switch r := p.load(atResult); r {
	case 0:
		return nil
	case resultOutOfMemory:
		return ErrNoMemory
	case resultCancelled:
		return ErrCancelled
	case resultRefused:
		text, _, _ := strings.Cut(string(p.data[atRefusal:atRefusal+refusalSize]), "\x00")
		return fmt.Errorf("%w: %s", ErrRefused, text)
	case resultCorrupt:
		return fmt.Errorf("%s: %w", filepath.Join(p.dir, strconv.Itoa(p.PID)+".data"), ErrDamaged)
	case resultLost:
		return ErrLost
	case resultGhost:
		return ErrNoGhost
	case resultFile:
		if p.IsSaved() && p.load(atErrno) == uint32(syscall.ENOENT) {
			return p.noData()
		}
		return fmt.Errorf("%s: %s", filepath.Join(p.dir, strconv.Itoa(p.PID)+".data"), errnoText(p.load(atErrno)))
	default:
		return fmt.Errorf("the CUDA driver returned error %d", r)
	}
}

func (p *Page) word(at int) *uint32   { return (*uint32)(unsafe.Pointer(&p.data[at])) }
func (p *Page) word64(at int) *uint64 { return (*uint64)(unsafe.Pointer(&p.data[at])) }
func (p *Page) load(at int) uint32    { return atomic.LoadUint32(p.word(at)) }
func (p *Page) load64(at int) uint64  { return atomic.LoadUint64(p.word64(at)) }
func removeFiles(dir string, pid int) {
	for _, suffix := range []string{".page", ".page.tmp", ".data", ".data.tmp", ".gpus", ".ghost"} {
		os.Remove(filepath.Join(dir, strconv.Itoa(pid)+suffix))
	}
}
