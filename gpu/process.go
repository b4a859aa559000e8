package gpu

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// initialNamespace is the inode of the machine's first PID namespace, from which all
// processes can be seen: PROC_PID_INIT_INO of Linux.
const initialNamespace = 0xEFFFFFFC

// findProcess gives the ID that a process has here. Its own namespace, by its inode,
// and its ID there name it, and its start time says that it still is the same; a
// namespace of 0 is not known.
func findProcess(pid int, started, namespace uint64) (int, error) {
	own := namespaceOf("self")
	if namespace == 0 || own == 0 || namespace == own {
		if t, err := StartTime(pid); err == nil && t == started {
			return pid, nil
		}
		return 0, ErrGone
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	hidden := own != initialNamespace
	for _, e := range entries {
		here, err := strconv.Atoi(e.Name())
		if err != nil || innermostID(here) != pid {
			continue
		}
		if t, err := StartTime(here); err != nil || t != started {
			continue
		}
		switch namespaceOf(e.Name()) {
		case namespace:
			return here, nil
		case 0:
			hidden = true // it may be the one, and may not be asked
		}
	}
	if hidden {
		return 0, ErrElsewhere
	}
	return 0, ErrGone
}

// namespaceOf is the inode of the PID namespace of a process; 0 if it may not be known.
func namespaceOf(pid string) uint64 {
	link, err := os.Readlink("/proc/" + pid + "/ns/pid") // pid:[4026531836]
	if err != nil {
		return 0
	}
	inode, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]"), 10, 64)
	return inode
}

// innermostID is the ID of a process in its own namespace; 0 if it has ended.
func innermostID(here int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", here))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	ids := strings.Fields(line) // from the outermost to its own
	if len(ids) == 0 {
		return 0
	}
	id, _ := strconv.Atoi(ids[len(ids)-1])
	return id
}

// StartTime is field 22 of /proc/PID/stat, in ticks since the machine's start:
// with its ID it names a process for good. A process that has ended and waits for its parent is gone.
func StartTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, ErrGone
	}
	after := string(text[strings.LastIndexByte(string(text), ')')+1:]) // the name may have spaces and brackets
	fields := strings.Fields(after)
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, ErrGone
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
