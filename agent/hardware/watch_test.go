//go:build linux

package hardware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/gpu/gputest"
)

func TestMain(m *testing.M) { gputest.Main(m) }

// machine is a machine with a management library, a /sys, a kernel log and a folder of the agent.
type machine struct {
	*testing.T
	library *gputest.Library
	o       Options
	log     strings.Builder
	next    int // number of the next message of the kernel
}

func newMachine(t *testing.T) *machine {
	m := &machine{T: t, library: gputest.NewLibrary(t)}
	root := t.TempDir()
	m.o = Options{
		Program: m.library.Program, Library: m.library.Path, Environment: m.library.Environment(), System: root, KernelLog: filepath.Join(root, "kmsg"),
		StateDir: filepath.Join(root, "state"), Timeout: 10 * time.Second, Log: slog.New(slog.NewTextHandler(&m.log, nil)),
	}
	m.write("proc/uptime", "1000.00 1.00\n")
	m.starts("first")
	m.write("kmsg", "")
	return m
}

func (m *machine) write(name, text string) {
	m.Helper()
	path := filepath.Join(m.o.System, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
}

// starts is a start of the machine.
func (m *machine) starts(id string) { m.write("proc/sys/kernel/random/boot_id", id+"\n") }

// device puts a PCI device in /sys, at the end of a path of bridges, and links to it from another folder, if that is given.
func (m *machine) device(path string, numa int, link string) {
	m.Helper()
	m.write(filepath.Join("sys/devices", path, "numa_node"), fmt.Sprintln(numa))
	for _, from := range []string{filepath.Join("sys/bus/pci/devices", filepath.Base(path)), link} {
		if from == "" {
			continue
		}
		from = filepath.Join(m.o.System, from)
		if err := os.MkdirAll(filepath.Dir(from), 0o700); err != nil {
			m.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(m.o.System, "sys/devices", path), from); err != nil {
			m.Fatal(err)
		}
	}
}

// says adds messages of the kernel to its log.
func (m *machine) says(lines ...string) {
	m.Helper()
	f, err := os.OpenFile(m.o.KernelLog, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		m.Fatal(err)
	}
	defer f.Close()
	for _, line := range lines {
		fmt.Fprintf(f, "4,%d,%d,-,caller=T9;%s\n SUBSYSTEM=pci\n", m.next, 1_000_000*m.next, line)
		m.next++
	}
}

func (m *machine) open() *Watch {
	m.Helper()
	w, err := Open(m.o)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(w.log.close)
	return w
}

// faults are the faults of all GPUs, by their UUIDs, and of the node, in one line.
func faults(h *agentpb.Hardware) string {
	var out []string
	for _, g := range h.Gpus {
		for _, f := range g.Faults {
			out = append(out, fmt.Sprintf("%s@%d %s", g.Uuid, g.Index, f.Reason))
		}
	}
	for _, f := range h.Faults {
		out = append(out, f.Reason)
	}
	return strings.Join(out, ", ")
}

// What the driver says is reported with where each GPU is: two GPUs share a switch with a NIC, one is at the other processor.
func TestInventory(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu busy=97 used=1024 links=sd corrected=2", "gpu links=sss mig=1", "gpu name=NVIDIA_A10")
	m.device("pci0000:0a/0000:0a:01.0/0000:0b:00.0/0000:0c:00.0/0000:10:00.0", 0, "")
	m.device("pci0000:0a/0000:0a:01.0/0000:0b:00.0/0000:0c:01.0/0000:11:00.0", 0, "")
	m.device("pci0000:0a/0000:0a:01.0/0000:0b:00.0/0000:0c:02.0/0000:13:00.0", 0, "sys/class/infiniband/mlx5_1/device")
	m.device("pci0000:8a/0000:8a:01.0/0000:12:00.0", 1, "")
	m.device("pci0000:80/0000:80:01.0/0000:90:00.0", 1, "sys/class/infiniband/mlx5_10/device")
	m.device("pci0000:00/0000:00:01.0/0000:01:00.0", -1, "sys/class/infiniband/mlx5_0/device")
	h := m.open().Read(t.Context())
	if h.Unread != "" || h.LogUnread != "" || h.DriverVersion != "580.65.06" || len(h.Gpus) != 3 {
		t.Fatalf("found %v", h)
	}
	var got []string
	for _, g := range h.Gpus {
		nic := "-"
		if g.Nic != nil {
			nic = h.Nics[*g.Nic].Name
		}
		island := "-"
		if g.Island != nil {
			island = fmt.Sprint(*g.Island)
		}
		got = append(got, fmt.Sprintf("%d %s %s %s %s %d%% island %s numa %d %s %s nic %s", g.Index, g.Uuid, g.Name, g.Pci, g.PcieRoot, g.GetBusyPercent(), island, g.GetNuma(), g.PcieSwitch, g.PcieRoot, nic))
	}
	want := []string{
		"0 GPU-00000000 NVIDIA H200 0000:10:00.0 pci0000:0a 97% island 0 numa 0 0000:0b:00.0 pci0000:0a nic mlx5_1",
		"1 GPU-00000001 NVIDIA H200 0000:11:00.0 pci0000:0a 0% island 0 numa 0 0000:0b:00.0 pci0000:0a nic mlx5_1",
		"2 GPU-00000002 NVIDIA A10 0000:12:00.0 pci0000:8a 0% island - numa 1  pci0000:8a nic mlx5_10",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if g := h.Gpus[0]; g.GetMemoryUsedBytes() != 1024 || g.GetCorrectedErrors() != 2 || !h.Gpus[1].GetMig() || len(g.Links) != 2 || g.Links[1].Active {
		t.Errorf("found %v, %v", g, h.Gpus[1])
	}
	if got := faults(h); got != "" {
		t.Errorf("a link that never was up and GPUs at work are no fault; found %s", got)
	}
}

// Pairs of GPUs that are linked directly are islands of their own.
func TestIslands(t *testing.T) {
	gpu := func(pci string, to ...string) *agentpb.GPU {
		g := &agentpb.GPU{Pci: pci}
		for _, other := range to {
			g.Links = append(g.Links, &agentpb.NVLink{Active: other != "down", To: "gpu", Pci: other})
		}
		return g
	}
	gpus := []*agentpb.GPU{gpu("a", "down"), gpu("b", "d"), gpu("c", "e"), gpu("d", "b"), gpu("e", "c", "f"), gpu("f", "e")}
	islands(gpus)
	var got []string
	for _, g := range gpus {
		if g.Island == nil {
			got = append(got, "-")
		} else {
			got = append(got, fmt.Sprint(*g.Island))
		}
	}
	if want := "- 0 1 0 1 1"; strings.Join(got, " ") != want {
		t.Errorf("found islands %v, expected %s", got, want)
	}
}

// What becomes of two GPUs that were healthy, and how it ends.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"lost":             {[]string{"gpu links=ss", "gpu code=15"}, "GPU-00000001@1 GPULost"},
		"to be reset":      {[]string{"gpu links=ss code=16", "gpu"}, "GPU-00000000@0 ResetRequired"},
		"unknown error":    {[]string{"gpu links=ss code=999", "gpu"}, "GPU-00000000@0 DriverError"},
		"no permission":    {[]string{"gpu links=ss code=4", "gpu"}, ""},
		"both lost":        {[]string{"gpu code=15", "gpu code=15"}, "GPU-00000000@0 GPULost, GPU-00000001@1 GPULost"},
		"no spare row":     {[]string{"gpu links=ss failed=1", "gpu"}, "GPU-00000000@0 RowRemapFailed"},
		"rows pending":     {[]string{"gpu links=ss pending=1", "gpu"}, ""},
		"link down":        {[]string{"gpu links=sd", "gpu"}, "GPU-00000000@0 NVLinkDown"},
		"missing":          {[]string{"gpu uuid=GPU-00000001 pci=00000000:11:00.0"}, "GPU-00000000@-1 GPUMissing"},
		"another instead":  {[]string{"gpu links=ss", "gpu uuid=GPU-new"}, "GPU-00000001@-1 GPUMissing"},
		"numbers unknown":  {[]string{"gpu links=ss used=18446744073709551615 uncorrected=18446744073709551615 celsius=4294967295", "gpu failed=1"}, "GPU-00000001@1 RowRemapFailed"},
		"lost and missing": {[]string{"gpu code=15"}, "GPU-00000000@0 GPULost, GPU-00000001@-1 GPUMissing"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			healthy := []string{"gpu links=ss", "gpu"}
			m.library.Set(t, healthy...)
			w := m.open()
			if got := faults(w.Read(t.Context())); got != "" {
				t.Fatalf("healthy GPUs have faults: %s", got)
			}
			m.library.Set(t, c.lines...)
			first := w.Read(t.Context())
			if got := faults(first); got != c.want {
				t.Errorf("found %q, expected %q", got, c.want)
			}
			if again := m.open().Read(t.Context()); faults(again) != c.want {
				t.Errorf("another agent found %q, expected %q", faults(again), c.want)
			}
			if again := w.Read(t.Context()); c.want != "" && !slices.ContainsFunc(again.Gpus, func(g *agentpb.GPU) bool {
				return len(g.Faults) > 0 && slices.ContainsFunc(first.Gpus, func(f *agentpb.GPU) bool {
					return f.Uuid == g.Uuid && len(f.Faults) > 0 && f.Faults[0].Since.AsTime().Equal(g.Faults[0].Since.AsTime())
				})
			}) {
				t.Error("the same fault began again")
			}
			m.library.Set(t, healthy...)
			if got := faults(w.Read(t.Context())); got != "" && name != "another instead" {
				t.Errorf("GPUs that are back have faults: %s", got)
			}
		})
	}
}

