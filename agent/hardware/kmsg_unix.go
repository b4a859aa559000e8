//go:build unix

package hardware

import (
	"errors"
	"syscall"
)

func openLog(path string) (int, error) {
	return syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
}

// readLog reads what there is; 0 bytes if there is nothing for now.
func readLog(fd int, into []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, into)
		switch {
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EPIPE):
			continue // EPIPE: records were overwritten before they were read; the next one is the oldest that is left
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		}
		return max(n, 0), err
	}
}

func closeLog(fd int) { syscall.Close(fd) }
