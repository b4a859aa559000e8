package extract

import (
	"path"
	"strings"
)

// composition composes a configuration as Hydra does: a primary file, the files that its defaults lists name, and overrides.
type composition struct {
	x       *extraction
	dir     string            // of the configurations
	choices map[string]string // of groups, from the command and from "override" in defaults
	added   []choice          // from the command, with +group=name
	used    map[string]bool   // the groups that a defaults list names
	files   int               // that are merged
	looked  int               // files whose defaults lists were searched for choices
	groups  *node             // what was chosen for which group
}

type choice struct{ group, name string }

// compose composes the configuration, and notes it with the overrides of the command.
func (x *extraction) compose(h *hydraMain, args []argument) {
	c := composition{x: x, dir: h.dir, choices: map[string]string{}, used: map[string]bool{}, groups: newMap("")}
	all := newMap(where(h.dir, 1))
	var values []argument
	for _, a := range args {
		switch {
		case !a.override:
		case a.key == "config_name" || a.key == "config-name":
			h.name = a.value
		case c.group(a.key):
			if strings.HasPrefix(a.raw, "+") {
				c.added = append(c.added, choice{a.key, a.value})
			} else {
				c.choices[a.key] = a.value
			}
		default:
			values = append(values, a)
		}
	}
	for _, a := range args {
		if !a.override && (a.key == "config-name" || a.key == "config_name" || a.key == "cn") {
			h.name = a.value
		}
	}
	if h.name == "" {
		h.name = "config"
	}
	x.configs = append(x.configs, path.Join(c.dir, h.name+".yaml"))
	c.collect(path.Join(c.dir, h.name), 0)
	for _, a := range args { // a choice for a group that no defaults list names is added
		if name, ok := c.choices[a.key]; ok && a.override && !c.used[a.key] && name == a.value {
			c.added = append(c.added, choice{a.key, name})
		}
	}
	for _, a := range c.added {
		c.collect(path.Join(c.dir, a.group, a.name), 1)
	}
	c.file(all, h.name, "", 0)
	for _, e := range c.added {
		c.file(all, path.Join(e.group, e.name), packageOf(e.group), 0)
	}
	for _, a := range values {
		all.put(strings.TrimPrefix(a.key, "+"), &node{scalar: strings.Trim(a.value, `"'`), at: x.launch.at, rank: commanded})
	}
	interpolate(all)
	x.flatten(all, "", configured)
	x.flatten(c.groups, "", configured)
}

// group is whether a key is a folder of configurations, so that key=name chooses one.
func (c *composition) group(key string) bool { return c.x.tree.folders[path.Join(c.dir, key)] }

func packageOf(group string) string { return strings.ReplaceAll(strings.Trim(group, "/"), "/", ".") }

// open reads a configuration file by its name without or with an extension.
func (c *composition) open(name string) (string, *node) {
	for _, ext := range []string{"", ".yaml", ".yml"} {
		p := path.Clean(name + ext)
		if c.x.tree.has[p] && (ext != "" || path.Ext(p) == ".yaml" || path.Ext(p) == ".yml") {
			return p, c.x.config(p)
		}
	}
	return "", nil
}

// entry is an entry of a defaults list.
type entry struct {
	group, name, pkg         string
	override, self, absolute bool
}

func entries(n *node) []entry {
	var all []entry
	d := n.fields["defaults"]
	if d == nil {
		return nil
	}
	for _, item := range d.items {
		if item.fields == nil {
			all = append(all, entry{name: item.scalar, self: item.scalar == "_self_", absolute: strings.HasPrefix(item.scalar, "/")})
			continue
		}
		for _, k := range item.keys {
			e := entry{name: item.fields[k].scalar}
			key, o := strings.CutPrefix(k, "override ")
			key = strings.TrimPrefix(key, "optional ")
			e.override = o
			e.group, e.pkg, _ = strings.Cut(strings.TrimSpace(key), "@")
			e.absolute = strings.HasPrefix(e.group, "/")
			if l := item.fields[k]; l.list { // several of one group
				for _, i := range l.items {
					e.name = i.scalar
					all = append(all, e)
				}
				continue
			}
			all = append(all, e)
		}
	}
	return all
}

// collect notes what "override" entries choose, in the file and in those that it names. What the command chose stays.
func (c *composition) collect(name string, depth int) {
	if c.looked++; c.looked > 200 {
		return
	}
	file, n := c.open(name)
	if n == nil || depth > 8 {
		return
	}
	list := entries(n)
	for i := len(list) - 1; i >= 0; i-- {
		e := list[i]
		group := strings.TrimPrefix(e.group, "/")
		if e.override {
			if _, ok := c.choices[group]; !ok {
				c.choices[group] = e.name
			}
		}
	}
	for _, e := range list {
		if e.self || e.override {
			continue
		}
		c.collect(c.locate(file, e), depth+1)
	}
}

// chosen returns the name that an entry has: what was chosen for its group, or its own.
func (c *composition) chosen(e entry) string {
	group := strings.TrimPrefix(e.group, "/")
	if name, ok := c.choices[group]; ok && group != "" {
		c.used[group] = true
		return name
	}
	return e.name
}

