package gpu

import (
	"errors"
	"fmt"
	"os"
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

// signalOf sends a signal to a process that belongs to the user of a file.
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
	return unix.PidfdSendSignal(process, signal, nil, 0)
}
