// Package image keeps the GPU memory of paused processes as images: regions named
// by their content, each stored once, and a manifest an image (FlowGPU, §4.3;
// docs/adr/0027). It never hands out a byte under its final name that it has not verified.
package image

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"lukechampine.com/blake3"
)

// Images are the images of a store. Its methods may be called from several goroutines.
type Images struct {
	Store Store
	Key   *Key // nil: images are not encrypted
}

// Source is the saved memory of one process: its PID.data, which does not change.
type Source struct {
	PID  int
	File io.ReaderAt
	Size int64 // bytes
}

// Saved says what saving an image took.
type Saved struct {
	ID      string `json:"id"`
	Bytes   int64  `json:"bytes"`       // of all processes
	Written int64  `json:"storedBytes"` // new in the store, the manifest included
}

// Save saves processes as the ranks of one image. Regions are written first and the
// manifest last: whenever it ends early, the store has the images that it had.
// It needs memory for a few regions a CPU, and for 32 bytes a region.
func (im *Images) Save(ctx context.Context, job string, sources []Source) (Saved, error) {
	host, _ := os.Hostname() // for people to read; an image without is as good
	m := &Manifest{Version: formatVersion, Created: time.Now().UTC(), Job: job, Host: host, RegionBytes: RegionBytes}
	w := &writer{im: im, seen: map[name]bool{}}
	saved := Saved{}
	for _, s := range sources {
		rank, err := w.rank(ctx, s)
		if err != nil {
			return saved, fmt.Errorf("process %d: %w", s.PID, err)
		}
		m.Ranks = append(m.Ranks, rank)
		saved.Bytes += s.Size
	}
	id, object, err := m.encode(im.Key)
	if err != nil {
		return saved, err
	}
	saved.ID, saved.Written = id, w.written+int64(len(object))
	return saved, im.Store.Put(ctx, "images/"+id, object)
}

// writer writes the regions of an image that the store does not have.
type writer struct {
	im      *Images
	mu      sync.Mutex
	seen    map[name]bool // written by this writer, or found
	written int64
}

// rank reads a file once, from its start to its end: one goroutine hashes the whole,
// others regions.
func (w *writer) rank(ctx context.Context, s Source) (Rank, error) {
	all, err := ranges(s.File, s.Size)
	if err != nil {
		return Rank{}, err
	}
	pieces, err := cuts(all, uint64(s.Size))
	if err != nil {
		return Rank{}, err
	}
	r := Rank{PID: s.PID, FileBytes: s.Size, Ranges: all, Regions: make([]byte, len(pieces)*len(name{}))}
	whole := blake3.New(32, nil)
	group, work := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0) + 1)
	at := uint64(0)
	for i, c := range pieces {
		if work.Err() != nil {
			break
		}
		gap := int(c.offset - at)
		data := make([]byte, gap+int(c.bytes))
		if _, err := s.File.ReadAt(data, int64(at)); err != nil && err != io.EOF {
			return r, errors.Join(err, group.Wait())
		}
		if !isZero(data[:gap]) {
			return r, errors.Join(errNotData, group.Wait())
		}
		whole.Write(data)
		at = c.offset + c.bytes
		group.Go(func() error { return w.region(work, data[gap:], r.Regions[i*len(name{}):]) })
	}
	err = group.Wait()
	if err == nil {
		err = ctx.Err()
	}
	r.Sum = hex.EncodeToString(whole.Sum(nil))
	return r, err
}

// region puts the name of a region into to, and the region into the store if that has none of the name.
func (w *writer) region(ctx context.Context, region, to []byte) error {
	if isZero(region) {
		return nil
	}
	n := w.im.Key.nameOf(region)
	copy(to, n[:])
	w.mu.Lock()
	seen := w.seen[n]
	w.seen[n] = true
	w.mu.Unlock()
	if seen {
		return nil
	}
	if has, err := w.im.Store.Has(ctx, n.object()); has || err != nil {
		return err
	}
	object := w.im.Key.encode(n, region)
	w.mu.Lock()
	w.written += int64(len(object))
	w.mu.Unlock()
	return w.im.Store.Put(ctx, n.object(), object)
}

// List returns the IDs of all images, in ascending order.
func (im *Images) List(ctx context.Context) ([]string, error) {
	objects, err := im.Store.List(ctx, "images/")
	for i := range objects {
		objects[i] = strings.TrimPrefix(objects[i], "images/")
	}
	return objects, err
}

// Manifest reads and verifies the manifest of an image: fs.ErrNotExist, ErrKey, ErrDamaged.
func (im *Images) Manifest(ctx context.Context, id string) (*Manifest, error) {
	object, err := im.Store.Get(ctx, "images/"+id)
	if err != nil {
		return nil, of("image "+id, err)
	}
	m, err := decodeManifest(id, object, im.Key)
	return m, of("image "+id, err)
}

// Delete removes an image. Its regions stay: other images may have them.
func (im *Images) Delete(ctx context.Context, id string) error {
	return im.Store.Delete(ctx, "images/"+id)
}

// Verify reads all of an image and compares it with its names and checksums.
func (im *Images) Verify(ctx context.Context, id string) error {
	m, err := im.Manifest(ctx, id)
	if err != nil {
		return err
	}
	for i := range m.Ranks {
		whole := blake3.New(32, nil)
		if err := im.write(ctx, &m.Ranks[i], whole); err != nil {
			return fmt.Errorf("image %s: rank %d: %w", id, i, err)
		}
	}
	return nil
}

// write writes the file of a rank, from its start to its end. An error after the last
// byte says that the whole is not what was saved.
func (im *Images) write(ctx context.Context, r *Rank, to io.Writer) error {
	pieces, err := cuts(r.Ranges, uint64(r.FileBytes))
	if err != nil {
		return err
	}
	whole := blake3.New(32, nil)
	out := io.MultiWriter(whole, to)
	at := uint64(0)
	for i, c := range pieces {
		n := name(r.Regions[i*len(name{}):])
		region := make([]byte, c.bytes)
		if n != (name{}) {
			object, err := im.Store.Get(ctx, n.object())
			if errors.Is(err, fs.ErrNotExist) {
				err = ErrDamaged
			}
			if err == nil {
				region, err = im.Key.decode(n, object)
			}
			if err == nil && uint64(len(region)) != c.bytes {
				err = ErrDamaged
			}
			if err != nil {
				return of(n.object(), err)
			}
		}
		if _, err := out.Write(make([]byte, c.offset-at)); err != nil {
			return err
		}
		if _, err := out.Write(region); err != nil {
			return err
		}
		at = c.offset + c.bytes
	}
	if hex.EncodeToString(whole.Sum(nil)) != r.Sum {
		return ErrDamaged
	}
	return nil
}

// Restore writes the PID.data of a rank to a path. It verifies all of it in a temporary
// file, path.tmp, whose name the library for GPU processes uses too and cleans up, and then renames that.
func (im *Images) Restore(ctx context.Context, id string, rank int, path string) error {
	m, err := im.Manifest(ctx, id)
	if err != nil {
		return err
	}
	if rank < 0 || rank >= len(m.Ranks) {
		return fmt.Errorf("image %s: expected a rank below %d; found %d", id, len(m.Ranks), rank)
	}
	partial := path + ".tmp"
	os.Remove(partial) // of a restore that died
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = im.write(ctx, &m.Ranks[rank], f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		os.Remove(partial)
		return fmt.Errorf("image %s: rank %d: %w", id, rank, err)
	}
	return nil
}
