package runlog

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/workload"
)

// ReadIdle returns the nodes of a run that were there after all events up to t, with what was
// idle of them; and the levels of the topology. Errors are bad input.
func ReadIdle(dir string, t core.Time) ([]frag.Node, []string, error) {
	r, err := openIdle(dir, t)
	if err == nil {
		err = r.read(filepath.Join(dir, Log), t)
	}
	if err != nil {
		return nil, nil, err
	}
	var there []frag.Node
	for i := range r.nodes {
		if r.up[i] {
			there = append(there, r.nodes[i])
		}
	}
	return there, r.levels, nil
}

// openIdle reads the nodes of a run, and their changes up to t.
func openIdle(dir string, t core.Time) (*idleReader, error) {
	var whole json.RawMessage // a folder without a summary does not contain a whole run
	if text, err := os.ReadFile(filepath.Join(dir, Summary)); err != nil || json.Unmarshal(text, &whole) != nil {
		return nil, unreadable(filepath.Join(dir, Summary), cmpError(err))
	}
	c, err := workload.OpenCluster(filepath.Join(dir, Cluster), workload.Options{})
	if err != nil {
		return nil, err
	}
	r := &idleReader{levels: c.Levels, byName: map[string]int{}, up: make([]bool, len(c.Nodes)), held: map[string]*holding{}}
	for i := range c.Nodes {
		r.byName[c.Nodes[i].Name] = i
		r.up[i] = true
		r.nodes = append(r.nodes, frag.Empty(&c.Nodes[i]))
	}
	r.changes, err = readChanges(filepath.Join(dir, Nodes), t)
	return r, err
}

// cmpError returns the error, or one that says that a text is not JSON.
func cmpError(err error) error {
	if err == nil {
		return errors.New("no JSON")
	}
	return err
}

// idleReader replays decisions.jsonl.gz on nodes.
type idleReader struct {
	levels  []string
	nodes   []frag.Node
	byName  map[string]int
	up      []bool
	changes []change
	held    map[string]*holding // by pod
	// watch, if it is not nil, is told before time goes on and before and after a node changes.
	watch interface {
		until(t core.Time)
		before(i int)
		after(i int)
	}
}

// holding is what a pod has of CPU and memory, and, on standby, what it keeps of it.
type holding struct {
	cpu, mem         int64
	lends            bool
	keptCPU, keptMem int64
}

// idleLine is a line of decisions.jsonl.gz.
type idleLine struct {
	T             float64
	Op, Pod, Node string
	GPUs          []int
	Milli         core.Milli
	CPUMilli      int64 `json:"cpu_milli"`
	MemMiB        int64 `json:"mem_mib"`
}

// take changes what a node has by a line. A pod on standby lends its GPUs, and keeps what the line
// says of CPU and memory.
func (r *idleReader) take(n *frag.Node, d *idleLine, gpus uint64) {
	h := r.held[d.Pod]
	switch {
	case d.Op == opBind:
		r.held[d.Pod] = &holding{cpu: d.CPUMilli, mem: d.MemMiB}
		n.Take(gpus, d.Milli, d.CPUMilli, d.MemMiB, 1)
	case d.Op == opMigrate:
		n.Take(gpus, d.Milli, d.CPUMilli, d.MemMiB, 1)
	case h == nil: // a pod that was not bound
	case d.Op == opStandby:
		n.Take(gpus, d.Milli, h.cpu, h.mem, -1)
		n.Take(0, 0, d.CPUMilli, d.MemMiB, 1)
		h.lends, h.keptCPU, h.keptMem = true, d.CPUMilli, d.MemMiB
	case d.Op == opResume && h.lends:
		n.Take(0, 0, h.keptCPU, h.keptMem, -1)
		n.Take(gpus, d.Milli, h.cpu, h.mem, 1)
		h.lends = false
	case d.Op == opRelease && h.lends:
		n.Take(0, 0, h.keptCPU, h.keptMem, -1)
		h.lends = false
	case d.Op == opRelease:
		n.Take(gpus, d.Milli, d.CPUMilli, d.MemMiB, -1)
	}
}

// change is a row of nodes.csv.
type change struct {
	t            core.Time
	node         string
	up, cordoned bool
	unhealthy    []int
	after        int64
}

// readChanges reads the rows up to t; a run in which no node changed has no such file.
func readChanges(path string, t core.Time) ([]change, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []change
	err := eachRow(path, nodesHeader, func(f *fields) {
		at := f.time()
		c := change{t: at, node: f.text(), up: f.text() == "true", cordoned: f.text() == "true"}
		for _, d := range strings.Split(f.text(), "|") {
			if n, err := strconv.Atoi(d); err == nil {
				c.unhealthy = append(c.unhealthy, n)
			}
		}
		if c.after = f.int(); at <= t {
			all = append(all, c)
		}
	})
	return all, err
}

// change processes the changes that came after this many decisions.
func (r *idleReader) change(path string, lines int64) error {
	for len(r.changes) > 0 && r.changes[0].after <= lines {
		c := r.changes[0]
		i, ok := r.byName[c.node]
		if !ok {
			return &workload.Error{File: path, Want: "decisions about the nodes of cluster.csv; nodes.csv has " + strconv.Quote(c.node)}
		}
		spec := *r.nodes[i].Spec
		spec.Cordoned, spec.Unhealthy = c.cordoned, c.unhealthy
		if r.watch != nil {
			r.watch.until(c.t)
			r.watch.before(i)
		}
		r.nodes[i].Describe(&spec)
		r.up[i] = c.up
		if r.watch != nil {
			r.watch.after(i)
		}
		r.changes = r.changes[1:]
	}
	return nil
}

func (r *idleReader) read(path string, t core.Time) error {
	file, err := os.Open(path)
	if err != nil {
		return unreadable(path, err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return unreadable(path, err)
	}
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<20)
	for n := int64(0); lines.Scan(); n++ {
		var d idleLine
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return &workload.Error{File: path, Line: int(n + 1), Want: "a decision; found: " + err.Error()}
		}
		if d.T > t.Seconds() {
			break
		}
		if err := r.change(path, n); err != nil {
			return err
		}
		i, ok := r.byName[d.Node]
		gpus := uint64(0)
		for _, g := range d.GPUs {
			if ok = ok && g >= 0 && g < len(r.nodes[i].Free); ok {
				gpus |= 1 << g
			}
		}
		if !ok {
			return &workload.Error{File: path, Line: int(n + 1), Want: "a node of cluster.csv and its GPUs; found " + strconv.Quote(d.Node)}
		}
		if r.watch != nil {
			r.watch.until(inTime(d.T))
			r.watch.before(i)
		}
		r.take(&r.nodes[i], &d, gpus)
		if r.watch != nil {
			r.watch.after(i)
		}
	}
	if err := lines.Err(); err != nil {
		return unreadable(path, err)
	}
	return r.change(path, 1<<62)
}
