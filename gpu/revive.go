package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// Content is a copy of the page, for Revive.
func (p *Page) Content() []byte { return bytes.Clone(p.data) }

// IsHere says whether the process has the same ID in its PID namespace and here.
func (p *Page) IsHere() bool { return p.here == p.PID }

// Here is the process's ID in the PID namespace of the caller, as the page has it: the word of who wrote that.
func (p *Page) Here() int { return p.here }

// IsOwn says whether the process itself has opened the page. Whoever does more to it than to write to the page asks that: any process that can write to the
// folder may have made the page of another one there.
func (p *Page) IsOwn() bool { return hasMapped(p.here, p.file) }

// Folder describes a folder of pages for MakeFolder: whose it is, its mode, and where.
func Folder(dir string) (string, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	user, group, err := ownerOf(f)
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %d %o %s", user, group, info.Mode()&(os.ModePerm|os.ModeSticky), path), nil
}

// MakeFolder makes the folder that was described, unless it is there, and returns its path.
func MakeFolder(described string) (path string, err error) {
	var user, group int
	var mode os.FileMode
	parts := strings.SplitN(described, " ", 4)
	if n, _ := fmt.Sscanf(described, "%d %d %o ", &user, &group, &mode); n != 3 || len(parts) != 4 || !filepath.IsAbs(parts[3]) {
		return "", fmt.Errorf("expected an owner, a mode and the path of a folder; found %q", described)
	}
	path = parts[3]
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := os.Mkdir(path, 0o700); errors.Is(err, os.ErrExist) {
		return path, nil
	} else if err != nil {
		return "", err
	}
	if user != os.Geteuid() {
		err = os.Lchown(path, user, group)
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	return path, err
}

// Revive makes the page of a paused process that ended, and will be brought back: the process maps the file, and goes on
// from what it says. Until Adopt or Discard, and Close, no other command removes or changes it.
func Revive(dir string, pid int, content []byte) (*Page, error) {
	if old, err := OpenPage(dir, pid); err == nil { // which removes what a process left that has ended
		old.Close()
		return nil, fmt.Errorf("process %d runs", pid)
	} else if !errors.Is(err, ErrGone) && !errors.Is(err, ErrNoPage) {
		return nil, err
	}
	path := filepath.Join(dir, strconv.Itoa(pid)+".page")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Page{PID: pid, here: pid, dir: dir, file: file}
	if err = p.Lock(); err == nil {
		_, err = file.Write(content)
	}
	if err == nil {
		p.data, err = mapFile(file)
	}
	if err == nil && (p.load(0) != pageMagic || p.load(4) != pageVersion || p.load(atPID) != uint32(pid) || !p.IsSaved()) {
		err = fmt.Errorf("expected the page of process %d, paused; found something else", pid)
	}
	if err != nil {
		os.Remove(path)
		file.Close()
		return nil, err
	}
	return p, nil
}

// Adopt makes the page that of the process that has its ID now, and its files those of the process's user.
func (p *Page) Adopt() error {
	started, err := StartTime(p.PID)
	if err != nil {
		return err
	}
	atomic.StoreUint64(p.word64(atStarted), started)
	atomic.StoreUint64(p.word64(atNamespace), namespaceOf(strconv.Itoa(p.PID)))
	process, err := os.Open(fmt.Sprintf("/proc/%d", p.PID))
	if err != nil {
		return err
	}
	defer process.Close()
	user, group, err := ownerOf(process)
	if err == nil {
		err = p.file.Chown(user, group)
	}
	for _, suffix := range []string{".data", ".gpus"} {
		if err == nil {
			err = os.Lchown(filepath.Join(p.dir, strconv.Itoa(p.PID)+suffix), user, group)
		}
		if suffix == ".gpus" && errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// Discard removes the files of a process that did not come back.
func (p *Page) Discard() { removeFiles(p.dir, p.PID) }
