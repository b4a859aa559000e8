package gpu

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Self is a process that saves its own state when it is asked to, and gives back its GPU memory (docs/pause.md). It has three files
// in the folder:
//
//	PID.self  the process holds an exclusive lock on it (flock) for as long as it lives. A line of words: "never", if it must not be
//	          paused; "durable", if what it saves outlives it, where a process that is started in its place finds it, also on
//	          another node; "within=SECONDS", how long it may take to save itself, and to come back; "signal=N started=TICKS
//	          namespace=INODE", if it wants that signal when it is asked for something: with its start time, and its PID
//	          namespace if that is another one
//	PID.ask   what it is asked for, by Muster: NUMBER PHASE LEASE, the lease in seconds, 0 for none
//	PID.says  how far it is: NUMBER PHASE and, if it could not do what it was asked for, why not
//
// The last two are replaced whole.
type Self struct {
	PID                int
	Never              bool          // it must not be paused
	Durable            bool          // what it saves outlives it
	Within             time.Duration // how long it may take to save itself, and to come back; 0: it does not say
	dir                string
	file               *os.File
	lead               *os.File // locked by the command that leads it; nil for none
	signal             syscall.Signal
	started, namespace uint64
}

// OpenSelf finds a process that saves itself: ErrNoPage if there is none of that ID, ErrGone if it has ended. Its files are then removed.
func OpenSelf(dir string, pid int) (*Self, error) {
	s := &Self{PID: pid, dir: dir}
	file, err := openOwn(s.path("self"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no file %s says that it saves itself: %w", s.path("self"), ErrNoPage)
	} else if err != nil {
		return nil, err
	}
	s.file = file
	alive, err := isLocked(file)
	if err == nil && !alive {
		for _, name := range []string{"self", "ask", "says", "lead"} {
			os.Remove(s.path(name))
		}
		err = ErrGone
	}
	var text string
	if err == nil {
		text, err = short(file)
	}
	if err == nil {
		err = s.parse(text)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return s, nil
}

// maxWithin is a day, in seconds: more is no time for which others wait.
const maxWithin = 24 * 60 * 60

func (s *Self) parse(text string) error {
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case word == "never":
			s.Never = true
		case word == "durable":
			s.Durable = true
		case key == "within" && err == nil && n > 0 && n <= maxWithin:
			s.Within = time.Duration(n) * time.Second
		case key == "signal" && err == nil && n > 0 && n < 65:
			s.signal = syscall.Signal(n)
		case key == "started" && err == nil:
			s.started = n
		case key == "namespace" && err == nil:
			s.namespace = n
		default:
			return fmt.Errorf("%s: expected never, durable, within=SECONDS, signal=N, started=TICKS or namespace=INODE; found %q", s.path("self"), word)
		}
	}
	if s.signal != 0 && s.started == 0 {
		return fmt.Errorf("%s: expected started=TICKS with a signal", s.path("self"))
	}
	return nil
}

func (s *Self) path(name string) string {
	return filepath.Join(s.dir, strconv.Itoa(s.PID)+"."+name)
}

// Close ends Lead.
func (s *Self) Close() {
	s.file.Close()
	if s.lead != nil {
		s.lead.Close()
	}
}

// Lead lets only one command at a time ask the process for anything: ErrBusy. A command that dies gives it back.
func (s *Self) Lead() error {
	if s.lead != nil {
		return nil
	}
	f, err := os.OpenFile(s.path("lead"), os.O_RDWR|os.O_CREATE|noFollow, 0o666)
	if err != nil {
		return err
	}
	_ = f.Chmod(0o666) // of another user who made it, whose mode it has then: who may come into the folder may lead
	if err := lockFile(f); err != nil {
		f.Close()
		return err
	}
	s.lead = f
	return nil
}

// Alive says whether the process still runs.
func (s *Self) Alive() bool {
	alive, err := isLocked(s.file)
	return alive && err == nil
}

// Said is what a process said last: the number of the request that it has answered, its phase, and why it did not do what it was asked for.
type Said struct {
	Number  uint64
	Phase   string
	Problem string
}

// Says is what the process said last; that it runs if it has said nothing.
func (s *Self) Says() (Said, error) {
	text, err := s.read("says")
	if err != nil || text == "" {
		return Said{Phase: "Running"}, err
	}
	words := strings.SplitN(strings.TrimSpace(text), " ", 3)
	n, bad := strconv.ParseUint(words[0], 10, 64)
	if bad != nil || len(words) < 2 {
		return Said{}, fmt.Errorf("%s: expected NUMBER PHASE; found %q", s.path("says"), text)
	}
	return Said{n, words[1], strings.Join(words[2:], "")}, nil
}

// Ask asks the process to be in a phase, and to leave it by itself after the lease, unless that is 0. It returns the number of the request.
// The caller leads it.
func (s *Self) Ask(phase string, lease time.Duration) (uint64, error) {
	said, err := s.Says()
	if err != nil {
		return 0, err
	}
	text, err := s.read("ask")
	if err != nil {
		return 0, err
	}
	before, _, _ := strings.Cut(text, " ")
	asked, _ := strconv.ParseUint(before, 10, 64) // what cannot be read was not answered
	n := max(said.Number, asked) + 1
	seconds := int64((lease + time.Second - 1) / time.Second)
	if err := s.write("ask", fmt.Sprintf("%d %s %d\n", n, phase, seconds)); err != nil {
		return 0, err
	}
	if err := s.send(); err != nil {
		return 0, fmt.Errorf("process %d cannot be signalled: %w", s.PID, err)
	}
	return n, nil
}

// send sends the process the signal that it wants, if any. It must be of the user whose file says so.
func (s *Self) send() error {
	if s.signal == 0 {
		return nil
	}
	here, err := findProcess(s.PID, s.started, s.namespace)
	if err != nil {
		return err
	}
	return signalOf(s.file, here, s.signal)
}

// read returns a file of the process, empty if it is not there. It belongs to the user of the process, or of this command.
func (s *Self) read(name string) (string, error) {
	f, err := openOwn(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	defer f.Close()
	theirs, _, err := ownerOf(s.file)
	if err != nil {
		return "", err
	}
	if user, _, err := ownerOf(f); err != nil || user != theirs && user != os.Geteuid() {
		return "", errors.Join(err, fmt.Errorf("%s: expected a file of user %d; found one of user %d", s.path(name), theirs, user))
	}
	return short(f)
}

// write replaces a file, which the process can read.
func (s *Self) write(name, text string) error {
	tmp := s.path(name + ".new")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(tmp, s.path(name))
	}
	return err
}

// openOwn opens a regular file that is no link.
func openOwn(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: expected a file; found %s", path, info.Mode().Type())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// short reads a file of at most 4 KiB, from its beginning.
func short(f *os.File) (string, error) {
	const most = 4096
	text, err := io.ReadAll(io.NewSectionReader(f, 0, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: expected at most %d bytes", f.Name(), most)
	}
	return string(text), err
}

// ListSelf returns the processes of a folder that save themselves, in ascending order; some may have ended.
func ListSelf(dir string) ([]int, error) { return numbered(dir, ".self") }
