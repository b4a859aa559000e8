package extract

import (
	"path"
	"slices"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// node is a value of a configuration: a map, a list, or a scalar.
type node struct {
	keys   []string
	fields map[string]*node // of a map; nil otherwise
	items  []*node
	list   bool
	scalar string
	at     string // file:line
	rank   rank   // where it was set by something other than the file
}

func newMap(at string) *node { return &node{fields: map[string]*node{}, at: at} }

func (n *node) set(key string, v *node) {
	if n.fields[key] == nil {
		n.keys = append(n.keys, key)
	}
	n.fields[key] = v
}

// get returns what stands at a path of keys with dots, or nil.
func (n *node) get(key string) *node {
	for n != nil && key != "" {
		first, rest, _ := strings.Cut(key, ".")
		n, key = n.fields[first], rest
	}
	return n
}

// text returns the scalar at a path of keys, or nothing.
func (n *node) text(key string) string {
	if v := n.get(key); v != nil {
		return v.scalar
	}
	return ""
}

// put sets what stands at a path of keys, and makes the maps on the way.
func (n *node) put(key string, v *node) {
	for {
		first, rest, more := strings.Cut(key, ".")
		if !more {
			n.set(first, v)
			return
		}
		if next := n.fields[first]; next == nil || next.fields == nil {
			n.set(first, newMap(v.at))
		}
		n, key = n.fields[first], rest
	}
}

// merge adds what o has to n; what both have becomes o's.
func (n *node) merge(o *node) {
	for _, k := range o.keys {
		mine, theirs := n.fields[k], o.fields[k]
		if mine != nil && mine.fields != nil && theirs.fields != nil {
			mine.merge(theirs)
		} else {
			n.set(k, theirs.copy())
		}
	}
}

func (n *node) copy() *node {
	if n.fields == nil {
		return n
	}
	c := newMap(n.at)
	c.merge(n)
	return c
}

// maxNodes bounds the values of one configuration, with those that aliases repeat, and maxNested their depth.
const (
	maxNodes  = 20_000
	maxNested = 40
)

// config reads a configuration of the folder, or returns nil.
func (x *extraction) config(file string) *node {
	data, ok := x.tree.open(file)
	if !ok || len(data) > 1<<18 {
		return nil
	}
	switch strings.ToLower(path.Ext(file)) {
	case ".yaml", ".yml":
		return readYAML(file, data)
	case ".json":
		return readJSON(file, data)
	case ".toml":
		return readTOML(file, data)
	case ".ini", ".cfg", ".conf", ".txt":
		return readINI(file, data)
	case ".gin":
		return readGin(file, data)
	case ".config", ".pbtxt", ".prototxt":
		return readPrototext(file, data)
	}
	return nil
}

// flatten notes the scalars of a configuration, and its lists of scalars, as settings.
func (x *extraction) flatten(n *node, prefix string, r rank) {
	if n == nil {
		return
	}
	r = max(r, n.rank)
	switch {
	case n.fields != nil:
		if mixes(n, prefix) { // datasets with their parts of a mixture
			x.add(setting{key: prefix, value: value{n.keys[0], word}, rank: r, at: n.fields[n.keys[0]].at})
			return
		}
		if named(n, prefix) { // datasets by their names, each with a section
			x.add(setting{key: prefix, value: value{n.keys[0], word}, rank: r, at: n.fields[n.keys[0]].at})
		}
		for _, k := range n.keys {
			key := k
			if prefix != "" {
				key = prefix + "." + k
			}
			x.flatten(n.fields[k], key, r)
		}
	case n.list:
		var all []string
		for i, item := range n.items {
			switch {
			case item.fields != nil:
				if i == 0 {
					x.flatten(item, prefix, r)
				}
			case !item.list && len(all) < 8:
				all = append(all, item.scalar)
			}
		}
		if len(all) > 0 {
			x.add(setting{key: prefix, value: value{strings.Join(all, ", "), word}, rank: r, at: n.at})
		}
	default:
		x.add(setting{key: prefix, value: parse(n.scalar), rank: r, at: n.at})
	}
}

// mixes is whether the keys of a section are names of datasets, and its values their parts of a mixture.
func mixes(n *node, key string) bool {
	last := normal(key[strings.LastIndexByte(key, '.')+1:])
	if len(n.keys) == 0 || !strings.Contains(last, "dataset") && !strings.Contains(last, "mix") {
		return false
	}
	for _, k := range n.keys {
		if _, ok := numeric(n.fields[k].scalar); !ok || !strings.Contains(k, "/") {
			return false
		}
	}
	return true
}

// named is whether the keys of a section datasets are the names of datasets, with what is to be done with each.
func named(n *node, key string) bool {
	if normal(key[strings.LastIndexByte(key, '.')+1:]) != "datasets" || len(n.keys) == 0 {
		return false
	}
	for _, k := range n.keys {
		if n.fields[k].fields == nil || isGeneric(k) || excluded(normal(k)) {
			return false
		}
	}
	return true
}

// chosen returns the defaults of a configuration with named sets of settings, and over them those sets that the command names: defaults, small, atari.
func (x *extraction) chosen(n *node) *node {
	base := n.fields["defaults"]
	if base == nil || base.fields == nil {
		return x.section(n)
	}
	all := base.copy()
	for _, w := range x.launch.args {
		if set := n.fields[w]; set != nil && set.fields != nil && w != "defaults" {
			for _, k := range set.keys { // env.size: 64
				over := newMap(set.at)
				over.put(k, set.fields[k])
				all.merge(over)
			}
		}
	}
	return all
}

// section returns of a configuration that has a section for each of several things alike, such as environments, the one for what the command names.
func (x *extraction) section(n *node) *node {
	for _, w := range x.said() {
		mine := n.fields[w]
		if mine == nil || mine.fields == nil {
			continue
		}
		for _, k := range n.keys {
			other := n.fields[k]
			if k == w || other.fields == nil {
				continue
			}
			shared := 0
			for _, key := range other.keys {
				if mine.fields[key] != nil {
					shared++
				}
			}
			if shared > 1 && 2*shared >= min(len(mine.keys), len(other.keys)) {
				return mine
			}
		}
	}
	return n
}

// said returns the words of the command, with the values of its options, and then what configurations that are read already call by an identifier.
func (x *extraction) said() []string {
	var all []string
	for _, w := range x.launch.args {
		_, v, _ := strings.Cut(w, "=")
		all = append(all, w, v)
	}
	for _, id := range []string{"dataset_id", "model_id", "exp_id", "experiment_id"} {
		for _, s := range x.byName[id] {
			if s.rank >= configured {
				all = append(all, s.value.text)
			}
		}
	}
	return all
}

// folder reads the configurations of a folder that the command names, first those that have a section for what it says, and returns whether there are any. It
// reads a folder once.
func (x *extraction) folder(dir string, r rank) bool {
	if some, known := x.folders[dir]; known {
		return some
	}
	var first, rest []string
	said := x.said()
	for _, f := range x.tree.files {
		if path.Dir(f) != dir || !slices.Contains(stems[:4], path.Ext(f)) || noConfig.MatchString(path.Base(f)) {
			continue
		}
		n := x.config(f)
		if n == nil || n.fields == nil {
			continue
		}
		if slices.ContainsFunc(said, func(w string) bool { return n.fields[w] != nil && n.fields[w].fields != nil }) {
			first = append(first, f)
		} else {
			rest = append(rest, f)
		}
	}
	x.folders[dir] = len(first)+len(rest) > 0
	for _, f := range append(first, rest...)[:min(len(first)+len(rest), 10)] {
		x.load(f, r)
	}
	return x.folders[dir]
}

// load reads a configuration, with the configurations on which it is based, and notes its settings.
func (x *extraction) load(file string, r rank) {
	if x.parsed[file] {
		return
	}
	x.parsed[file] = true
	switch path.Ext(file) {
	case ".py":
		x.loadPython(file, r, 0)
		return
	case ".jsonnet", ".libsonnet":
		x.loadJsonnet(file, r)
		return
	}
	if n := x.based(file, 0); n != nil {
		n = x.chosen(n)
		x.override(n)
		interpolate(n)
		x.flatten(n, "", r)
		x.further(n, path.Dir(file), r, 0)
	}
}

// override sets what the command sets of a configuration, so that what refers to it has that, too.
func (x *extraction) override(n *node) {
	if n.fields == nil || len(x.launch.args) > mostSpoken {
		return
	}
	for _, a := range split(x.launch.args, nil) {
		key := strings.TrimLeft(a.key, "+~")
		if (a.override || strings.Contains(key, ".")) && n.get(key) != nil && n.get(key).fields == nil {
			n.put(key, &node{scalar: strings.Trim(a.value, `"'`), at: x.launch.at, rank: x.launch.rank})
		}
	}
}

// further loads the configurations of datasets that a configuration names: dataset_config: dataset.toml.
func (x *extraction) further(n *node, dir string, r rank, depth int) {
	for _, k := range n.keys {
		v := n.fields[k]
		if v.fields != nil && depth < 4 {
			x.further(v, dir, r, depth+1)
		}
		if isConfig(v.scalar) && strings.Contains(normal(k), "data") {
			if f, ok := x.tree.find(dir, v.scalar); ok && len(x.parsed) <= maxImports {
				x.load(f, r)
			}
		}
	}
}

// based reads a configuration merged with its bases.
func (x *extraction) based(file string, depth int) *node {
	n := x.config(file)
	if n == nil || n.fields == nil || depth > 6 {
		return n
	}
	all := x.over(n, path.Dir(file), file, depth)
	for _, k := range n.keys {
		if part := n.fields[k]; part.fields != nil && depth < 3 { // a section may be based on a file of its own
			section := x.over(part, path.Dir(file), file, depth+1)
			section.merge(part)
			n.fields[k] = section
		}
	}
	all.merge(n)
	return all
}

// over returns what the configurations have on which a section of a file is based.
func (x *extraction) over(n *node, dir, file string, depth int) *node {
	all := newMap(n.at)
	for _, k := range n.keys {
		switch strings.Trim(strings.ToLower(k), "_") {
		case "base", "base_config", "parent_config", "include", "includes", "inherit", "defaults":
			v := n.fields[k]
			if k == "defaults" && !isConfig(v.scalar) { // else of Hydra
				continue
			}
			bases := v.items
			if !v.list {
				bases = []*node{v}
			}
			for _, b := range bases {
				f, ok := x.tree.find(dir, b.scalar)
				if !ok {
					f, ok = x.tree.find(x.launch.dir, b.scalar)
				}
				if ok && f != file && b.scalar != "" && x.bases < maxBases {
					x.bases++
					if base := x.based(f, depth+1); base != nil && base.fields != nil {
						all.merge(base)
					}
				}
			}
		}
	}
	return all
}

// loadPython reads a configuration in Python, after those in its _base_.
func (x *extraction) loadPython(file string, r rank, depth int) {
	if f, ok := x.pythonBase(file); ok && depth < 6 {
		for _, b := range f {
			if x.bases++; x.bases > maxBases {
				break
			}
			x.loadPython(b, r, depth+1)
		}
	}
	delete(x.parsed, file)
	x.inBase = depth > 0
	x.python(file, r)
	x.inBase = false
}

// pythonBase returns the configurations that _base_ of a configuration in Python names.
func (x *extraction) pythonBase(file string) ([]string, bool) {
	source, ok := x.tree.open(file)
	if !ok || !strings.Contains(string(source), "_base_") {
		return nil, false
	}
	for _, s := range python.Parse(source) {
		if s.Kind != python.Assign || s.Target != "_base_" {
			continue
		}
		list := s.Value.Args
		if s.Value.Kind == python.String {
			list = []python.Expr{s.Value}
		}
		var all []string
		for _, e := range list {
			if f, ok := x.tree.find(path.Dir(file), e.Text); ok && f != file {
				all = append(all, f)
			}
		}
		return all, true
	}
	return nil, false
}
