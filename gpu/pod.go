package gpu

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// podGroup is the part of a cgroup's path by which the kubelet says of which pod it is: podUID, or with systemd kubepods-burstable-podUID.slice, where _ is
// in place of -. The pod itself may make further cgroups below, so the first counts.
var podGroup = regexp.MustCompile(`/(?:[a-z]+-)*pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)`)

// podOf is the UID of the pod in whose cgroup a process is, by its /proc/PID/cgroup; empty for none. That is the kernel's word: no pod can say it of another
// one's process.
func podOf(text []byte) string {
	for line := range bytes.Lines(text) { // of each hierarchy of version 1 that the kubelet uses
		if m := podGroup.FindSubmatch(bytes.TrimSuffix(line, []byte("\n"))); m != nil {
			return strings.ReplaceAll(string(m[1]), "_", "-")
		}
	}
	return ""
}

// PodProcesses returns the processes that are in cgroups of pods and have a driver's library in their memory, by the pods' UIDs, in ascending order. Whether
// they use a GPU the driver knows.
func PodProcesses() (map[string][]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	found := map[string][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			continue // it ended
		}
		if pod := podOf(text); pod != "" && hasLibrary(pid) {
			found[pod] = append(found[pod], pid)
		}
	}
	for _, pids := range found {
		slices.Sort(pids)
	}
	return found, nil
}

// hasLibrary says whether a process has libcuda.so in its memory.
func hasLibrary(pid int) bool {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if bytes.Contains(lines.Bytes(), []byte("/libcuda.so")) {
			return true
		}
	}
	return false
}
