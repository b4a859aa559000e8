// Package hardware observes the GPUs of a node: what NVIDIA's management library (NVML) says of them, where
// they are in the machine, and which errors the driver wrote to the kernel log (docs/adr/0059).
package hardware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
)

// patience is how many readings in a row the driver may leave without an answer before its GPUs are at fault.
const patience = 3

// Options say what is observed, and where.
type Options struct {
	Program     string   // muster-gpu-nvml
	Library     string   // the path of libnvidia-ml.so.1; empty: as the linker finds it
	Environment []string // of the program, beside this process's own
	KernelLog   string   // /dev/kmsg; empty: it is not read
	System      string   // the root of the file system that has proc and sys: /
	StateDir    string   // of the record that is kept between starts; empty: none is
	Timeout     time.Duration
	Log         *slog.Logger
}

// Watch observes. Its methods may be called at the same time.
type Watch struct {
	o       Options
	program program
	log     kernelLog

	reading sync.Mutex // one at a time; it guards what is above

	mu         sync.Mutex // guards what is below
	record     *agentpb.HardwareRecord
	last       *agentpb.Hardware
	unanswered int // readings in a row
	said       map[string]string
}

// Open returns a watch that goes on with the record in the folder.
func Open(o Options) (*Watch, error) {
	id, err := os.ReadFile(filepath.Join(o.System, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return nil, fmt.Errorf("which start of the machine this is: %w", err)
	}
	w := &Watch{o: o, log: kernelLog{path: o.KernelLog}, said: map[string]string{}}
	w.program = program{path: o.Program, library: o.Library, environment: o.Environment, timeout: o.Timeout}
	w.record = &agentpb.HardwareRecord{BootId: strings.TrimSpace(string(id)), Sequence: -1}
	if o.StateDir == "" {
		return w, nil
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, err
	}
	record, damaged := load(o.StateDir, w.record.BootId)
	if damaged != nil {
		o.Log.Error("the record of the GPUs cannot be read; what the kernel log still has is read again", "error", damaged)
	}
	w.record = record
	return w, nil
}

// Run reads at once and then at each interval, and gives what it found to each, until the context ends.
func (w *Watch) Run(ctx context.Context, interval time.Duration, each func(context.Context, *agentpb.Hardware)) {
	next := time.NewTicker(interval)
	defer next.Stop()
	for ctx.Err() == nil {
		if h := w.Read(ctx); ctx.Err() == nil && each != nil {
			each(ctx, h)
		}
		select {
		case <-next.C:
		case <-ctx.Done():
		}
	}
	w.reading.Lock()
	defer w.reading.Unlock()
	w.log.close()
}

// Last is what the last reading found, nil before the first one.
func (w *Watch) Last() *agentpb.Hardware {
	w.mu.Lock()
	defer w.mu.Unlock()
	return proto.CloneOf(w.last)
}

// Read reads the kernel log and asks the driver.
func (w *Watch) Read(ctx context.Context) *agentpb.Hardware {
	w.reading.Lock()
	defer w.reading.Unlock()
	logErr := errors.New("it is not read (--kernel-log)")
	if w.o.KernelLog != "" {
		logErr = w.listen()
	}
	r, err := w.program.read(ctx)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("NVML: %s (error %d)", r.Error, r.Code)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return proto.CloneOf(w.last)
	}
	h := w.assemble(r, err)
	h.LogUnread = said(logErr)
	w.say("log", h.LogUnread, "errors of GPUs in the kernel log are not seen")
	w.say("driver", h.Unread, "the driver says nothing of the GPUs")
	if w.remember(h, err == nil) {
		w.keep()
	}
	w.last = h
	return proto.CloneOf(h)
}

