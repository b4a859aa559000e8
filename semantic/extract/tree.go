package extract

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Limits bound what is read of a folder.
type Limits struct {
	Files int   // that are listed; 20,000 by default
	Depth int   // of folders in folders; 12 by default
	File  int64 // bytes of one file: a larger one is not read; 1 MiB by default
	Total int64 // bytes of all files together; 24 MiB by default
}

// tree is the folder of a job. Nothing outside of it is reached, by links neither.
type tree struct {
	root   *os.Root // nil if there is no folder
	limits Limits
	ctx    context.Context
	files  []string // regular files with slashes, folders of less depth first
	has    map[string]bool
	// folders has those with a file in them, or in a folder of theirs.
	folders map[string]bool
	read    int64
	cache   map[string][]byte
}

// skipped has folders of code that others wrote, or that programs made.
var skipped = map[string]bool{
	"node_modules": true, "__pycache__": true, "venv": true, "env": true, "site-packages": true, "dist": true, "build": true, "wandb": true, "mlruns": true,
	"third_party": true, "third-party": true, "thirdparty": true, "vendor": true, "checkpoints": true, "lightning_logs": true, "logs": true,
}

func openTree(ctx context.Context, dir string, l Limits) (*tree, error) {
	l.Files = cmp.Or(l.Files, 20_000)
	l.Depth = cmp.Or(l.Depth, 12)
	l.File = cmp.Or(l.File, 1<<20)
	l.Total = cmp.Or(l.Total, 24<<20)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s: expected a folder; found a file", dir)
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: expected a folder that can be read; found: %w", dir, cause(err))
	}
	t := &tree{root: root, limits: l, ctx: ctx, has: map[string]bool{}, folders: map[string]bool{}, cache: map[string][]byte{}}
	if err := t.list(); err != nil {
		root.Close()
		return nil, fmt.Errorf("%s: expected a folder that can be read; found: %w", dir, cause(err))
	}
	return t, nil
}

func cause(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}

func (t *tree) close() { t.root.Close() }

// maxPath is how long a path can be on Linux.
const maxPath = 4096

// list lists the files, level by level. Links to files count as files, links to folders do not count.
func (t *tree) list() error {
	level := []string{"."}
	for depth := 0; depth < t.limits.Depth && len(level) > 0; depth++ {
		var below []string
		for _, dir := range level {
			entries, err := t.entries(dir)
			if err != nil && dir == "." {
				return err
			}
			for _, e := range entries {
				name := path.Join(dir, e.Name())
				switch {
				case e.IsDir():
					if !skipped[e.Name()] && !strings.HasPrefix(e.Name(), ".") && !strings.HasSuffix(e.Name(), ".egg-info") {
						below = append(below, name)
					}
				case e.Type().IsRegular() || e.Type() == fs.ModeSymlink:
					t.files = append(t.files, name)
					t.has[name] = true
					for d := dir; d != "." && !t.folders[d]; d = path.Dir(d) {
						t.folders[d] = true
					}
				}
				if len(t.files)+len(below) >= t.limits.Files || t.ctx.Err() != nil {
					return nil
				}
			}
		}
		level = below
	}
	return nil
}

func (t *tree) entries(dir string) ([]fs.DirEntry, error) {
	f, err := t.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(t.limits.Files)
	if err == io.EOF {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, err
}

// open returns the text of a file, or false if it is none, is too large, or cannot be read.
func (t *tree) open(name string) ([]byte, bool) {
	name = path.Clean(name)
	if t.ctx.Err() != nil {
		return nil, false
	}
	if data, ok := t.cache[name]; ok {
		return data, data != nil
	}
	data := t.load(name)
	t.cache[name] = data
	return data, data != nil
}

func (t *tree) load(name string) []byte {
	if t.root == nil {
		return nil
	}
	f, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO without a writer does not block
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > t.limits.File || t.read+info.Size() > t.limits.Total {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, t.limits.File))
	if err != nil || bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
		return nil
	}
	t.read += int64(len(data))
	if data == nil {
		data = []byte{}
	}
	return data
}

// find returns the file that name means for something that is launched in the folder dir, or imported by a file in dir.
func (t *tree) find(dir, name string) (string, bool) {
	if len(name) > maxPath {
		return "", false
	}
	for _, p := range []string{path.Join(dir, name), path.Clean(name), path.Join("src", name)} {
		if t.has[p] {
			return p, true
		}
	}
	// An absolute path, or one that begins above the folder: the longest end of it that exists.
	parts := strings.Split(path.Clean(name), "/")
	for i := 1; i < len(parts); i++ {
		if p := path.Join(parts[i:]...); t.has[p] && (i < len(parts)-1 || strings.Contains(name, "$")) {
			return p, true
		}
	}
	if !strings.Contains(name, "$") {
		return "", false
	}
	// A folder that is not known: the only file of that name.
	found, base := "", "/"+path.Base(name)
	for _, p := range t.files {
		if strings.HasSuffix(p, base) {
			if found != "" {
				return "", false
			}
			found = p
		}
	}
	return found, found != ""
}
