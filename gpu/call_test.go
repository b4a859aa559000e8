//go:build linux

package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The file that names the GPUs that a process had is in a folder that its user can write: what that puts there leads nowhere, holds nothing up, and
// is not passed on.
func TestHadGPUsInAnotherUsersFolder(t *testing.T) {
	dir := t.TempDir()
	c, path, other := &Calls{Dir: dir}, filepath.Join(dir, "7.gpus"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	if ids, err := c.had(7); err == nil {
		t.Errorf("a link is read: %v", ids)
	}
	want := []string{strings.Repeat("0a", 16)}
	if err := c.HadGPUs(7, want); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(other); string(text) != "mine" {
		t.Errorf("a file elsewhere is now %q", text)
	}
	if ids, err := c.had(7); err != nil || !slices.Equal(ids, want) {
		t.Error(ids, err)
	}
	os.Remove(path)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if ids, err := c.had(7); err == nil {
		t.Errorf("a pipe is read: %v", ids)
	}
	os.Remove(path)
	if err := os.WriteFile(path, []byte(strings.Repeat("a", 8000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if ids, err := c.had(7); err == nil {
		t.Errorf("IDs of %d digits are passed on", len(ids[0]))
	}
}