// locate returns where an entry's file is, without its extension.
func (c *composition) locate(file string, e entry) string {
	group := strings.TrimPrefix(e.group, "/")
	name := c.chosen(e)
	if before, rest, ok := strings.Cut(name, "${"); ok { // train: ${task}PPO
		of, after, _ := strings.Cut(rest, "}")
		if choice := c.groups.fields["group."+of]; choice != nil {
			name = before + choice.scalar + after
		}
	}
	if e.absolute {
		return path.Join(c.dir, group, strings.TrimPrefix(name, "/"))
	}
	if group == "" && name != "" {
		return path.Join(path.Dir(file), name)
	}
	return path.Join(path.Dir(file), group, name)
}

// file merges a configuration file, and what its defaults list names, into all at a package.
func (c *composition) file(all *node, name, pkg string, depth int) {
	c.files++
	full := name
	if depth == 0 {
		full = path.Join(c.dir, name)
	}
	file, n := c.open(full)
	if n == nil || n.fields == nil || depth > 8 || c.files > 200 {
		return
	}
	if source, ok := c.x.tree.open(file); ok {
		pkg = packageDirective(source, pkg)
	}
	self := false
	own := func() {
		o := n.copy()
		if _, ok := o.fields["defaults"]; ok {
			delete(o.fields, "defaults")
			o.keys = remove(o.keys, "defaults")
		}
		if pkg == "" {
			all.merge(o)
			return
		}
		wrapped := newMap(n.at)
		wrapped.put(pkg, o)
		all.merge(wrapped)
	}
	for _, e := range entries(n) {
		switch {
		case e.self:
			self = true
			own()
		case e.override || c.chosen(e) == "" || c.chosen(e) == "null":
		default:
			c.entry(all, file, e, pkg, depth)
		}
	}
	if !self {
		own()
	}
}

// entry merges what an entry of a defaults list names.
func (c *composition) entry(all *node, file string, e entry, pkg string, depth int) {
	at := c.locate(file, e)
	group := strings.TrimPrefix(e.group, "/")
	sub := packageOf(group)
	if group == "" && e.absolute {
		sub = packageOf(path.Dir(e.name))
	}
	if pkg != "" && !e.absolute && sub != "" {
		sub = pkg + "." + sub
	} else if sub == "" {
		sub = pkg
	}
	if e.pkg != "" {
		sub = e.pkg
		if e.pkg == "_global_" || e.pkg == "_here_" {
			sub = ""
		}
	}
	if group != "" {
		key := group[strings.LastIndexByte(group, '/')+1:]
		c.groups.set("group."+key, &node{scalar: path.Base(at), at: where(file, 1)})
	}
	c.file(all, at, sub, depth+1)
}

func remove(keys []string, key string) []string {
	var rest []string
	for _, k := range keys {
		if k != key {
			rest = append(rest, k)
		}
	}
	return rest
}

// packageDirective returns the package of a file that begins with "# @package _global_".
func packageDirective(source []byte, pkg string) string {
	for _, line := range strings.SplitN(string(source), "\n", 5) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "# @package ")
		if !ok {
			continue
		}
		switch rest = strings.TrimSpace(rest); rest {
		case "_global_":
			return ""
		case "_group_":
			return pkg
		}
		return strings.ReplaceAll(rest, "_global_.", "")
	}
	return pkg
}

// interpolate fills in ${a.b} with what stands at a.b, and ${oc.env:X,default} with its default. What is not known stays.
func interpolate(n *node) { (&interpolation{root: n, left: maxNodes}).node(n, 0) }

type interpolation struct {
	root *node
	left int // how many more references are looked up
}

func (p *interpolation) node(n *node, depth int) {
	switch {
	case depth > maxNested:
	case n.fields != nil:
		for _, k := range n.keys {
			p.node(n.fields[k], depth+1)
		}
	case n.list:
		for _, i := range n.items {
			p.node(i, depth+1)
		}
	case strings.Contains(n.scalar, "${"):
		n.scalar = p.resolved(n.scalar, 0)
	}
}

func (p *interpolation) resolved(text string, depth int) string {
	for range 20 {
		i := strings.LastIndex(text, "${")
		if i < 0 || depth > 10 || len(text) > 1<<12 || p.left == 0 {
			return text
		}
		p.left--
		n := strings.IndexByte(text[i:], '}')
		if n < 0 {
			return text
		}
		name := text[i+2 : i+n]
		value := ""
		if env, rest, ok := strings.Cut(name, ":"); ok {
			first, def, has := strings.Cut(rest, ",")
			switch def = strings.TrimSpace(def); {
			case has && (env == "oc.env" || env == "env"):
				value = def
			case has && strings.Contains(env, "default") && def != "": // resolve_default:500,${max_iterations}
				value = def
			case has && strings.Contains(env, "default"):
				value = first
			default:
				return text
			}
		} else {
			target := p.root.get(strings.TrimLeft(name, "."))
			if target == nil || target.fields != nil || target.list {
				return text
			}
			value = p.resolved(target.scalar, depth+1)
			if strings.Contains(value, "${") {
				return text
			}
		}
		text = text[:i] + value + text[i+n+1:]
	}
	return text
}
