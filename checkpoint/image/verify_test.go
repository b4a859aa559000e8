package image

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// reads notes which regions are read.
type reads struct {
	Dir
	mu   sync.Mutex
	read []string
}

func (r *reads) Get(ctx context.Context, object string) ([]byte, error) {
	data, err := r.Dir.Get(ctx, object)
	if err == nil && strings.HasPrefix(object, "regions/") {
		r.mu.Lock()
		r.read = append(r.read, object)
		r.mu.Unlock()
	}
	return data, err
}

func (r *reads) since() []string {
	slices.Sort(r.read)
	all := r.read
	r.read = nil
	return all
}

// A second image of which the store has a part: Save reads what it finds, VerifySaved what Save wrote, and so each region is read once.
func TestEachRegionIsReadOnce(t *testing.T) {
	for kind, k := range keys(t) {
		store := &reads{Dir: Dir(t.TempDir())}
		im := &Images{Store: store, Key: k}
		save(t, im, data(noise(1, 3*RegionBytes), noise(2, 100)))
		before, _ := names(store, "regions/")
		store.since()

		s := save(t, im, data(noise(1, 3*RegionBytes), noise(3, 2*RegionBytes)))
		found := store.since()
		all, _ := names(store, "regions/")
		if len(found) != 3 || s.Unread() < 2*RegionBytes || s.Unread() > 3*RegionBytes {
			t.Fatalf("%s: %d regions found, %d bytes to read", kind, len(found), s.Unread())
		}
		var verified atomic.Int64
		im.Progress = func(bytes int64) { verified.Add(bytes) }
		if err := im.VerifySaved(ctx, s); err != nil {
			t.Fatal(kind, err)
		}
		written := slices.DeleteFunc(all, func(o string) bool { return slices.Contains(before, o) })
		if got := store.since(); !slices.Equal(got, written) {
			t.Errorf("%s: it read %v; the save wrote %v", kind, got, written)
		}
		if got := verified.Load(); got != s.Unread() {
			t.Errorf("%s: %d bytes verified, of %d", kind, got, s.Unread())
		}
		if err := im.Verify(ctx, s.Entry); err != nil {
			t.Error(kind, err)
		}
	}
}

// What happens to a store between a save and its verification is found, to what the save wrote and to what it found.
func TestVerifySavedFindsDamage(t *testing.T) {
	for kind, k := range keys(t) {
		dir := Dir(t.TempDir())
		im := &Images{Store: dir, Key: k}
		shared := noise(1, 100)
		save(t, im, data(shared, noise(2, 100)))
		before, _ := names(dir, "regions/")
		s := save(t, im, data(shared, noise(3, 100)))
		m, err := im.Manifest(ctx, s.Entry)
		if err != nil {
			t.Fatal(err)
		}
		flip := func(object string) {
			b, _ := dir.Get(ctx, object)
			b[len(b)/2] ^= 1
			dir.Put(ctx, object, b)
		}
		remove := func(object string) { dir.Delete(ctx, object) }
		damaged := func(what, object string, change func(string), want error) {
			t.Helper()
			whole, err := dir.Get(ctx, object)
			if err != nil {
				t.Fatal(err)
			}
			change(object)
			if err := im.VerifySaved(ctx, s); !errors.Is(err, want) {
				t.Errorf("%s: %s: %v", kind, what, err)
			}
			dir.Put(ctx, object, whole)
		}
		written, found := 0, 0
		for n := range m.names() {
			if slices.Contains(before, n.object()) {
				found++
				damaged("a region that was found is collected", n.object(), remove, ErrDamaged)
			} else {
				written++
				damaged("a region that was written is collected", n.object(), remove, ErrDamaged)
				damaged("a bit of a region that was written flips", n.object(), flip, ErrDamaged)
			}
			forgetful := s
			forgetful.regions = keptRegions{}
			for other, kept := range s.regions {
				if other != n {
					forgetful.regions[other] = kept
				}
			}
			if err := im.VerifySaved(ctx, forgetful); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: a region that the save did not keep: %v", kind, err)
			}
		}
		if written != 2 || found != 1 { // the head of the file is written
			t.Fatal(written, found)
		}
		damaged("a bit of the manifest flips", "images/"+s.String(), flip, ErrDamaged)
		damaged("the image is deleted", "images/"+s.String(), remove, fs.ErrNotExist)
		if err := im.VerifySaved(ctx, s); err != nil {
			t.Errorf("%s: whole: %v", kind, err)
		}
		s = Saved{Entry: s.Entry, Bytes: s.Bytes} // an earlier save made it: all is read
		if err := im.VerifySaved(ctx, s); err != nil || s.Unread() != s.Bytes {
			t.Errorf("%s: whole, by an earlier save: %v, %d of %d bytes", kind, err, s.Unread(), s.Bytes)
		}
		for _, object := range before {
			if slices.ContainsFunc(slices.Collect(m.names()), func(n name) bool { return n.object() == object }) {
				damaged("a bit flips of what an earlier save found", object, flip, ErrDamaged)
			}
		}
	}
}

// What an image has in common with one that was damaged, deleted or collected since, a save writes again: it never relies on it.
func TestSaveAfterALostImage(t *testing.T) {
	f := data(noise(1, 2*RegionBytes), noise(2, 100))
	for kind, k := range keys(t) {
		for what, lose := range map[string]func(im *Images, dir Dir, e Entry, region string){
			"a region is damaged": func(_ *Images, dir Dir, _ Entry, region string) {
				whole, _ := dir.Get(ctx, region)
				whole[0] ^= 1
				dir.Put(ctx, region, whole)
			},
			"a region has the bytes of another": func(im *Images, dir Dir, _ Entry, region string) {
				for n := range im.allNames(t) {
					if n.object() == region {
						dir.Put(ctx, region, im.Key.encode(n, noise(9, RegionBytes)))
					}
				}
			},
			"a region is removed":   func(_ *Images, dir Dir, _ Entry, region string) { os.Remove(dir.path(region)) },
			"its image is deleted":  func(im *Images, _ Dir, e Entry, _ string) { im.Delete(ctx, e) },
			"its manifest is empty": func(_ *Images, dir Dir, e Entry, _ string) { os.Truncate(dir.path("images/"+e.String()), 0) },
			"its image is collected": func(im *Images, _ Dir, e Entry, _ string) {
				im.Delete(ctx, e)
				if c, err := im.Collect(ctx, false); err != nil || c.Regions != 4 {
					t.Fatal(c, err)
				}
			},
		} {
			dir := Dir(t.TempDir())
			im := &Images{Store: dir, Key: k}
			first := save(t, im, f)
			largest := Object{}
			objects, _ := dir.List(ctx, "regions/")
			for _, o := range objects {
				if o.Bytes > largest.Bytes {
					largest = o
				}
			}
			lose(im, dir, first.Entry, largest.Name)
			second, err := im.Save(ctx, "second", []Source{{File: bytes.NewReader(f), Size: int64(len(f))}})
			if err != nil {
				t.Fatal(kind, what, err)
			}
			if err := errors.Join(im.VerifySaved(ctx, second), im.Verify(ctx, second.Entry)); err != nil {
				t.Errorf("%s: %s: %v", kind, what, err)
			}
		}
	}
}

// allNames are those of the regions of all images.
func (im *Images) allNames(t *testing.T) map[name]bool {
	t.Helper()
	named := map[name]bool{}
	all, _ := im.List(ctx)
	for _, e := range all {
		m, err := im.Manifest(ctx, e)
		if err != nil {
			t.Fatal(err)
		}
		for n := range m.names() {
			named[n] = true
		}
	}
	return named
}
