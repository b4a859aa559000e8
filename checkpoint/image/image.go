// Package image keeps the GPU memory of paused processes as images: regions named
// by their content, each stored once, and a manifest an image (FlowGPU, §4.3;
// docs/adr/0027). It hands out no byte that it has not verified.
package image

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"regexp"
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
	// Progress, if not nil, is called with the bytes that were saved, verified or restored beside those of the calls before, by several
	// goroutines at a time.
	Progress func(bytes int64)

	regionBytes int // of new images; 0: RegionBytes
}

// ErrNoStore is a place where no image was ever saved.
var ErrNoStore = errors.New("no images were saved there yet")

// about is the object that says which key a store has, so that plain and encrypted images are not mixed.
type about struct {
	Version int    `json:"version"`
	Key     string `json:"key"` // its ID; "" without
}

const aboutObject = "store.json"

// Open opens the images of a store, or with create begins a store: ErrNoStore, ErrKey.
func Open(ctx context.Context, store Store, key *Key, create bool) (*Images, error) {
	mine := about{Version: formatVersion}
	if key != nil {
		mine.Key = hex.EncodeToString(key.id[:])
	}
	text, err := store.Get(ctx, aboutObject)
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil, ErrNoStore
		}
		if text, err = json.Marshal(mine); err == nil {
			err = store.Put(ctx, aboutObject, text)
		}
	}
	if err != nil {
		return nil, err
	}
	var found about
	switch {
	case json.Unmarshal(text, &found) != nil:
		return nil, of(aboutObject, ErrDamaged)
	case found.Version != formatVersion:
		return nil, fmt.Errorf("%s: expected version %d; found %d", aboutObject, formatVersion, found.Version)
	case found != mine:
		return nil, ErrKey
	}
	return &Images{Store: store, Key: key}, nil
}

// Source is the saved memory of one process: its PID.data, which does not change.
type Source struct {
	Process
	File  io.ReaderAt
	Size  int64        // bytes
	Check func() error // if not nil, called when all was read: whether the process still is as it was
}

// Saved says what saving an image took.
type Saved struct {
	Entry
	Bytes   int64 `json:"bytes"`       // of all processes
	Written int64 `json:"storedBytes"` // new in the store, the manifest included

	regions keptRegions // of the save that has just ended; nil: an earlier one made the image
}

// Entry is how an image is found: by its ID, or by its name, if it has one.
type Entry struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

func (e Entry) String() string {
	if e.Name == "" {
		return e.ID
	}
	return e.ID + "." + e.Name
}

