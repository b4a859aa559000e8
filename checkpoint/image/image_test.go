package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

var ctx = context.Background()

// data makes a PID.data whose ranges have these bytes.
func data(parts ...[]byte) []byte {
	head := uint64(headBytes + entryBytes*len(parts))
	file := make([]byte, head)
	for i, p := range parts {
		file = append(file, make([]byte, (pageBytes-len(file)%pageBytes)%pageBytes)...)
		e := file[headBytes+entryBytes*i:]
		binary.NativeEndian.PutUint64(e, 0x7000_0000_0000+uint64(i)<<30)
		binary.NativeEndian.PutUint64(e[8:], uint64(len(p)))
		binary.NativeEndian.PutUint64(e[16:], uint64(len(file)))
		sum := newRangeSum(uint64(len(p)))
		sum.Write(p)
		binary.NativeEndian.PutUint64(e[24:], sum.sum)
		file = append(file, p...)
	}
	binary.NativeEndian.PutUint64(file, dataMagic)
	binary.NativeEndian.PutUint64(file[8:], uint64(len(parts)))
	binary.NativeEndian.PutUint64(file[16:], uint64(len(file)))
	return file
}

// names are those of the objects of a store.
func names(s Store, prefix string) (all []string, err error) {
	objects, err := s.List(ctx, prefix)
	for _, o := range objects {
		all = append(all, o.Name)
	}
	return all, err
}

