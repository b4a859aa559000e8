package gpu

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Announced is this process as one that saves itself: the side of [Self] that answers.
type Announced struct {
	self Self
	file *os.File // locked until Close
}

// Announce says in a folder that this process saves itself, with words as in PID.self. Another process of this ID that does so there, in another
// container, is an error.
func Announce(dir string, words ...string) (*Announced, error) {
	a := &Announced{self: Self{PID: os.Getpid(), dir: dir}}
	if other, err := OpenSelf(dir, a.self.PID); err == nil {
		other.Close()
		return nil, fmt.Errorf("%s is that of a process of another container: expected a folder for each", a.self.path("self"))
	}
	for _, name := range []string{"self.new", "ask", "says"} { // of one that had this ID
		if err := os.Remove(a.self.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	f, err := os.OpenFile(a.self.path("self.new"), os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, 0o644)
	if err != nil {
		return nil, err
	}
	a.file = f
	if err = lockFile(f); err == nil {
		_, err = f.WriteString(strings.Join(words, " ") + "\n")
	}
	if err == nil {
		err = os.Rename(f.Name(), a.self.path("self"))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return a, nil
}

// Close ends it.
func (a *Announced) Close() {
	for _, name := range []string{"self", "ask", "says", "lead"} {
		os.Remove(a.self.path(name))
	}
	a.file.Close()
}

// Request is what a process is asked for: to be in a phase, and to go on by itself after a time, unless that is zero.
type Request struct {
	Number uint64
	Phase  string
	Until  time.Time
}

// Asked is the newest request; its number is 0 if there is none.
func (a *Announced) Asked() (Request, error) {
	f, err := openOwn(a.self.path("ask"))
	if errors.Is(err, os.ErrNotExist) {
		return Request{}, nil
	} else if err != nil {
		return Request{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Request{}, err
	}
	text, err := short(f)
	if err != nil {
		return Request{}, err
	}
	words := strings.Fields(text)
	if len(words) != 3 {
		return Request{}, fmt.Errorf("%s: expected NUMBER PHASE LEASE; found %q", f.Name(), text)
	}
	n, err := strconv.ParseUint(words[0], 10, 64)
	lease, err2 := strconv.ParseUint(words[2], 10, 32)
	if err != nil || err2 != nil {
		return Request{}, fmt.Errorf("%s: expected NUMBER PHASE LEASE; found %q", f.Name(), text)
	}
	r := Request{Number: n, Phase: words[1]}
	if lease > 0 {
		r.Until = info.ModTime().Add(time.Duration(lease) * time.Second)
	}
	return r, nil
}

// Say says how far this process is, and why it did not do what it was asked for.
func (a *Announced) Say(s Said) error {
	problem := strings.Join(strings.Fields(s.Problem), " ")
	return a.self.write("says", fmt.Sprintf("%d %s %.1000s\n", s.Number, s.Phase, problem))
}
