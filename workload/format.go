package workload

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// format is a file format, of a cluster, a workload or both.
type format struct {
	name    string
	cluster *clusterFormat
	jobs    *jobFormat
}

// formats lists every format. A header is of the first whose columns it has.
var formats = []format{
	{"muster", &musterCluster, &musterJobs},
	{"openb", &openbCluster, &openbJobs},
	{"philly", &phillyCluster, &phillyJobs},
	{"lingjun", &lingjunCluster, &lingjunJobs},
	{"chronus", nil, &chronusJobs},
	{"acme", nil, &acmeJobs},
	{"spot", &spotCluster, nil},
}

// columns are the columns of a format. Their order numbers them, required ones
// first. Exact formats have no others; other formats' further columns are
// ignored.
type columns struct {
	required, optional []string
	exact              bool
}

// clusterFormat reads clusters.
type clusterFormat struct {
	columns
	read func(t *table, opt *Options) (Cluster, error)
}

// jobFormat reads workloads.
type jobFormat struct {
	columns
	start func(t *table, opt *Options) nextJob
	// unsorted formats are loaded whole and sorted by submission; the others
	// stream.
	unsorted bool
	// misfits tells that the published trace has pods that no node of its own
	// cluster could hold: they are no error, as with Options.Misfits.
	misfits bool
	// wall tells that the start minds FromWall and ToWall.
	wall bool
}

// nextJob returns a job and the line it starts on (0 when made up), or io.EOF
// after the last one.
type nextJob func() (j Job, line int, err error)

// rows is the start of formats with a row a job.
func rows(read func(t *table, opt *Options) Job) func(*table, *Options) nextJob {
	return func(t *table, opt *Options) nextJob {
		return func() (Job, int, error) {
			if err := t.next(); err != nil {
				return Job{}, t.line, err
			}
			j := read(t, opt)
			if t.err != nil {
				return Job{}, t.line, t.err
			}
			return j, t.line, nil
		}
	}
}

// each calls read for every row until it, or a field it read, is wrong.
func (t *table) each(read func() error) error {
	for {
		err := t.next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = read()
		}
		if err == nil && t.err != nil {
			err = t.err
		}
		if err != nil {
			return err
		}
	}
}

// readNodes reads a node from every row and checks that their names differ.
func readNodes(t *table, read func() core.Node) ([]core.Node, error) {
	var nodes []core.Node
	seen := make(map[string]bool)
	err := t.each(func() error {
		n := read()
		if seen[n.Name] {
			return t.fault("node", fmt.Sprintf("a node named once, found %q again", n.Name))
		}
		seen[n.Name] = true
		nodes = append(nodes, n)
		return nil
	})
	if err == nil && len(nodes) == 0 {
		err = &Error{File: t.file, Want: "at least one node"}
	}
	return nodes, err
}

// Formats returns the names of the file formats, for help texts.
func Formats() []string {
	names := make([]string, len(formats))
	for i := range formats {
		names[i] = formats[i].name
	}
	return names
}

// jobFormatOf returns the format of the workload in t and prepares t for it.
func jobFormatOf(t *table, forced string) (string, *jobFormat, error) {
	i, err := detect(t, forced, "workload", func(f *format) *columns {
		if f.jobs == nil {
			return nil
		}
		return &f.jobs.columns
	})
	if err != nil {
		return "", nil, err
	}
	return formats[i].name, formats[i].jobs, nil
}

// clusterFormatOf returns the format of the cluster in t and prepares t for it.
func clusterFormatOf(t *table, forced string) (*clusterFormat, error) {
	i, err := detect(t, forced, "cluster", func(f *format) *columns {
		if f.cluster == nil {
			return nil
		}
		return &f.cluster.columns
	})
	if err != nil {
		return nil, err
	}
	return formats[i].cluster, nil
}

// detect returns the index of the format whose columns the header of t has.
// what is cluster or workload, columnsOf gives a format's columns of that, nil
// if it has none.
func detect(t *table, forced, what string, columnsOf func(*format) *columns) (int, error) {
	var names []string
	nearest, nearness := -1, 0
	for i := range formats {
		c := columnsOf(&formats[i])
		if c == nil {
			continue
		}
		names = append(names, formats[i].name)
		if forced != "" && forced != formats[i].name {
			continue
		}
		if c.mismatch(t.header) == "" {
			t.use(c.required, c.optional)
			return i, nil
		}
		if n := c.shared(t.header); forced != "" || n > nearness {
			nearest, nearness = i, n
		}
	}
	if forced != "" && nearest < 0 {
		return -1, &Error{File: t.file, Field: "format", Want: fmt.Sprintf("one of %s for a %s, found %q",
			strings.Join(names, ", "), what, forced)}
	}
	if nearest < 0 {
		return -1, t.fault("", fmt.Sprintf("the header of a %s (%s), found %s",
			what, strings.Join(names, ", "), quote([]byte(strings.Join(t.header, ",")))))
	}
	return -1, t.fault("", fmt.Sprintf("the header of a %s %s with %s",
		formats[nearest].name, what, columnsOf(&formats[nearest]).mismatch(t.header)))
}

// shared counts the required columns in the header.
func (c *columns) shared(header []string) int {
	n := 0
	for _, name := range c.required {
		if slices.Contains(header, name) {
			n++
		}
	}
	return n
}

// mismatch says what is wrong with a header, in words that follow "with"; empty
// when nothing is.
func (c *columns) mismatch(header []string) string {
	for _, name := range c.required {
		if !slices.Contains(header, name) {
			return fmt.Sprintf("a column %q", name)
		}
	}
	for i, name := range header {
		if c.exact && !slices.Contains(c.required, name) {
			return fmt.Sprintf("no column %s", quote([]byte(name)))
		}
		if slices.Contains(header[:i], name) && (slices.Contains(c.required, name) || slices.Contains(c.optional, name)) {
			return fmt.Sprintf("one column %q", name)
		}
	}
	return ""
}
