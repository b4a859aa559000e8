package core

import "slices"

// This file finds the first ones of the classes that wait, in the order of jobs: most passes ask for no others. No order of all is kept, as in a pass that
// gives back quota thousands of classes that had none are stuck from then on.

// firsts are the first classes of those that are idle: of those that are stuck, by the number of each GPU model that they may use, and of those that lack
// quota. One look at all idle classes finds them, when they are asked for; that holds until one of them leaves.
type firsts struct {
	known   bool
	stuck   []firstClass
	overrun firstClass
}

// firstClass is a class and its first job; without a class, there is none.
type firstClass struct {
	first key
	class *class
}

// take takes a class if it comes before the one that there is.
func (f *firstClass) take(first *key, c *class) {
	if f.class == nil || first.before(&f.first) {
		f.first, f.class = *first, c
	}
}

// idle notes a class that is idle from now on, or that has another state.
func (f *firsts) idle(c *idleClass) {
	if !f.known {
		return
	}
	switch {
	case c.state == classOverrun:
		f.overrun.take(&c.first, c.class)
	case c.state == classStuck && c.model >= 0:
		f.on(int(c.model)).take(&c.first, c.class)
	case c.state == classStuck:
		for _, m := range c.class.models {
			f.on(m).take(&c.first, c.class)
		}
	}
}

// leaves notes that a class is idle no longer, or will have another state or other models.
func (f *firsts) leaves(c *class) {
	if f.known && (f.overrun.class == c || slices.ContainsFunc(f.stuck, func(s firstClass) bool { return s.class == c })) {
		f.known = false
	}
}

func (f *firsts) on(model int) *firstClass {
	for len(f.stuck) <= model {
		f.stuck = append(f.stuck, firstClass{})
	}
	return &f.stuck[model]
}

// onModels notes that a class may use other models than before.
func (w *waiting) onModels(c *class) {
	if ic := c.idleAs(); ic != nil {
		w.firsts.known = false
		ic.model = newIdle(c).model
	}
}

// findFirsts finds the first classes if they are not known.
func (w *waiting) findFirsts() *firsts {
	f := &w.firsts
	if f.known {
		return f
	}
	clear(f.stuck)
	f.known, f.overrun = true, firstClass{}
	for c := range w.idle.all() {
		f.idle(c)
	}
	return f
}

// firstStuck returns the first class that found no room and may use a model, nil without any.
func (w *waiting) firstStuck(model int) *class { return w.findFirsts().on(model).class }

// firstOverrun returns the first job that waits for quota, nil without any.
func (w *waiting) firstOverrun() *job {
	c := w.findFirsts().overrun.class
	if c == nil {
		return nil
	}
	return c.head()
}

// stuckOn reports whether an idle class found no room and may use a model.
func (c *idleClass) stuckOn(model int) bool {
	return c.state == classStuck && (int(c.model) == model || c.model < 0 && slices.Contains(c.class.models, model))
}

// overtakes reports whether a job that starts now overtakes an earlier one that waits
// for a GPU model of its own, and that is not still to be tried.
func (w *waiting) overtakes(j *job) bool {
	f := w.findFirsts()
	for _, m := range j.class.models {
		switch first := f.on(m); {
		case first.class == nil || !first.first.before(&j.key):
			continue
		case first.class != j.class && !w.untried(first.class.idleAs()):
			return true
		}
		if w.idle.any(func(c *idleClass) bool {
			return c.stuckOn(m) && c.first.before(&j.key) && c.class != j.class && !w.untried(c)
		}) {
			return true
		}
	}
	return false
}