var (
	nameForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	entryForm = regexp.MustCompile(`^images/([0-9a-f]{16})(?:\.([A-Za-z0-9][A-Za-z0-9._-]{0,63}))?$`)
	idForm    = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// CheckName says whether an image can have the name.
func CheckName(name string) error {
	if !nameForm.MatchString(name) || idForm.MatchString(name) {
		return fmt.Errorf("expected 1 to 64 letters, digits, -, . and _, a letter or digit first, and not the form of an ID; found %q", name)
	}
	return nil
}

// HostFile is a file of a whole process: what criu wrote, and the like. It does not change.
type HostFile struct {
	Name string // without a path
	File io.ReaderAt
	Size int64 // bytes
}

// Save saves processes as the ranks of one image, and files beside them. Regions are written first and the
// manifest last: whenever it ends early, the store has the images that it had.
// The bytes are compared with the checksums that the library wrote when it copied them. A
// name that another image has is refused; two saves at the same time may both get it.
// It needs memory for a few regions a CPU, and for 32 bytes a region.
func (im *Images) Save(ctx context.Context, name string, sources []Source, files ...HostFile) (Saved, error) {
	l, err := leaseToSave(ctx, im.Store)
	if err != nil {
		return Saved{}, err
	}
	defer l.end()
	if name != "" {
		if e, err := im.Find(ctx, name); err == nil {
			return Saved{}, fmt.Errorf("expected a name that no image has; found %s, of image %s", name, e.ID)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return Saved{}, err
		}
	}
	host, _ := os.Hostname() // for people to read; an image without is as good
	m := &Manifest{Version: formatVersion, Created: time.Now().UTC(), Name: name, Host: host, RegionBytes: im.regionBytes}
	if m.RegionBytes == 0 {
		m.RegionBytes = RegionBytes
	}
	w := &writer{im: im, seen: keptRegions{}}
	for _, s := range sources {
		rank, err := w.rank(ctx, s, uint64(m.RegionBytes))
		if err != nil {
			return Saved{}, fmt.Errorf("process %d: %w", s.PID, err)
		}
		m.Ranks = append(m.Ranks, rank)
	}
	for _, f := range files {
		file, err := w.plain(ctx, f, m.RegionBytes)
		if err != nil {
			return Saved{}, fmt.Errorf("%s: %w", f.Name, err)
		}
		m.Files = append(m.Files, file)
	}
	for _, s := range sources {
		if s.Check == nil {
			continue
		}
		if err := s.Check(); err != nil {
			return Saved{}, fmt.Errorf("process %d: %w", s.PID, err)
		}
	}
	id, object, err := m.encode(im.Key)
	if err != nil {
		return Saved{}, err
	}
	saved := Saved{Entry{id, name}, m.Bytes(), w.written + int64(len(object)), w.seen}
	if err := im.Store.Put(ctx, "images/"+saved.String(), object); err != nil {
		return Saved{}, err
	}
	if err := l.held(ctx); err != nil {
		return Saved{}, errors.Join(err, im.Delete(context.WithoutCancel(ctx), saved.Entry))
	}
	return saved, nil
}

// kept is a region of an image that was saved.
type kept struct {
	bytes   uint64
	written bool // by the save; else the store had it, and the save has read it
}

type keptRegions map[name]kept

// writer writes the regions of an image that the store does not have.
type writer struct {
	im      *Images
	mu      sync.Mutex
	seen    keptRegions
	written int64
}

// atOnce is how many regions are read, written or verified at the same time: the
// CPUs have work, and a store that is far away is waited for several times at once.
func atOnce() int { return max(8, 2*runtime.GOMAXPROCS(0)) }

// rank writes the regions of a PID.data, which has to have the checksums of the library.
func (w *writer) rank(ctx context.Context, s Source, region uint64) (Rank, error) {
	all, err := ranges(s.File, s.Size)
	if err != nil {
		return Rank{}, err
	}
	n, err := layout(all, uint64(s.Size), region)
	if err != nil {
		return Rank{}, err
	}
	r := Rank{Process: s.Process, FileBytes: s.Size, Ranges: all, Regions: make([]byte, n*uint64(len(name{})))}
	var sum *rangeSum
	r.Sum, err = w.file(ctx, s.File, r.Regions, cuts(all, region), func(c cut, gap, data []byte) error {
		if !isZero(gap) {
			return errNotData
		}
		if c.in < 0 {
			return nil
		}
		if c.offset == all[c.in].Offset {
			sum = newRangeSum(all[c.in].Bytes)
		}
		sum.Write(data)
		if c.offset+c.bytes == all[c.in].Offset+all[c.in].Bytes && sum.sum != all[c.in].Sum {
			return fmt.Errorf("range %d: its checksum differs: %w", c.in, errNotData)
		}
		return nil
	})
	return r, err
}

// plain writes the regions of a file with any content.
func (w *writer) plain(ctx context.Context, h HostFile, region int) (f File, err error) {
	f = File{Name: h.Name, Bytes: h.Size, Regions: make([]byte, regionsOf(h.Size, region)*uint64(len(name{})))}
	f.Sum, err = w.file(ctx, h.File, f.Regions, plainCuts(h.Size, region), nil)
	return f, err
}

// file reads a file once, from its start to its end, and returns its sum: one goroutine sums the whole, others write
// regions, whose names it puts into regions. look sees each part in order, and what is between it and the part before.
func (w *writer) file(ctx context.Context, file io.ReaderAt, regions []byte, parts iter.Seq2[int, cut], look func(c cut, gap, data []byte) error) (string, error) {
	whole := blake3.New(32, nil)
	group, work := errgroup.WithContext(ctx)
	group.SetLimit(atOnce())
	at := uint64(0)
	for i, c := range parts {
		if work.Err() != nil {
			break
		}
		gap := int(c.offset - at)
		data := make([]byte, gap+int(c.bytes))
		n, err := file.ReadAt(data, int64(at))
		if err == io.EOF && n == len(data) {
			err = nil
		} else if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err == nil && look != nil {
			err = look(c, data[:gap], data[gap:])
		}
		if err != nil {
			return "", errors.Join(err, group.Wait())
		}
		whole.Write(data)
		at = c.offset + c.bytes
		data = data[gap:]
		group.Go(func() error { return w.region(work, data, regions[i*len(name{}):]) })
		w.im.progress(len(data) + gap)
	}
	err := group.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return hex.EncodeToString(whole.Sum(nil)), err
}

func (im *Images) progress(bytes int) {
	if im.Progress != nil {
		im.Progress(int64(bytes))
	}
}

// region puts the name of a region into to, and the region into the store if that has
// none of the name, or a damaged one.
func (w *writer) region(ctx context.Context, region, to []byte) error {
	if isZero(region) {
		return nil
	}
	n := w.im.Key.nameOf(region)
	copy(to, n[:])
	w.mu.Lock()
	_, seen := w.seen[n]
	if !seen {
		w.seen[n] = kept{bytes: uint64(len(region))}
	}
	w.mu.Unlock()
	if seen {
		return nil
	}
	if there, err := w.im.has(ctx, n, region); there || err != nil {
		return err
	}
	object := w.im.Key.encode(n, region)
	w.mu.Lock()
	w.seen[n] = kept{bytes: uint64(len(region)), written: true}
	w.written += int64(len(object))
	w.mu.Unlock()
	return w.im.Store.Put(ctx, n.object(), object)
}

// has reads a region and says whether it is this one: false also if it is damaged.
func (im *Images) has(ctx context.Context, n name, region []byte) (bool, error) {
	object, err := im.Store.Get(ctx, n.object())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, of(n.object(), err)
	}
	found, err := im.Key.content(n, object, uint64(len(region)))
	return err == nil && bytes.Equal(found, region), nil
}

