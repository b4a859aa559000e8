package pause

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Store keeps the state of one job's coordinator.
type Store interface {
	Load() (State, error) // the zero State if none was saved
	Save(State) error     // when it returns nil, the state outlasts a crash
}

// File is a store: a file with JSON.
type File string

// Load reads the file; if there is none, the job was never paused.
func (f File) Load() (State, error) {
	var s State
	err := load(string(f), &s)
	return s, err
}

// Save replaces the file.
func (f File) Save(s State) error { return save(string(f), s) }

func load(path string, to any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// save writes a file whole, or not at all.
func save(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // if it was not renamed
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
