package image

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A collection removes what no image has, and nothing that one has.
func TestCollect(t *testing.T) {
	dir := Dir(t.TempDir())
	im := &Images{Store: dir}
	shared := noise(1, RegionBytes)
	first, second := save(t, im, data(shared, noise(2, 100))), save(t, im, data(shared, noise(3, 100)))
	before, _ := names(dir, "regions/")
	if sum, err := im.Collect(ctx, false); err != nil || sum.Regions != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
	if err := im.Delete(ctx, first.Entry); err != nil {
		t.Fatal(err)
	}
	dry, err := im.Collect(ctx, true)
	if left, _ := names(dir, "regions/"); err != nil || dry.Regions != 2 || len(left) != len(before) { // its head, and its own range
		t.Errorf("%+v, %v, %d regions", dry, err, len(left))
	}
	if sum, err := im.Collect(ctx, false); err != nil || sum != dry {
		t.Errorf("%+v, %v; expected %+v", sum, err, dry)
	}
	if err := im.Verify(ctx, second.Entry); err != nil {
		t.Error(err)
	}
	if left, _ := names(dir, "leases/"); len(left) > 0 {
		t.Error(left)
	}
}

// An image that cannot be read ends a collection: its regions would be lost.
func TestCollectWithDamagedImage(t *testing.T) {
	dir := Dir(t.TempDir())
	im := &Images{Store: dir}
	s := save(t, im, data(noise(1, 100)))
	if err := dir.Put(ctx, "images/"+s.ID, []byte("something else")); err != nil {
		t.Fatal(err)
	}
	if _, err := im.Collect(ctx, false); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if left, _ := names(dir, "regions/"); len(left) == 0 {
		t.Error("the regions are gone")
	}
}

// A collection gives way to a save, whose regions no image names yet. A save that died counts
// until its sign of life is too old.
func TestCollectDuringSave(t *testing.T) {
	dir := Dir(t.TempDir())
	im := &Images{Store: dir}
	f := data(noise(1, 100))
	var during error
	_, err := im.Save(ctx, "", []Source{{File: bytes.NewReader(f), Size: int64(len(f)), Check: func() error {
		_, during = im.Collect(ctx, false)
		return nil
	}}})
	if busy := (*BusyError)(nil); err != nil || !errors.As(during, &busy) {
		t.Errorf("%v, %v", err, during)
	}
	dead, err := take(ctx, dir, saving)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := im.Collect(ctx, false); err == nil {
		t.Error("a collection during a save")
	}
	text, _ := time.Now().Add(-time.Second).MarshalText()
	if err := dir.Put(ctx, dead.object+alive, text); err != nil {
		t.Fatal(err)
	}
	if _, err := im.Collect(ctx, false); err != nil {
		t.Error(err)
	}
	if err := dead.held(ctx); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	dead.end()
}

// A save whose lease was broken makes no image: a collection may have taken its regions.
func TestSaveWhoseLeaseWasBroken(t *testing.T) {
	dir := Dir(t.TempDir())
	im := &Images{Store: dir}
	f := data(noise(1, 100))
	_, err := im.Save(ctx, "", []Source{{File: bytes.NewReader(f), Size: int64(len(f)), Check: func() error {
		leases, _ := names(dir, "leases/")
		for _, l := range leases {
			dir.Delete(ctx, l)
		}
		return nil
	}}})
	if all, _ := im.List(ctx); !errors.Is(err, errBroken) || len(all) > 0 {
		t.Errorf("%v, %v", err, all)
	}
}

// A save waits for a collection, and an interrupted one waits no longer.
func TestSaveWaitsForCollection(t *testing.T) {
	dir := Dir(t.TempDir())
	collection, err := take(ctx, dir, collecting)
	if err != nil {
		t.Fatal(err)
	}
	saved := make(chan error)
	go func() {
		f := data(noise(1, 100))
		_, err := (&Images{Store: dir}).Save(ctx, "", []Source{{File: bytes.NewReader(f), Size: int64(len(f))}})
		saved <- err
	}()
	for waits := false; !waits; {
		leases, _ := names(dir, "leases/"+saving)
		waits = len(leases) == 2
	}
	if all, _ := names(dir, "regions/"); len(all) > 0 {
		t.Error(all)
	}
	collection.end()
	if err := <-saved; err != nil {
		t.Error(err)
	}
}

// A region of the store that is damaged is written again by a save that has the same bytes.
func TestSaveMendsRegions(t *testing.T) {
	dir := Dir(t.TempDir())
	im := &Images{Store: dir}
	f := data(noise(1, 1000))
	first := save(t, im, f)
	regions, _ := names(dir, "regions/")
	for _, r := range regions {
		dir.Put(ctx, r, []byte("damage"))
	}
	if err := im.Verify(ctx, first.Entry); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	second := save(t, im, f)
	for _, e := range []Entry{first.Entry, second.Entry} {
		if err := im.Verify(ctx, e); err != nil {
			t.Error(err)
		}
	}
}

