package image

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// A deletion that the disk may not have is no deletion: after a failure of the machine the object could be back, and a process be made of it again. The
// folder of a file system that cannot be synced says that it was asked to.
func TestDeletionsAreSynced(t *testing.T) {
	const folder = "/proc"
	f, err := os.Open(folder)
	if err != nil {
		t.Skipf("there is no folder that cannot be synced: %v", err)
	}
	defer f.Close()
	if !errors.Is(f.Sync(), syscall.EINVAL) {
		t.Skip("there is no folder that cannot be synced")
	}
	if err := Dir(folder).Delete(ctx, "no-such-object"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the folder was not synced: %v", err)
	}
	if err := Dir(t.TempDir()).Delete(ctx, "no-such-folder/object"); err != nil {
		t.Errorf("there is nothing to delete: %v", err)
	}
}
