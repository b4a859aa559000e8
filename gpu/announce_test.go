//go:build linux

package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A process says that it saves itself; who asks it finds that, and the process finds what it is asked for, and until when.
func TestAnnounce(t *testing.T) {
	dir, pid := t.TempDir(), os.Getpid()
	file := func(name string) string { return filepath.Join(dir, strconv.Itoa(pid)+"."+name) }
	if err := os.WriteFile(file("ask"), []byte("7 Saved 0\n"), 0o600); err != nil { // of one that had this ID
		t.Fatal(err)
	}
	a, err := Announce(dir, "durable", "within=300")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Announce(dir); err == nil || !strings.Contains(err.Error(), "another container") {
		t.Errorf("a second one: %v", err)
	}
	s, err := OpenSelf(dir, pid)
	if err != nil || !s.Durable || s.Within != 5*time.Minute {
		t.Fatal(s, err)
	}
	defer s.Close()
	if r, err := a.Asked(); err != nil || r.Number != 0 {
		t.Error(r, err)
	}
	n, err := s.Ask("Gated", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Asked()
	if left := time.Until(r.Until); err != nil || r.Number != n || r.Phase != "Gated" || left <= 0 || left > time.Minute {
		t.Error(r, err)
	}
	if err := a.Say(Said{n, "Gated", "some\nproblem " + strings.Repeat("x", 9000)}); err != nil {
		t.Fatal(err)
	}
	if said, err := s.Says(); err != nil || said.Number != n || said.Phase != "Gated" || !strings.HasPrefix(said.Problem, "some problem xx") {
		t.Error(said, err)
	}
	if _, err := s.Ask("Running", 0); err != nil {
		t.Fatal(err)
	}
	if r, err := a.Asked(); err != nil || r.Number != n+1 || !r.Until.IsZero() {
		t.Error(r, err)
	}
	for _, bad := range []string{"", "1 Saved", "x Saved 0", "1 Saved -1"} {
		if err := os.WriteFile(file("ask"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Asked(); err == nil {
			t.Errorf("%q: %v", bad, r)
		}
	}
	if a.Close(); s.Alive() {
		t.Error("it is there still")
	}
	if _, err := OpenSelf(dir, pid); !errors.Is(err, ErrNoPage) {
		t.Error(err)
	}
}
