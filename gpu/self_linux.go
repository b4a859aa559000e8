package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// isLocked says whether a process has an exclusive lock on a file.
func isLocked(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
	return false, err
}

// signalOf sends a signal to a process that belongs to the user of a file, and has it open: who can write to the folder may name any other one there.
func signalOf(f *os.File, pid int, signal syscall.Signal) error {
	user, _, err := ownerOf(f)
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(pid, 0) // from here on the ID cannot become another one's
	if err != nil {
		return err
	}
	defer unix.Close(process)
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(pid), &st); err != nil {
		return err
	}
	if int(st.Uid) != user {
		return fmt.Errorf("expected a process of user %d; found one of user %d", user, st.Uid)
	}
	if !hasOpen(pid, f) {
		return errors.New("expected the process that has the file open; found another one")
	}
	return unix.PidfdSendSignal(process, signal, nil, 0)
}

// hasOpen says whether a process has a file open.
func hasOpen(pid int, file *os.File) bool {
	own, err := file.Stat()
	if err != nil {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(open, func(e os.DirEntry) bool {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		return err == nil && os.SameFile(own, info)
	})
}
