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

// formats lists every format. A header belongs to the first format whose columns it has.
var formats = []format{
	{"muster", &musterCluster, &musterJobs},
	{"openb", &openbCluster, &openbJobs},
	{"philly", &phillyCluster, &phillyJobs},
	{"lingjun", &lingjunCluster, &lingjunJobs},
	{"chronus", nil, &chronusJobs},
	{"acme", nil, &acmeJobs},
	{"spot", &spotCluster, nil},
	{"sia", nil, &siaJobs},
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
	// misfits is set if the published trace has pods that no node of its own cluster
	// could hold. They are not an error, as with Options.Misfits.
	misfits bool
	// wall is set if start applies FromWall and ToWall.
	wall bool
}

// nextJob returns a job and the line on which it starts (0 for generated jobs), or io.EOF
// after the last one.
type nextJob func() (j Job, line int, err error)

// rows is the start function of formats with one row per job.
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

// role is what a file describes.
type role struct {
	name string
	// columns returns the columns of a format in this role, nil if it has none.
	columns func(*format) *columns
}

var (
	asCluster = &role{"cluster", func(f *format) *columns {
		if f.cluster == nil {
			return nil
		}
		return &f.cluster.columns
	}}
	asWorkload = &role{"workload", func(f *format) *columns {
		if f.jobs == nil {
			return nil
		}
		return &f.jobs.columns
	}}
)

// formats returns the names of the formats in a role.
func (r *role) formats() string {
	var names []string
	for i := range formats {
		if r.columns(&formats[i]) != nil {
			names = append(names, formats[i].name)
		}
	}
	return strings.Join(names, ", ")
}

// match returns the format whose columns the header has, or nil.
func (r *role) match(header []string) *format {
	for i := range formats {
		if c := r.columns(&formats[i]); c != nil && c.mismatch(header) == "" {
			return &formats[i]
		}
	}
	return nil
}

// nearest returns the format with the most of its columns, at least half, in
// the header, or nil.
func (r *role) nearest(header []string) *format {
	var best *format
	most := 0.5
	for i := range formats {
		c := r.columns(&formats[i])
		if c == nil {
			continue
		}
		if share := float64(c.shared(header)) / float64(len(c.required)); share >= most && (best == nil || share > most) {
			best, most = &formats[i], share
		}
	}
	return best
}

// named returns the format of that name, or nil if it does not have this role.
func (r *role) named(name string) *format {
	for i := range formats {
		if formats[i].name == name && r.columns(&formats[i]) != nil {
			return &formats[i]
		}
	}
	return nil
}

// detect returns the format of t, in a role, and prepares t for it.
func detect(t *table, r *role, forced string) (*format, error) {
	f := r.match(t.header)
	if forced != "" {
		f = r.named(forced)
		if f == nil {
			return nil, &Error{File: t.file, Field: "format", Want: fmt.Sprintf("one of %s for a %s, found %q", r.formats(), r.name, forced)}
		}
	} else if f == nil {
		f = r.nearest(t.header)
	}
	if f == nil {
		return nil, unknownHeader(t, r)
	}
	c := r.columns(f)
	if wrong := c.mismatch(t.header); wrong != "" {
		return nil, t.fault("", fmt.Sprintf("the header of a %s %s with %s", f.name, r.name, wrong))
	}
	t.use(c.required, c.optional)
	return f, nil
}

// unknownHeader returns the error about a header that matches no format in a role.
func unknownHeader(t *table, r *role) error {
	found := quote([]byte(strings.Join(t.header, ",")))
	for _, other := range []*role{asCluster, asWorkload} {
		if f := other.match(t.header); f != nil {
			found = fmt.Sprintf("that of a %s %s", f.name, other.name)
		}
	}
	return t.fault("", fmt.Sprintf("the header of a %s (%s), found %s", r.name, r.formats(), found))
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

// mismatch describes the mistake in a header, in words that follow "with"; it is empty if
// there is none.
func (c *columns) mismatch(header []string) string {
	for _, name := range c.required {
		if !slices.Contains(header, name) {
			return fmt.Sprintf("a column %q", name)
		}
	}
	for i, name := range header {
		if c.exact && !slices.Contains(c.required, name) && !slices.Contains(c.optional, name) {
			return fmt.Sprintf("no column %s", quote([]byte(name)))
		}
		if slices.Contains(header[:i], name) && (slices.Contains(c.required, name) || slices.Contains(c.optional, name)) {
			return fmt.Sprintf("one column %q", name)
		}
	}
	return ""
}
