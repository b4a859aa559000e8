package gputest

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// NewGPU returns a node with this machine's first GPU. Its driver is MUSTER_GPU_DRIVER, a path, or is where drivers usually are;
// the test is skipped where there is none.
func NewGPU(tb testing.TB) *Node {
	tb.Helper()
	if path := os.Getenv("MUSTER_GPU_DRIVER"); path != "" {
		return newGPU(tb, filepath.Dir(path))
	}
	for _, folder := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/compat"} {
		if _, err := os.Stat(filepath.Join(folder, "libcuda.so.1")); err == nil {
			return newGPU(tb, folder)
		}
	}
	tb.Skip("there is no libcuda.so.1 in the usual folders: no GPU, or set MUSTER_GPU_DRIVER to its path")
	return nil
}

// newGPU is a node whose programs are saved to memory, where that has room: a disk would be what is measured, or be full.
func newGPU(tb testing.TB, driver string) *Node {
	n := newNode(tb)
	n.driver = driver
	dir, err := os.MkdirTemp("/dev/shm", "muster-gpu-check")
	if err != nil {
		return n
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	if room(dir) >= 8<<30 {
		n.Dir = dir
	}
	return n
}

// Room is how many bytes can be saved in Dir.
func (n *Node) Room() uint64 { return room(n.Dir) }

// room is what is free of a folder's file system, in bytes; 0 if that is not known.
func room(dir string) uint64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
