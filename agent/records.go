package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/muster-sched/muster/agent/agentpb"
)

// records keeps operations between starts of the agent.
type records interface {
	// put writes a record. When it has returned without an error, the record is there
	// after any crash; otherwise the record before is.
	put(*agentpb.Record) error
	remove(id string) error
	// all returns all records, in the order of their IDs.
	all() ([]*agentpb.Record, error)
	close() error
}

// files has a file of JSON an operation, named by its ID.
type files struct {
	dir  string
	lock *os.File
	log  *slog.Logger
}

// handOver is how long an agent waits for the lock of the one before it.
const handOver = time.Second

func openFiles(dir string, log *slog.Logger) (*files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = lockFile(lock)
	// A program that an agent was starting when it was killed has the lock, too, for an instant.
	for until := time.Now().Add(handOver); err != nil && time.Now().Before(until); err = lockFile(lock) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s: another agent runs with this folder: %w", dir, err)
	}
	return &files{dir, lock, log}, nil
}

func (f *files) close() error { return f.lock.Close() }

func (f *files) path(id string) string { return filepath.Join(f.dir, id+".json") }

func (f *files) put(r *agentpb.Record) error {
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(r)
	if err != nil {
		return err
	}
	next := f.path(r.Operation.Id) + ".new"
	if err := writeSynced(next, append(text, '\n')); err != nil {
		os.Remove(next)
		return err
	}
	if err := os.Rename(next, f.path(r.Operation.Id)); err != nil {
		return err
	}
	return f.sync()
}

func writeSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// sync makes renames and removals last.
func (f *files) sync() error {
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *files) remove(id string) error { return os.Remove(f.path(id)) }

// all leaves a file that is no record aside, as NAME.damaged: one such file must not
// keep the node without an agent.
func (f *files) all() ([]*agentpb.Record, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	var found []*agentpb.Record
	for _, e := range entries {
		path := filepath.Join(f.dir, e.Name())
		if strings.HasSuffix(e.Name(), ".json.new") {
			if err := os.Remove(path); err != nil { // a crash came before it counted
				return nil, err
			}
			continue
		}
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r := &agentpb.Record{}
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, r)
		if err == nil && (r.GetRequest().GetId() != id || r.GetOperation().GetId() != id) {
			err = fmt.Errorf("expected the record of operation %q", id)
		}
		if err == nil {
			err = valid(r.Request)
		}
		if err != nil {
			f.log.Error("a record is damaged, and is left aside", "file", path, "error", err)
			if err := os.Rename(path, path+".damaged"); err != nil {
				return nil, err
			}
			continue
		}
		found = append(found, r)
	}
	return found, nil
}
