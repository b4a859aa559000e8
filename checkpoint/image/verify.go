package image

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Verify reads all of an image and compares it with its names and checksums.
func (im *Images) Verify(ctx context.Context, e Entry) error {
	m, err := im.Manifest(ctx, e)
	if err != nil {
		return err
	}
	for i := range m.Ranks {
		if err := im.Restore(ctx, m, i, nil); err != nil {
			return of("image "+e.ID, err)
		}
	}
	for i := range m.Files {
		if err := im.RestoreFile(ctx, m, i, nil); err != nil {
			return of("image "+e.ID, err)
		}
	}
	return nil
}

// Unread is how many bytes of memory VerifySaved reads back.
func (s Saved) Unread() (bytes int64) {
	if s.regions == nil {
		return s.Bytes
	}
	for _, r := range s.regions {
		if r.written {
			bytes += int64(r.bytes)
		}
	}
	return bytes
}

// VerifySaved is Verify for an image that Save has just made, and reads what Save has not: the manifest, and the regions that Save wrote.
// The others Save has read, and compared with the memory byte by byte: they have to be there still (docs/adr/0069).
func (im *Images) VerifySaved(ctx context.Context, s Saved) error {
	if s.regions == nil {
		return im.Verify(ctx, s.Entry)
	}
	m, err := im.Manifest(ctx, s.Entry)
	if err != nil {
		return err
	}
	for n := range m.names() {
		if _, kept := s.regions[n]; !kept && n != (name{}) {
			return of("image "+s.ID, of(n.object(), ErrDamaged))
		}
	}
	group, work := errgroup.WithContext(ctx)
	group.SetLimit(atOnce())
	for n, k := range s.regions {
		if work.Err() != nil {
			break
		}
		group.Go(func() error { return im.verifyKept(work, n, k) })
	}
	err = group.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return of("image "+s.ID, err)
}

func (im *Images) verifyKept(ctx context.Context, n name, k kept) error {
	if k.written {
		_, err := im.region(ctx, n, k.bytes)
		im.progress(int(k.bytes))
		return err
	}
	there, err := im.Store.Has(ctx, n.object())
	if err == nil && !there {
		err = ErrDamaged
	}
	return of(n.object(), err)
}
