package driver

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// shared is memory of two processes.
type shared struct {
	file  *os.File
	bytes []byte
}

func share(n int) (*shared, error) {
	fd, err := unix.MemfdCreate("muster-gpu-worker", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory to share: %w", err)
	}
	s := &shared{file: os.NewFile(uintptr(fd), "shared")}
	if n == 0 {
		return s, nil
	}
	if err = syscall.Ftruncate(fd, int64(n)); err == nil {
		s.bytes, err = syscall.Mmap(fd, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err != nil {
		s.file.Close()
		return nil, fmt.Errorf("%d bytes of memory to share: %w", n, err)
	}
	return s, nil
}

func (s *shared) close() {
	s.file.Close()
	if s.bytes != nil {
		syscall.Munmap(s.bytes)
	}
}
