// Package durable makes files and their names survive the loss of power.
package durable

import (
	"errors"
	"os"
	"runtime"
)

// Folder makes the names in a folder durable: of files that were created, renamed or removed
// there. Windows has no such call.
func Folder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// File makes the content of a file durable, and closes it.
func File(f *os.File) error { return errors.Join(f.Sync(), f.Close()) }
