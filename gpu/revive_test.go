//go:build linux

package gpu

import (
	"os"
	"path/filepath"
	"testing"
)

// A folder of pages that a restore makes is its owner's again, with its mode, and can be reached by the owner; one that is there stays as it is.
func TestFolderIsMadeAgain(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "a b")
	dir, owner := filepath.Join(parent, "gpu"), os.Geteuid()
	if owner == 0 {
		owner = 1234
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, owner, os.Getegid()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	described, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(parent); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if path, err := MakeFolder(described); err != nil || path != dir {
			t.Fatal(path, err)
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		user, _, err := ownerOf(f)
		if info, _ := f.Stat(); err != nil || user != owner || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
			t.Errorf("user %d, %v, %v", user, info.Mode(), err)
		}
		if info, err := os.Stat(parent); err != nil || info.Mode().Perm()&0o005 != 0o005 {
			t.Error("its owner cannot reach it")
		}
	}
	for _, bad := range []string{"", "0 0 700", "0 0 700 gpu", "x"} {
		if path, err := MakeFolder(bad); err == nil {
			t.Error(path)
		}
	}
}
