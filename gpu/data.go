package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Identity names one pause of one process: no other process has it, and no other
// pause of the same one.
type Identity struct {
	PID       int    // in its own PID namespace
	Namespace uint64 // inode of that; 0: not known
	Started   uint64 // ticks from the machine's start to the process's
	Saves     uint32 // how often its memory was saved, this time included; 0: an older library, which does not count
}

// Identity is that of the process and its last pause.
func (p *Page) Identity() Identity {
	return Identity{p.PID, p.load64(atNamespace), p.load64(atStarted), p.load(atSaves)}
}

// DataPath is where the library keeps the saved memory of the process.
func (p *Page) DataPath() string { return filepath.Join(p.dir, strconv.Itoa(p.PID)+".data") }

func (p *Page) noData() error {
	return fmt.Errorf("%s: %w; if it was moved to an image, muster image restore --pid %d --store STORE writes it back", p.DataPath(), ErrNoData, p.PID)
}

// OpenData opens the saved memory: ErrNoData if there is none. A file under its name
// that is a link, or another user's, is refused: the folder is the process's to write.
func (p *Page) OpenData() (*os.File, error) {
	f, err := os.OpenFile(p.DataPath(), os.O_RDONLY|noFollow, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, p.noData()
	}
	if err != nil {
		return nil, err
	}
	user, _, err := ownerOf(p.file)
	if err == nil {
		var found int
		if found, _, err = ownerOf(f); err == nil && found != user {
			err = fmt.Errorf("%s: expected a file of user %d, as the control page is; found one of user %d", p.DataPath(), user, found)
		}
	}
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s: expected a file; found %s", p.DataPath(), info.Mode().Type())
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// CreateData creates an empty file beside where the saved memory was, which the user of the
// process may read. Rename it to DataPath when it is whole. What ends before leaves it
// to the library, and to OpenPage, which use the same name and clean it up.
func (p *Page) CreateData() (*os.File, error) {
	path := p.DataPath() + ".tmp"
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	user, group, err := ownerOf(p.file)
	if err == nil && user != os.Geteuid() {
		err = f.Chown(user, group)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return f, nil
}