func TestNames(t *testing.T) {
	im := &Images{Store: Dir(t.TempDir())}
	f := data(noise(1, 100))
	with := func(name string) (Saved, error) {
		return im.Save(ctx, name, []Source{{File: bytes.NewReader(f), Size: int64(len(f))}})
	}
	s, err := with("llama.7")
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"llama.7", s.ID} {
		if e, err := im.Find(ctx, ref); err != nil || e != s.Entry {
			t.Errorf("%s: %v, %v", ref, e, err)
		}
	}
	if _, err := with("llama.7"); err == nil {
		t.Error("two images of one name")
	}
	if _, err := im.Manifest(ctx, Entry{s.ID, "other"}); err == nil {
		t.Error("an image under another name")
	}
	for _, bad := range []string{"", "a/b", "../x", ".a", "0123456789abcdef", "a b"} {
		if CheckName(bad) == nil {
			t.Errorf("%q is a name", bad)
		}
	}
}

// A store has one key: plain and encrypted images are not mixed.
func TestOneKeyForAStore(t *testing.T) {
	dir := Dir(t.TempDir())
	if _, err := Open(ctx, dir, nil, false); !errors.Is(err, ErrNoStore) {
		t.Error(err)
	}
	if _, err := Open(ctx, dir, key(t, "a"), true); err != nil {
		t.Fatal(err)
	}
	for _, k := range []*Key{nil, key(t, "b")} {
		if _, err := Open(ctx, dir, k, true); !errors.Is(err, ErrKey) {
			t.Error(err)
		}
	}
}

// FuzzManifest reads the texts of forgers: without a key, a manifest can say anything. What is
// accepted has the regions that it is cut into, and needs no more memory than its text.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"version":1,"regionBytes":262144,"ranks":[{"pid":1,"fileBytes":24,"regions":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}`))
	f.Add([]byte(`{"version":1,"regionBytes":65536,"ranks":[{"fileBytes":4398046511104,"ranges":[{"bytes":4398046507008,"offset":4096}]}]}`))
	f.Add([]byte(`{"version":1,"regionBytes":262144,"ranks":[{"fileBytes":-1,"ranges":[{"bytes":18446744073709551615,"offset":18446744073709551615}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parse(text)
		if err != nil {
			return
		}
		for _, r := range m.Ranks {
			n, end := 0, uint64(0)
			for i, c := range cuts(r.Ranges, uint64(m.RegionBytes)) {
				if i != n || c.offset < end || c.bytes == 0 || c.bytes > uint64(m.RegionBytes) {
					t.Fatalf("cut %d is %+v after %d", i, c, end)
				}
				n, end = n+1, c.offset+c.bytes
			}
			if n*len(name{}) != len(r.Regions) || int64(end) != r.FileBytes {
				t.Fatalf("%d regions up to %d; the rank has %d up to %d", n, end, len(r.Regions)/len(name{}), r.FileBytes)
			}
		}
		id, object, err := m.encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(id, m.Name, object, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// The names a and a--b are two: one waits for no other.
func TestClaimsOfTwoNames(t *testing.T) {
	im := &Images{Store: Dir(t.TempDir())}
	for _, name := range []string{"a--b", "a", "a.alive", "a_"} {
		c, err := im.Claim(ctx, name, func(owner string) { t.Fatalf("%s waits for %s", name, owner) })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
}

// Of many that claim a name at once, one has it at a time, and each gets it.
func TestClaimsOfOneName(t *testing.T) {
	im := &Images{Store: Dir(t.TempDir())}
	var have atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			c, err := im.Claim(ctx, "a", func(string) {})
			if err != nil {
				t.Error(err)
				return
			}
			if n := have.Add(1); n != 1 {
				t.Errorf("%d have the name", n)
			}
			if err := c.Held(ctx); err != nil {
				t.Error(err)
			}
			have.Add(-1)
			c.Release()
		})
	}
	all.Wait()
}

// Who lost the name, as the store could not be reached for long, finds that out.
func TestLostClaim(t *testing.T) {
	dir := Dir(t.TempDir())
	c, err := (&Images{Store: dir}).Claim(ctx, "a", func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	dir.Put(ctx, c.lease.object+alive, []byte("2001-01-01T00:00:00Z"))
	if owner, err := holder(ctx, dir, "name/a/"); owner != "" || err != nil {
		t.Fatal(owner, err)
	}
	if err := c.Held(ctx); err == nil {
		t.Error("it has the name still")
	}
}
