package image

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Files of the processes on the host come back as they were saved, with holes for what is 0. Their regions are the image's as those of its
// ranks are: equal ones are stored once, a collection keeps them, and damage to any is found.
func TestFilesBesideRanks(t *testing.T) {
	for name, k := range keys(t) {
		t.Run(name, func(t *testing.T) {
			store := Dir(t.TempDir())
			im, err := Open(ctx, store, k, true)
			if err != nil {
				t.Fatal(err)
			}
			memory := noise(1, RegionBytes)
			files := map[string][]byte{"pages-1.img": append(append(bytes.Clone(memory), make([]byte, RegionBytes)...), noise(2, 100)...), "core-1.img": noise(3, 10), "empty": {}}
			gpu := data(memory)
			var host []HostFile
			for _, name := range []string{"pages-1.img", "core-1.img", "empty"} {
				host = append(host, HostFile{name, bytes.NewReader(files[name]), int64(len(files[name]))})
			}
			saved, err := im.Save(ctx, "", []Source{{Process: Process{PID: 1, Saves: 1}, File: bytes.NewReader(gpu), Size: int64(len(gpu))}}, host...)
			if err != nil {
				t.Fatal(err)
			}
			if want := int64(len(gpu) + 2*RegionBytes + 110); saved.Bytes != want || saved.Written > RegionBytes+10_000 {
				t.Errorf("%d bytes, of which %d are written; expected %d, and the memory once", saved.Bytes, saved.Written, want)
			}
			if _, err := im.Collect(ctx, false); err != nil {
				t.Fatal(err)
			}
			m, err := im.Manifest(ctx, saved.Entry)
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range m.Files {
				path := filepath.Join(t.TempDir(), f.Name)
				to, err := os.Create(path)
				if err != nil {
					t.Fatal(err)
				}
				err = im.RestoreFile(ctx, m, i, to)
				to.Close()
				if got, _ := os.ReadFile(path); err != nil || !bytes.Equal(got, files[f.Name]) {
					t.Errorf("%s: %d bytes, %v", f.Name, len(got), err)
				}
			}
			regions, err := names(store, "regions/")
			if err != nil || len(regions) < 3 {
				t.Fatal(regions, err)
			}
			for _, r := range regions {
				good, _ := store.Get(ctx, r)
				store.Put(ctx, r, good[:len(good)-1])
				if err := im.Verify(ctx, saved.Entry); !errors.Is(err, ErrDamaged) {
					t.Errorf("without a byte of %s: %v", r, err)
				}
				store.Put(ctx, r, good)
			}
			if err := im.Verify(ctx, saved.Entry); err != nil {
				t.Error(err)
			}
		})
	}
	im, err := Open(ctx, Dir(t.TempDir()), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := im.Save(ctx, "", nil, HostFile{"short", bytes.NewReader(make([]byte, 9)), 10}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that became shorter: %v", err)
	}
}

// The names of files are a forger's where there is no key: none leads out of the folder to which they are restored.
func TestNamesOfFiles(t *testing.T) {
	for _, name := range []string{"", "..", "../x", "a/b", ".x", "/etc/passwd"} {
		m := Manifest{Version: formatVersion, RegionBytes: RegionBytes, Files: []File{{Name: name}}}
		id, object, err := m.encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(id, "", object, nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
