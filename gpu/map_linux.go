package gpu

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noFollow refuses to open what is a link, and does not wait for the other end of a pipe.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

func mapFile(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() != pageSize {
		return nil, fmt.Errorf("expected a file of %d bytes; found %d", pageSize, info.Size())
	}
	return unix.Mmap(int(f.Fd()), 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// ownerOf is the user and the group of a file.
func ownerOf(f *os.File) (user, group int, err error) {
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	return int(st.Uid), int(st.Gid), err
}

func unmapFile(data []byte) { unix.Munmap(data) }

// hasMapped says whether a process has a file in its memory. The numbers of some file systems differ there from those that the file itself has, so the name
// and the file's number are compared; the name alone ends in that of the file.
func hasMapped(pid int, file *os.File) bool {
	var st unix.Stat_t
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil || unix.Fstat(int(file.Fd()), &st) != nil {
		return false
	}
	defer maps.Close()
	inode, name := strconv.FormatUint(st.Ino, 10), "/"+filepath.Base(file.Name())
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // addresses, permissions, offset, device, inode, path
		if len(fields) > 5 && fields[4] == inode && strings.HasSuffix(lines.Text(), name) {
			return true
		}
	}
	return false
}

func lockFile(f *os.File) error {
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return ErrBusy
	}
	return nil
}

// wake lets the shim look at a word at once; without it, it looks every 200 ms.
func wake(word *uint32) {
	const futexWake = 1
	unix.Syscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32)
}

func errnoText(n uint32) string { return unix.Errno(n).Error() }
