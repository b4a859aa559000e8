package hardware

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/semantic/diagnose"
)

// What the driver writes to the kernel log: "NVRM: Xid (PCI:0000:5e:00): 79, pid=…", with the name of a MIG instance behind the
// address perhaps; "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, …"; "NVRM: GPU 0000:5e:00.0: RmInitAdapter failed!".
var (
	numbered   = regexp.MustCompile(`\bS?Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)]*\): (\d{1,6})\b`)
	addressed  = regexp.MustCompile(`\b((?:[0-9A-Fa-f]{4}|[0-9A-Fa-f]{8}):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)\b`)
	recovered  = regexp.MustCompile(`\bXid \(.*\): 154, .*changed from .* to \S+ \(None\)`)
	driverLoad = regexp.MustCompile(`^NVRM: loading NVIDIA UNIX`)
)

// certain is how sure of a fault a diagnosis must be that is to be confirmed by a test.
const certain = 0.9

// xidOf reads a line of the kernel log, nil if it is no error of a GPU or an NVSwitch. The driver's name begins it: elsewhere in a line may be what
// a user wrote, such as the options of a mount.
func xidOf(text string) *agentpb.Xid {
	if !strings.HasPrefix(text, "NVRM:") && !strings.HasPrefix(text, "nvidia-nvswitch") {
		return nil
	}
	v, err := diagnose.Log(strings.NewReader(text))
	if err != nil {
		return nil
	}
	x := &agentpb.Xid{Text: text, Reason: v.Reason, Action: v.Action, Component: v.Component}
	infrastructure := v.Category == diagnose.Infrastructure
	if m := numbered.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[2])
		x.Pci, x.Code = address(m[1]), int32(n)
	} else if m := addressed.FindStringSubmatch(text); m != nil && infrastructure {
		x.Pci = address(m[1])
	} else {
		return nil
	}
	if v.Category == diagnose.None {
		x.Reason, x.Action, x.Component = "no failure", "none", "gpu"
	}
	suspects := v.Recovery().Suspects
	x.Fatal = infrastructure && (suspects == "cordon" || suspects == "test" && v.Confidence >= certain)
	return x
}

// maxXids is how many errors are kept.
const maxXids = 100

// hear takes a message of the kernel log into the record, and says whether that changed it.
func hear(m record, at *timestamppb.Timestamp, to *agentpb.HardwareRecord) bool {
	if m.sequence <= to.Sequence {
		return false // it was heard before the agent started again
	}
	if driverLoad.MatchString(m.text) { // GPUs are initialised then: what is still wrong is said again
		to.Sequence = m.sequence
		clear(to.Errors)
		return true
	}
	x := xidOf(m.text)
	if x == nil {
		return false
	}
	to.Sequence, x.At = m.sequence, at
	if to.Xids = append(to.Xids, x); len(to.Xids) > maxXids {
		to.Xids = to.Xids[len(to.Xids)-maxXids:]
	}
	if recovered.MatchString(m.text) {
		delete(to.Errors, x.Pci)
	}
	if to.Errors[x.Pci] == nil && x.Fatal { // the first one is the cause
		if to.Errors == nil {
			to.Errors = map[string]*agentpb.Fault{}
		}
		to.Errors[x.Pci] = &agentpb.Fault{Reason: "XidError", Message: x.Reason, Since: at}
	}
	return true
}