// noise is bytes that do not compress.
func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func save(t *testing.T, im *Images, files ...[]byte) Saved {
	t.Helper()
	var sources []Source
	for i, f := range files {
		sources = append(sources, Source{Process: Process{PID: i + 1, Saves: 1}, File: bytes.NewReader(f), Size: int64(len(f))})
	}
	s, err := im.Save(ctx, "", sources)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func key(t *testing.T, digit string) *Key {
	t.Helper()
	k, err := ParseKey(append(bytes.Repeat([]byte(digit), 64), '\n'))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// restore writes the file of a rank, as a caller does: a part of it never has its name.
func restore(im *Images, e Entry, rank int, path string) error {
	m, err := im.Manifest(ctx, e)
	if err != nil {
		return err
	}
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := im.Restore(ctx, m, rank, f); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func keys(t *testing.T) map[string]*Key {
	return map[string]*Key{"plain": nil, "encrypted": key(t, "a")}
}

// What is restored is what was saved, for ranges of all kinds of sizes.
func TestRestoreIsWhatWasSaved(t *testing.T) {
	for kind, k := range keys(t) {
		im := &Images{Store: Dir(t.TempDir()), Key: k}
		files := [][]byte{
			data(),
			data(noise(1, 3*RegionBytes+5), make([]byte, 2*RegionBytes), []byte{1}),
			data(make([]byte, 100), bytes.Repeat([]byte{7}, RegionBytes), noise(2, 4096)),
		}
		s := save(t, im, files...)
		for i, want := range files {
			path := filepath.Join(t.TempDir(), "1.data")
			if err := restore(im, s.Entry, i, path); err != nil {
				t.Fatalf("%s: rank %d: %v", kind, i, err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: rank %d: %d bytes, %v; expected %d others", kind, i, len(got), err, len(want))
			}
		}
	}
}

// Two ranks with the same parameters, at other places, need one copy of them (FlowGPU,
// §4.3). A second image needs what changed.
func TestEqualRegionsAreStoredOnce(t *testing.T) {
	parameters := noise(1, 16*RegionBytes)
	first, second := data(parameters, noise(2, 100)), data(noise(3, 5000), parameters)
	for kind, k := range keys(t) {
		im := &Images{Store: Dir(t.TempDir()), Key: k}
		if s := save(t, im, first, second); float64(s.Written) > 0.55*float64(s.Bytes) {
			t.Errorf("%s: %d bytes for %d", kind, s.Written, s.Bytes)
		}
		changed := bytes.Clone(parameters)
		changed[len(changed)/2] ^= 1
		if s := save(t, im, data(changed, noise(2, 100)), second); s.Written > 2*RegionBytes {
			t.Errorf("%s: %d bytes for one that changed", kind, s.Written)
		}
		if s := save(t, &Images{Store: Dir(t.TempDir()), Key: k}, data(make([]byte, 64*RegionBytes))); s.Written > 2000 {
			t.Errorf("%s: %d bytes for zeros", kind, s.Written)
		}
	}
}

// Each flipped bit, each truncation and each missing file of a store is found, and
// nothing is restored then.
func TestDamageIsFound(t *testing.T) {
	for kind, k := range keys(t) {
		dir := Dir(t.TempDir())
		im := &Images{Store: dir, Key: k}
		s := save(t, im, data(noise(1, 60), bytes.Repeat([]byte("muster"), 30)))
		target := filepath.Join(t.TempDir(), "1.data")
		must := func(object, what string, change func()) {
			change()
			if err := im.Verify(ctx, s.Entry); err == nil {
				t.Errorf("%s: %s: %s was not found", kind, object, what)
			}
			if err := restore(im, s.Entry, 0, target); err == nil {
				t.Errorf("%s: %s: %s was restored", kind, object, what)
			}
			if left, _ := filepath.Glob(target + "*"); len(left) > 0 {
				t.Fatalf("%s: %s: %s left %v", kind, object, what, left)
			}
		}
		objects, err := names(dir, "")
		if err != nil || len(objects) != 4 {
			t.Fatal(objects, err)
		}
		for _, object := range objects {
			path := dir.path(object)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write := func(b []byte) {
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for i := range whole {
				for bit := range 8 {
					flipped := bytes.Clone(whole)
					flipped[i] ^= 1 << bit
					must(object, "a flipped bit", func() { write(flipped) })
				}
				must(object, "a truncation", func() { write(whole[:i]) })
			}
			must(object, "a byte more", func() { write(append(bytes.Clone(whole), 0)) })
			must(object, "its absence", func() { os.Remove(path) })
			write(whole)
		}
		if err := im.Verify(ctx, s.Entry); err != nil {
			t.Error(err)
		}
	}
}

// Regions do not take each other's place: both are whole, and of other names.
func TestSwappedRegionsAreFound(t *testing.T) {
	for kind, k := range keys(t) {
		dir := Dir(t.TempDir())
		im := &Images{Store: dir, Key: k}
		s := save(t, im, data(noise(1, 100), noise(2, 100)))
		regions, _ := names(dir, "regions/")
		a, _ := dir.Get(ctx, regions[0])
		b, _ := dir.Get(ctx, regions[1])
		dir.Put(ctx, regions[0], b)
		dir.Put(ctx, regions[1], a)
		if err := im.Verify(ctx, s.Entry); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestWrongKey(t *testing.T) {
	dir := Dir(t.TempDir())
	right, wrong, none := &Images{Store: dir, Key: key(t, "a")}, &Images{Store: dir, Key: key(t, "b")}, &Images{Store: dir}
	encrypted := save(t, right, data(noise(1, 100))).Entry
	plain := save(t, none, data(noise(1, 100))).Entry
	for _, c := range []struct {
		im *Images
		id Entry
	}{{wrong, encrypted}, {none, encrypted}, {right, plain}} {
		if err := c.im.Verify(ctx, c.id); !errors.Is(err, ErrKey) {
			t.Error(err)
		}
	}
	for _, text := range []string{"", "ab", "xx", string(bytes.Repeat([]byte("a"), 66))} {
		if _, err := ParseKey([]byte(text)); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}

// broken is a store that ends after some writes, as one whose process dies.
type broken struct {
	Dir
	mu   sync.Mutex // regions are written at the same time
	left int
}

func (b *broken) Put(ctx context.Context, object string, data []byte) error {
	b.mu.Lock()
	b.left--
	full := b.left < 0
	b.mu.Unlock()
	if full {
		return errors.New("no space left on device")
	}
	return b.Dir.Put(ctx, object, data)
}

// Whenever a save ends, the store has the old image, and the new one only as a whole.
func TestSaveThatEndsEarly(t *testing.T) {
	const before = 2 // writes of the lease
	for left := range before + 5 {
		dir := Dir(t.TempDir())
		old := save(t, &Images{Store: dir}, data(noise(1, 100)))
		f := data(noise(2, RegionBytes), noise(1, 100), noise(3, 3)) // the old one has the middle
		im := &Images{Store: &broken{Dir: dir, left: left}}
		_, err := im.Save(ctx, "", []Source{{File: bytes.NewReader(f), Size: int64(len(f))}})
		if (err == nil) != (left == before+4) {
			t.Errorf("a save with %d writes: %v", left, err)
		}
		ids, _ := im.List(ctx)
		if want := 1 + left/(before+4); len(ids) != want {
			t.Errorf("%d images after %d writes", len(ids), left)
		}
		if leases, _ := names(dir, "leases/"); len(leases) > 0 {
			t.Error(leases)
		}
		for _, id := range append(ids, old.Entry) {
			if err := im.Verify(ctx, id); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestBadData(t *testing.T) {
	good := data(noise(1, 5000), noise(2, 10))
	im := &Images{Store: Dir(t.TempDir())}
	for at := range headBytes + 2*entryBytes {
		if at >= headBytes && (at-headBytes)/8%4 == 0 {
			continue // an address
		}
		bad := bytes.Clone(good)
		bad[at] ^= 0x80
		if _, err := im.Save(ctx, "", []Source{{File: bytes.NewReader(bad), Size: int64(len(bad))}}); !errors.Is(err, errNotData) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	for n := 0; n < len(good); n += 1 + n/8 {
		if _, err := im.Save(ctx, "", []Source{{File: bytes.NewReader(good[:n]), Size: int64(n)}}); !errors.Is(err, errNotData) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if ids, _ := im.List(ctx); len(ids) > 0 {
		t.Error(ids)
	}
}

// Each check finds what the others would not: bytes under the name of others, a
// manifest under the name of another, whole regions that are not the file.
func TestEachCheckByItself(t *testing.T) {
	for kind, k := range keys(t) {
		dir := Dir(t.TempDir())
		im := &Images{Store: dir, Key: k}
		n := k.nameOf([]byte("these bytes"))
		if _, err := k.decode(n, k.encode(n, []byte("other bytes")), 11); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: a region of another name: %v", kind, err)
		}
		a, b := save(t, im, data(noise(1, 100))).Entry, save(t, im, data(noise(2, 100))).Entry
		object, _ := dir.Get(ctx, "images/"+a.ID)
		dir.Put(ctx, "images/"+b.ID, object)
		if _, err := im.Manifest(ctx, b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: a manifest of another name: %v", kind, err)
		}
		m, err := im.Manifest(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		m.Ranks[0].Sum = m.Ranks[0].Sum[2:] + "00"
		if err := im.Restore(ctx, m, 0, nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: another file of good regions: %v", kind, err)
		}
	}
}