// listen takes what is new in the kernel log into the record.
func (w *Watch) listen() error {
	changed, start := false, w.started()
	err := w.log.read(func(m record) {
		w.mu.Lock()
		defer w.mu.Unlock()
		changed = hear(m, timestamppb.New(start.Add(m.at)), w.record) || changed
	})
	if changed {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.keep()
	}
	return err
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// say logs that a problem begins, and that it ends.
func (w *Watch) say(of, problem, what string) {
	before := w.said[of]
	w.said[of] = problem
	switch {
	case before == "" && problem != "":
		w.o.Log.Warn(what, "why", problem)
	case before != "" && problem == "":
		w.o.Log.Info("that is over: " + what)
	}
}

// started is when the machine started.
func (w *Watch) started() time.Time {
	text, _ := os.ReadFile(filepath.Join(w.o.System, "proc/uptime"))
	up, _, _ := strings.Cut(string(text), " ")
	seconds, _ := strconv.ParseFloat(up, 64)
	return time.Now().Add(-time.Duration(seconds * float64(time.Second)))
}

// keep writes the record. What cannot be written is tried again with the next change; until then it is only lost if the agent ends.
func (w *Watch) keep() error {
	if w.o.StateDir == "" {
		return nil
	}
	err := store(w.o.StateDir, w.record)
	if err != nil {
		w.o.Log.Error("the record of the GPUs cannot be written", "error", err)
	}
	return err
}

// assemble makes one picture of what the driver said now, what it said before, and the kernel log. err is why it did not answer.
func (w *Watch) assemble(r reading, err error) *agentpb.Hardware {
	h := &agentpb.Hardware{Unread: said(err), DriverVersion: r.Driver, Xids: w.record.Xids}
	switch {
	case err == nil:
		w.unanswered = 0
		h.Read, h.Gpus = timestamppb.Now(), w.present(r)
	case w.last != nil && len(w.last.Gpus) > 0:
		h.Read, h.DriverVersion, h.Gpus = w.last.Read, w.last.DriverVersion, proto.CloneOf(w.last).Gpus
	default:
		h.Gpus = proto.CloneOf(w.record).Gpus
	}
	for _, g := range h.Gpus { // judge adds those of the log again
		g.Faults = slices.DeleteFunc(g.Faults, func(f *agentpb.Fault) bool { return f.Reason == "XidError" })
	}
	h.Nics = locate(w.o.System, h.Gpus)
	if err != nil && !errors.Is(err, errNoProgram) && !errors.Is(err, errProgram) && !errors.Is(err, errNoLibrary) {
		w.unanswered++
		// A driver that is not loaded is a fault only where there were GPUs; one that hangs is there.
		hangs := errors.Is(err, errHangs)
		if w.unanswered >= patience && (hangs || len(w.record.Gpus) > 0) {
			reason := "DriverError"
			if hangs {
				reason = "DriverNotResponding"
			}
			h.Faults = append(h.Faults, &agentpb.Fault{Reason: reason, Message: err.Error()})
		}
	}
	w.judge(h, err == nil)
	w.since(h)
	return h
}

// present is the GPUs as the driver describes them now, and those that were there since the machine started and have gone.
func (w *Watch) present(r reading) []*agentpb.GPU {
	var gpus []*agentpb.GPU
	there := map[string]bool{}
	for i := range r.GPUs {
		there[r.GPUs[i].UUID] = true
	}
	for i := range r.GPUs {
		raw := &r.GPUs[i]
		g := raw.gpu()
		if g.Uuid == "" || g.Pci == "" { // it does not say who it is: as far as the numbers are those of before, it is the one of its number
			for _, known := range w.record.Gpus {
				if known.Index == g.Index && (g.Uuid == "" && !there[known.Uuid] || known.Uuid == g.Uuid) {
					there[known.Uuid] = true
					g = proto.CloneOf(known)
					break
				}
			}
		}
		if raw.Code != 0 && raw.Code != nvmlNoPermission {
			g.Faults = append(g.Faults, &agentpb.Fault{Reason: reasonOf(raw.Code), Message: fmt.Sprintf("NVML: %s (error %d)", raw.Error, raw.Code)})
		}
		gpus = append(gpus, g)
	}
	for _, known := range w.record.Gpus {
		if !there[known.Uuid] {
			gone := proto.CloneOf(known)
			gone.Faults = append(gone.Faults, &agentpb.Fault{Reason: "GPUMissing", Message: fmt.Sprintf("it was GPU %d since the machine started, and the driver no longer lists it", known.Index)})
			gone.Index = -1
			gpus = append(gpus, gone)
		}
	}
	return gpus
}

func reasonOf(code int) string {
	switch code {
	case nvmlGPUIsLost:
		return "GPULost"
	case nvmlResetRequired:
		return "ResetRequired"
	}
	return "DriverError"
}

// judge adds what else is wrong: rows of memory, links that were up, errors of the kernel log. fresh says that the driver answered.
func (w *Watch) judge(h *agentpb.Hardware, fresh bool) {
	counted := map[string]bool{}
	for _, g := range h.Gpus {
		if fresh && g.GetRowsFailed() {
			g.Faults = append(g.Faults, &agentpb.Fault{Reason: "RowRemapFailed", Message: "a row of its memory is broken, and there is no spare one"})
		}
		if down, was := w.linksDown(g); fresh && len(down) > 0 {
			g.Faults = append(g.Faults, &agentpb.Fault{Reason: "NVLinkDown", Message: fmt.Sprintf("of %d NVLinks that were up, down: %s", was, strings.Join(down, ", "))})
		}
		if fault := w.record.Errors[g.Pci]; fault != nil && g.Pci != "" {
			counted[g.Pci] = true
			g.Faults = append(g.Faults, proto.CloneOf(fault))
		}
	}
	for _, x := range h.Xids {
		for _, g := range h.Gpus {
			if g.Pci == x.Pci {
				x.Uuid = g.Uuid
			}
		}
	}
	for _, pci := range slices.Sorted(maps.Keys(w.record.Errors)) {
		if fault := proto.CloneOf(w.record.Errors[pci]); !counted[pci] { // of an NVSwitch, or of a GPU that the driver has not named yet
			fault.Message = strings.TrimPrefix(pci+": ", ": ") + fault.Message
			h.Faults = append(h.Faults, fault)
		}
	}
}

// linksDown are the links of a GPU that were up since the machine started and are not, and how many were.
func (w *Watch) linksDown(g *agentpb.GPU) (down []string, were int) {
	i := slices.IndexFunc(w.record.Gpus, func(k *agentpb.GPU) bool { return k.Uuid == g.Uuid })
	if i < 0 || g.Uuid == "" || g.Index < 0 {
		return nil, 0
	}
	for _, l := range w.record.Gpus[i].Links {
		were++
		if j := slices.IndexFunc(g.Links, func(n *agentpb.NVLink) bool { return n.Link == l.Link }); j >= 0 && !g.Links[j].Active {
			down = append(down, strconv.Itoa(int(l.Link)))
		}
	}
	return down, were
}

// since sets when faults were first seen: those that the last reading had too are older.
func (w *Watch) since(h *agentpb.Hardware) {
	before := map[string]*timestamppb.Timestamp{}
	each := func(h *agentpb.Hardware, do func(key string, f *agentpb.Fault)) {
		for _, f := range h.GetFaults() {
			do(f.Reason, f)
		}
		for _, g := range h.GetGpus() {
			for _, f := range g.Faults {
				do(g.Uuid+" "+f.Reason, f)
			}
		}
	}
	each(w.last, func(key string, f *agentpb.Fault) { before[key] = f.Since })
	each(h, func(key string, f *agentpb.Fault) {
		if f.Since == nil {
			if f.Since = before[key]; f.Since == nil {
				f.Since = timestamppb.Now()
			}
		}
	})
}

// remember takes GPUs and links that are new into the record, and says whether that changed it.
func (w *Watch) remember(h *agentpb.Hardware, fresh bool) bool {
	changed := false
	for _, g := range h.Gpus {
		if !fresh || g.Uuid == "" || g.Pci == "" || g.Index < 0 {
			continue
		}
		i := slices.IndexFunc(w.record.Gpus, func(k *agentpb.GPU) bool { return k.Uuid == g.Uuid })
		if i < 0 {
			w.record.Gpus = append(w.record.Gpus, &agentpb.GPU{})
			i = len(w.record.Gpus) - 1
		}
		now := &agentpb.GPU{Index: g.Index, Uuid: g.Uuid, Name: g.Name, Pci: g.Pci, MemoryBytes: g.MemoryBytes, Links: w.record.Gpus[i].Links}
		for _, l := range g.Links {
			if l.Active && !slices.ContainsFunc(now.Links, func(k *agentpb.NVLink) bool { return k.Link == l.Link }) {
				now.Links = append(slices.Clone(now.Links), l)
			}
		}
		if !proto.Equal(now, w.record.Gpus[i]) {
			w.record.Gpus[i], changed = now, true
		}
	}
	slices.SortStableFunc(w.record.Gpus, func(a, b *agentpb.GPU) int { return cmp.Compare(a.Index, b.Index) })
	return changed
}

// ErrNoGPU is a UUID of which nothing is known.
var ErrNoGPU = errors.New("no such GPU")

// Clear forgets the errors of the kernel log of a GPU, or of all if the UUID is empty; and those that have gone.
func (w *Watch) Clear(ctx context.Context, uuid string) (*agentpb.Hardware, error) {
	w.mu.Lock()
	at := slices.IndexFunc(w.record.Gpus, func(g *agentpb.GPU) bool { return g.Uuid == uuid })
	if uuid != "" && at < 0 {
		w.mu.Unlock()
		return nil, fmt.Errorf("%w: %q", ErrNoGPU, uuid)
	}
	if uuid == "" {
		clear(w.record.Errors)
		w.record.Gpus = nil
	} else {
		delete(w.record.Errors, w.record.Gpus[at].Pci)
		w.record.Gpus = slices.Delete(w.record.Gpus, at, at+1)
	}
	err := w.keep()
	w.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("it is forgotten until the agent starts again, as the record cannot be written: %w", err)
	}
	return w.Read(ctx), nil
}
