package gputest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Library is a management library (NVML) of GPUs that do not exist, as gpu/fake/nvml.c has it.
type Library struct {
	Program, Path string // muster-gpu-nvml, and libnvidia-ml.so.1
	state         string
}

// NewLibrary builds the library and the program that asks it. The test is skipped without a C compiler.
func NewLibrary(tb testing.TB) *Library {
	tb.Helper()
	if _, err := exec.LookPath("cc"); err != nil || runtime.GOOS != "linux" {
		tb.Skip("this test needs Linux, and a C compiler to build a management library")
	}
	get := libraries
	if shared == "" {
		get = func() (string, error) { return buildLibrary(tb.TempDir()) }
	}
	dir, err := get()
	if err != nil {
		tb.Fatal(err)
	}
	return &Library{filepath.Join(dir, "muster-gpu-nvml"), filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(tb.TempDir(), "gpus")}
}

// libraries is what Main lets all tests of a package build, once.
var libraries = sync.OnceValues(func() (string, error) { return buildLibrary(shared) })

func buildLibrary(dir string) (string, error) {
	source, err := source()
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"-o", filepath.Join(dir, "muster-gpu-nvml"), "nvml/nvml.c", "-ldl"},
		{"-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname,libnvidia-ml.so.1", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "fake/nvml.c"},
	} {
		c := exec.Command("cc", append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"}, args...)...)
		c.Dir = source
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", c.Args, err, out)
		}
	}
	return dir, nil
}

// Set says what the library reports from now on: lines as gpu/fake/nvml.c has them.
func (l *Library) Set(tb testing.TB, lines ...string) {
	tb.Helper()
	if err := os.WriteFile(l.state, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// Environment is that of the program.
func (l *Library) Environment() []string { return []string{"MUSTER_FAKE_NVML=" + l.state} }
