package agent

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
)

// pod is one with a folder, or with processes in its cgroup. Its name is empty for no pod.
type pod struct {
	name string
	pids []int // with the backend driver: those of its processes that may use a GPU
}

// pods returns those of the node, in the order of their names. With the backend driver a process is of the pod in whose folder it has its control page, or
// else of that in whose cgroup it is: either is not for another pod to say.
func (a *Agent) pods() ([]pod, error) {
	found := map[string][]int{"": nil}
	entries, err := os.ReadDir(a.o.GPUDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && validPod.MatchString(e.Name()) {
			found[e.Name()] = nil
		}
	}
	if a.o.Backend == "driver" {
		if err := a.share(found); err != nil {
			return nil, err
		}
	}
	var pods []pod
	for _, name := range slices.Sorted(maps.Keys(found)) {
		pods = append(pods, pod{name, found[name]})
	}
	return pods, nil
}

// share says which processes each pod has.
func (a *Agent) share(found map[string][]int) error {
	taken := map[int]bool{}
	take := func(name string, pids []int) {
		for _, pid := range pids {
			if !taken[pid] {
				found[name], taken[pid] = append(found[name], pid), true
			}
		}
		slices.Sort(found[name])
	}
	list := func(dir string) ([]int, error) {
		b, done := a.look(dir)
		defer done()
		return b.List()
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if name == "" {
			continue
		}
		pids, err := list(filepath.Join(a.o.GPUDir, name))
		if err != nil { // which is the pod's doing
			a.o.Log.Error("a folder of control pages cannot be read", "pod", name, "error", err)
		}
		take(name, pids)
	}
	inGroups, err := gpu.PodProcesses()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(inGroups)) {
		take(name, inGroups[name])
	}
	rest, err := list(a.o.GPUDir)
	take("", rest)
	return err
}

// found gives the processes of a pod, some of which may have ended.
func (a *Agent) found(b checkpoint.Local, name string) ([]int, error) {
	if a.o.Backend != "driver" {
		return b.List()
	}
	pods, err := a.pods()
	for _, p := range pods {
		if p.name == name {
			return p.pids, err
		}
	}
	return nil, err
}

// dir is the folder of a pod; that of no pod, where the backend driver has a pod that has none.
func (a *Agent) dir(name string) string {
	dir := filepath.Join(a.o.GPUDir, name)
	if a.o.Backend == "driver" {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return a.o.GPUDir
		}
	}
	return dir
}

// of says which of the processes are not the pod's. With the backend driver any process of the node could be named; the other backends find a process by what
// it has in the pod's folder alone.
func (a *Agent) of(name string, pids []int32) error {
	if a.o.Backend != "driver" {
		return nil
	}
	pods, err := a.pods()
	if err != nil {
		return status.Errorf(codes.Internal, "%v", err)
	}
	for _, pid := range pids {
		whose := ""
		for _, p := range pods {
			if slices.Contains(p.pids, int(pid)) {
				whose = p.name
			}
		}
		if whose == "" && name != "" {
			return status.Errorf(codes.NotFound, "process %d is of no pod; the request is for pod %q", pid, name)
		}
		if whose != name {
			return status.Errorf(codes.NotFound, "process %d is of pod %q; the request is for pod %q", pid, whose, name)
		}
	}
	return nil
}