// A driver that does not answer leaves the GPUs as they were, and is a fault when it has not answered three times.
func TestNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*machine)
		why  string
		want string // after three readings, where there were GPUs
		bare string // and where the driver never answered
	}{
		"no program":     {func(m *machine) { m.o.Program = "/none" }, "make gpu builds it", "", ""},
		"no library":     {func(m *machine) { m.o.Library = "/none.so" }, "no library: /none.so: cannot open shared object file", "", ""},
		"not loaded":     {func(m *machine) { m.library.Set(m, "init 9") }, "NVML: Driver Not Loaded (error 9)", "DriverError", ""},
		"hangs":          {func(m *machine) { m.library.Set(m, "hang"); m.o.Timeout = time.Millisecond }, "the driver does not answer", "DriverNotResponding", "DriverNotResponding"},
		"ends":           {func(m *machine) { m.o.Program = "/bin/false" }, "muster-gpu-nvml: exit status 1", "", ""},
		"says something": {func(m *machine) { m.o.Program, m.o.Library = "/bin/echo", "no JSON" }, "muster-gpu-nvml: invalid character", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.library.Set(t, "gpu", "gpu code=15")
			if bare := m.open(); c.bare == "" {
				bare.Read(t.Context())
			}
			c.fail(m)
			w := m.open()
			want := c.want
			if c.bare != "" {
				want = c.bare
			}
			for i := range 4 {
				h := w.Read(t.Context())
				if !strings.Contains(h.Unread, c.why) {
					t.Fatalf("found %q, expected %q", h.Unread, c.why)
				}
				if got := faults(h); i < 2 && got != "" || i >= 2 && got != want {
					t.Errorf("reading %d: found %q, expected %q from the third", i+1, got, want)
				}
			}
			if n := strings.Count(m.log.String(), "the driver says nothing"); n != 1 {
				t.Errorf("the log says so %d times:\n%s", n, &m.log)
			}
		})
	}
	t.Run("again", func(t *testing.T) {
		m := newMachine(t)
		m.library.Set(t, "gpu", "gpu code=15")
		w := m.open()
		before := faults(w.Read(t.Context()))
		m.library.Set(t, "init 9")
		if h := w.Read(t.Context()); faults(h) != before || len(h.Gpus) != 2 || h.Read == nil {
			t.Errorf("a driver that does not answer once: found %v, expected what was before", h)
		}
		m.library.Set(t, "gpu", "gpu")
		if h := w.Read(t.Context()); h.Unread != "" || faults(h) != "" {
			t.Errorf("found %v", h)
		}
	})
}

