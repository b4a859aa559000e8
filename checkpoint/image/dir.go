package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Store keeps objects of one byte or more by name. Its methods may be called from several
// goroutines, and what one has done the next one finds. A name has parts of letters, digits, - and ., with / between them.
type Store interface {
	// Put writes an object: whole, or not at all. One of the same name is replaced.
	Put(ctx context.Context, object string, data []byte) error
	// Get reads an object; fs.ErrNotExist if there is none.
	Get(ctx context.Context, object string) ([]byte, error)
	// Has says whether an object is there.
	Has(ctx context.Context, object string) (bool, error)
	// List returns the objects whose names begin with the prefix, in ascending order.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Delete removes an object, if there is one.
	Delete(ctx context.Context, object string) error
}

// Object is what a store says about one.
type Object struct {
	Name  string
	Bytes int64
}

// Dir is a store in a folder. Only its user can read it.
type Dir string

// temporary is how the names of files begin that are not whole yet.
const temporary = ".tmp-"

func (d Dir) path(object string) string { return filepath.Join(string(d), filepath.FromSlash(object)) }

// Put writes a temporary file, which the disk has before it gets its name.
func (d Dir) Put(ctx context.Context, object string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	folder := filepath.Dir(d.path(object))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, temporary+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), d.path(object))
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return syncFolder(folder)
}

// syncFolder makes the names of a folder durable.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Get reads an object; fs.ErrNotExist if there is none.
func (d Dir) Get(ctx context.Context, object string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return os.ReadFile(d.path(object))
}

// Has says whether an object is there.
func (d Dir) Has(_ context.Context, object string) (bool, error) {
	_, err := os.Lstat(d.path(object))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List returns the objects whose names begin with the prefix, in ascending order. A folder that does not exist has none.
func (d Dir) List(ctx context.Context, prefix string) ([]Object, error) {
	var found []Object
	err := d.walk(ctx, prefix, func(object string, e fs.DirEntry) error {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(e.Name(), temporary) {
			return nil
		}
		if err == nil {
			found = append(found, Object{object, info.Size()})
		}
		return err
	})
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return found, err
}

// walk visits the files whose names begin with the prefix.
func (d Dir) walk(ctx context.Context, prefix string, visit func(object string, e fs.DirEntry) error) error {
	folder := d.path(prefix[:strings.LastIndexByte(prefix, '/')+1])
	return filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		object, err := filepath.Rel(string(d), path)
		if object = filepath.ToSlash(object); err != nil || !strings.HasPrefix(object, prefix) {
			return err
		}
		return visit(object, e)
	})
}

// sweep removes what writers that died left, but for leases, which a save may be writing.
func (d Dir) sweep(ctx context.Context) error {
	return d.walk(ctx, "", func(object string, e fs.DirEntry) error {
		if strings.HasPrefix(e.Name(), temporary) && !strings.HasPrefix(object, "leases/") {
			return d.Delete(ctx, object)
		}
		return nil
	})
}

// Delete removes an object, if there is one, also from the disk: no failure of the machine brings it back, and processes that went on since are not
// made of it again.
func (d Dir) Delete(_ context.Context, object string) error {
	if err := os.Remove(d.path(object)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := syncFolder(filepath.Dir(d.path(object))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