// region reads and verifies a region: ErrDamaged also if there is none.
func (im *Images) region(ctx context.Context, n name, size uint64) ([]byte, error) {
	object, err := im.Store.Get(ctx, n.object())
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrDamaged
	}
	var region []byte
	if err == nil {
		region, err = im.Key.decode(n, object, size)
	}
	return region, of(n.object(), err)
}

// List returns all images, in ascending order of their IDs.
func (im *Images) List(ctx context.Context) ([]Entry, error) {
	objects, err := im.Store.List(ctx, "images/")
	var all []Entry
	for _, o := range objects {
		if m := entryForm.FindStringSubmatch(o.Name); m != nil {
			all = append(all, Entry{m[1], m[2]})
		}
	}
	return all, err
}

// Find returns the image that has the ID or the name: fs.ErrNotExist if none has.
func (im *Images) Find(ctx context.Context, ref string) (Entry, error) {
	all, err := im.List(ctx)
	var found []Entry
	var ids []string
	for _, e := range all {
		if e.ID == ref || e.Name == ref {
			found, ids = append(found, e), append(ids, e.ID)
		}
	}
	switch {
	case err != nil:
		return Entry{}, err
	case len(found) == 0:
		return Entry{}, &missingError{ref}
	case len(found) > 1:
		return Entry{}, fmt.Errorf("expected one image of the name %s; found %s: use the ID", ref, strings.Join(ids, ", "))
	}
	return found[0], nil
}

// missingError is an image that the store does not have.
type missingError struct{ ref string }

func (e *missingError) Error() string        { return fmt.Sprintf("the store has no image %q", e.ref) }
func (e *missingError) Is(target error) bool { return target == fs.ErrNotExist }

// Manifest reads and verifies the manifest of an image: fs.ErrNotExist, ErrKey, ErrDamaged.
func (im *Images) Manifest(ctx context.Context, e Entry) (*Manifest, error) {
	object, err := im.Store.Get(ctx, "images/"+e.String())
	if err != nil {
		return nil, of("image "+e.ID, err)
	}
	m, err := decodeManifest(e.ID, e.Name, object, im.Key)
	return m, of("image "+e.ID, err)
}

// Delete removes an image. Its regions stay until Collect: other images may have them.
func (im *Images) Delete(ctx context.Context, e Entry) error {
	return im.Store.Delete(ctx, "images/"+e.String())
}

// zeros is what has no region, and what is between two ranges.
var zeros [mostRegion]byte

// piece is a region on its way from the store.
type piece struct {
	cut
	data []byte // nil: all 0
	err  error
	done chan struct{}
}

// pieces reads the regions of a file, several at a time and in order.
func (im *Images) pieces(ctx context.Context, regions []byte, parts iter.Seq2[int, cut]) <-chan *piece {
	ahead := make(chan *piece, atOnce())
	go func() {
		defer close(ahead)
		for i, c := range parts {
			p := &piece{cut: c, done: make(chan struct{})}
			if n := name(regions[i*len(name{}):]); n == (name{}) {
				close(p.done)
			} else {
				go func() {
					defer close(p.done)
					p.data, p.err = im.region(ctx, n, c.bytes)
				}()
			}
			select {
			case ahead <- p:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ahead
}

// Restore writes the PID.data of a rank of an image to an empty file, with holes for
// bytes that are 0; with no file it only verifies. Only when it returns without an error the
// file is what was saved: until then it needs another name.
func (im *Images) Restore(ctx context.Context, m *Manifest, rank int, to *os.File) error {
	r := &m.Ranks[rank]
	return of(fmt.Sprintf("rank %d", rank), im.restore(ctx, r.FileBytes, r.Sum, r.Regions, cuts(r.Ranges, uint64(m.RegionBytes)), to))
}

// RestoreFile is Restore for a file that is no rank's.
func (im *Images) RestoreFile(ctx context.Context, m *Manifest, file int, to *os.File) error {
	f := &m.Files[file]
	return of(f.Name, im.restore(ctx, f.Bytes, f.Sum, f.Regions, plainCuts(f.Bytes, m.RegionBytes), to))
}

func (im *Images) restore(ctx context.Context, size int64, sum string, regions []byte, parts iter.Seq2[int, cut], to *os.File) error {
	if to != nil {
		if err := to.Truncate(size); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	whole := blake3.New(32, nil)
	at := uint64(0)
	for p := range im.pieces(ctx, regions, parts) {
		<-p.done
		if p.err != nil {
			return p.err
		}
		whole.Write(zeros[:p.offset-at])
		if p.data == nil {
			whole.Write(zeros[:p.bytes])
		} else {
			whole.Write(p.data)
			if to != nil {
				if _, err := to.WriteAt(p.data, int64(p.offset)); err != nil {
					return err
				}
			}
		}
		im.progress(int(p.offset - at + p.bytes))
		at = p.offset + p.bytes
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if hex.EncodeToString(whole.Sum(nil)) != sum {
		return ErrDamaged
	}
	return nil
}
