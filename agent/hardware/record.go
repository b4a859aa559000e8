package hardware

import (
	"errors"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/internal/durable"
)

// recordFile is where the record is, in the agent's folder.
const recordFile = "hardware.json"

// load reads the record of this start of the machine. An earlier one says nothing of it: GPUs may have been replaced, and
// the numbers of the kernel log begin again. damaged is why a file that is there is not used.
func load(dir, bootID string) (r *agentpb.HardwareRecord, damaged error) {
	fresh := &agentpb.HardwareRecord{BootId: bootID, Sequence: -1}
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return fresh, nil
	}
	r = &agentpb.HardwareRecord{}
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, r)
	}
	if err != nil {
		return fresh, err
	}
	if r.BootId != bootID {
		return fresh, nil
	}
	return r, nil
}

// store writes the record: it is there as a whole after any crash, or the one before is.
func store(dir string, r *agentpb.HardwareRecord) error {
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordFile)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, durable.File(f)); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return durable.Folder(dir)
}