// A program that hangs is killed, so that the next one can ask; while one outlives that, there is no other.
func TestOneProgram(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "hang")
	w := m.open()
	w.program.timeout = 20 * time.Millisecond
	if h := w.Read(t.Context()); !strings.Contains(h.Unread, "NVML did not within 20ms") {
		t.Errorf("found %q", h.Unread)
	}
	m.library.Set(t, "gpu")
	w.program.timeout = m.o.Timeout
	if h := w.Read(t.Context()); h.Unread != "" {
		t.Errorf("found %q", h.Unread)
	}
	stuck := make(chan error)
	w.program.ended, w.program.since = stuck, time.Unix(0, 0)
	if h := w.Read(t.Context()); !strings.HasSuffix(h.Unread, "it has held the program that asks it since 1970-01-01T00:00:00Z") {
		t.Errorf("found %q", h.Unread)
	}
	close(stuck)
	if h := w.Read(t.Context()); h.Unread != "" {
		t.Errorf("found %q", h.Unread)
	}
}

// Errors in the kernel log close the GPU that they name, until it recovers; a restart of the agent repeats none.
func TestXids(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu", "gpu")
	m.says("Linux version 6", "NVRM: Xid (PCI:0000:10:00): 31, pid=7, name=python, MMU Fault", "NVRM: Xid (PCI:0000:11:00): 79, pid=7, GPU has fallen off the bus.", "NVRM: Xid (PCI:0000:11:00): 48, DBE")
	w := m.open()
	check := func(h *agentpb.Hardware, faultsWant string, xids int) {
		t.Helper()
		if got := faults(h); got != faultsWant || len(h.Xids) != xids {
			t.Errorf("found faults %q and %d errors, expected %q and %d\n%v", got, len(h.Xids), faultsWant, xids, h.Xids)
		}
	}
	h := w.Read(t.Context())
	check(h, "GPU-00000001@1 XidError", 3)
	if x := h.Xids[1]; x.Code != 79 || x.Pci != "0000:11:00.0" || x.Uuid != "GPU-00000001" || x.Action != "reboot_node" || !x.Fatal || h.Xids[0].Fatal {
		t.Errorf("found %v", h.Xids)
	}
	if f := h.Gpus[1].Faults[0]; f.Message != "Xid 79: the GPU fell off the PCIe bus" { // the first is the cause
		t.Errorf("found %v", f)
	}
	if d := time.Since(h.Xids[1].At.AsTime()) - 998*time.Second; d.Abs() > time.Minute {
		t.Errorf("the error was at %v, expected two seconds after the start of the machine", h.Xids[1].At.AsTime())
	}
	check(w.Read(t.Context()), "GPU-00000001@1 XidError", 3)
	w = m.open() // another agent, which reads the log from its beginning
	check(w.Read(t.Context()), "GPU-00000001@1 XidError", 3)

	m.says("NVRM: Xid (PCI:0000:10:00 GPU-I:05): 94, Contained", "NVRM: Xid (PCI:0000:10:00): 9999, something new", "NVRM: GPU 0000:10:00.0: RmInitAdapter failed! (0x24:0x65:1416)")
	check(w.Read(t.Context()), "GPU-00000000@0 XidError, GPU-00000001@1 XidError", 6)
	m.says("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 30 egress")
	h = w.Read(t.Context())
	check(h, "GPU-00000000@0 XidError, GPU-00000001@1 XidError, XidError", 8)
	if !strings.HasPrefix(h.Faults[0].Message, "0000:05:00.0: an NVSwitch reports a fatal error") {
		t.Errorf("found %v", h.Faults)
	}
	m.says("NVRM: Xid (PCI:0000:10:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
	check(w.Read(t.Context()), "GPU-00000001@1 XidError, XidError", 9)
	if _, err := w.Clear(t.Context(), "GPU-none"); err == nil {
		t.Error("a GPU that is not there was cleared")
	}
	h, err := w.Clear(t.Context(), "GPU-00000001")
	if err != nil {
		t.Fatal(err)
	}
	check(h, "XidError", 9)
	check(m.open().Read(t.Context()), "XidError", 9)
	m.says("NVRM: Xid (PCI:0000:10:00): 119, Timeout waiting for RPC from GSP0!", "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06")
	check(w.Read(t.Context()), "", 10)
	m.says("NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.")
	check(w.Read(t.Context()), "GPU-00000000@0 XidError", 11)

	// The machine starts again, with other GPUs, and its log begins again.
	m.starts("second")
	m.write("kmsg", "")
	m.next = 0
	m.library.Set(t, "gpu uuid=GPU-x", "gpu")
	m.says("NVRM: Xid (PCI:0000:11:00): 63, Row Remapper: New row marked for remapping")
	check(m.open().Read(t.Context()), "", 1)
}

// Clear forgets a GPU that was taken out.
func TestClearMissing(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu", "gpu")
	w := m.open()
	w.Read(t.Context())
	m.library.Set(t, "gpu")
	if got := faults(w.Read(t.Context())); got != "GPU-00000001@-1 GPUMissing" {
		t.Errorf("found %q", got)
	}
	h, err := w.Clear(t.Context(), "")
	if err != nil || faults(h) != "" || len(h.Gpus) != 1 {
		t.Errorf("found %v, %v", h, err)
	}
	if err := os.RemoveAll(m.o.StateDir); err != nil {
		t.Fatal(err)
	}
	m.write("state", "") // in place of the folder
	if _, err := w.Clear(t.Context(), ""); err == nil || errors.Is(err, ErrNoGPU) {
		t.Errorf("what cannot be written: found error %v", err)
	}
}

// What a program writes to the log is no fact, nor is what the kernel cites of one, nor what is damaged.
func TestForeignRecords(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu")
	xid := "NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus."
	m.write("kmsg", "12,1,5,-;"+xid+"\n4,x,5,-;"+xid+"\n4,2;"+xid+"\n"+xid+"\n4,3,5,-;Xid (PCI:0000:10:00): 79\n4,4,5,-;overlayfs: unrecognized mount option \""+xid+"\" or missing value\n4,5,5,-;"+xid)
	w := m.open()
	if h := w.Read(t.Context()); len(h.Xids) != 0 {
		t.Errorf("found %v", h.Xids)
	}
	f, err := os.OpenFile(m.o.KernelLog, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f) // the last line is whole now
	f.Close()
	if h := w.Read(t.Context()); len(h.Xids) != 1 {
		t.Errorf("found %v", h.Xids)
	}
}

// A log that cannot be read is said once, and read when it can be.
func TestNoKernelLog(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu")
	text := m.o.KernelLog
	os.Remove(text)
	w := m.open()
	for range 3 {
		if h := w.Read(t.Context()); !strings.Contains(h.LogUnread, "kmsg: no such file") || len(h.Gpus) != 1 {
			t.Fatalf("found %v", h)
		}
	}
	if n := strings.Count(m.log.String(), "\n"); n != 1 {
		t.Errorf("the log has %d lines, expected one:\n%s", n, &m.log)
	}
	m.o.KernelLog = "/dev/zero" // it has no end
	if h := m.open().Read(t.Context()); !strings.Contains(h.LogUnread, "/dev/zero: it is no kernel log") || len(h.Gpus) != 1 {
		t.Fatalf("found %v", h)
	}
	m.o.KernelLog = text
	m.write("kmsg", "")
	m.says("NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.")
	if h := w.Read(t.Context()); h.LogUnread != "" || len(h.Xids) != 1 {
		t.Errorf("found %v", h)
	}
}

// A record that is damaged is not used: what the log still has is read again.
func TestDamagedRecord(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu")
	m.says("NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.")
	m.open().Read(t.Context())
	m.write("state/"+recordFile, "{")
	if h := m.open().Read(t.Context()); faults(h) != "GPU-00000000@0 XidError" || !strings.Contains(m.log.String(), "cannot be read") {
		t.Errorf("found %v\n%s", h, &m.log)
	}
}

// A client that goes away while the driver is asked loses no error of the log.
func TestInterruptedReading(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu")
	w := m.open()
	w.Read(t.Context())
	m.says("NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.")
	gone, leave := context.WithCancel(t.Context())
	leave()
	w.Read(gone)
	if h := w.Read(t.Context()); faults(h) != "GPU-00000000@0 XidError" {
		t.Errorf("found %v", h)
	}
}

// Only the last errors are kept.
func TestManyXids(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu")
	for range 3 * maxXids {
		m.says("NVRM: Xid (PCI:0000:10:00): 31, MMU Fault")
	}
	if h := m.open().Read(t.Context()); len(h.Xids) != maxXids {
		t.Errorf("found %d errors, expected %d", len(h.Xids), maxXids)
	}
}

// The kernel's own log can be read, where this process may.
func TestKernelLog(t *testing.T) {
	k := kernelLog{path: "/dev/kmsg"}
	defer k.close()
	n, last := 0, int64(-1)
	err := k.read(func(r record) {
		if n++; r.sequence <= last {
			t.Errorf("record %d follows %d", r.sequence, last)
		}
		last = r.sequence
	})
	if err != nil {
		t.Skip(err)
	}
	if n == 0 {
		t.Skip("the kernel has no messages left")
	}
	if err := k.read(func(r record) {}); err != nil {
		t.Error(err)
	}
}

// A watch that runs reads until its context ends.
func TestRun(t *testing.T) {
	m := newMachine(t)
	m.library.Set(t, "gpu")
	w := m.open()
	ctx, stop := context.WithCancel(t.Context())
	n := 0
	w.Run(ctx, time.Millisecond, func(_ context.Context, h *agentpb.Hardware) {
		if n++; n == 3 {
			stop()
		}
	})
	if n != 3 || w.Last() == nil {
		t.Errorf("found %d readings", n)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("4,12,345,-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.")
	f.Add("6,1,0,c;nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal")
	f.Add("4,1,2,-;NVRM: GPU 0000:10:00.0: RmInitAdapter failed!")
	f.Fuzz(func(t *testing.T, line string) {
		r, ok := parseRecord(line)
		if !ok {
			return
		}
		to := &agentpb.HardwareRecord{Sequence: -1}
		if hear(r, nil, to) && to.Sequence != r.sequence {
			t.Errorf("record %d was heard as %d", r.sequence, to.Sequence)
		}
		if hear(r, nil, to) {
			t.Error("the same record was heard twice")
		}
	})
}
