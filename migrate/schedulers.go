package migrate

import (
	"fmt"
	"maps"
	"slices"
)

// kai reads KAI's Queue (scheduling.run.ai/v2).
func (qs *Queues) kai(f *fields) map[string]any {
	spec := map[string]any{}
	f.take("displayName")
	if p := f.text("parentQueue"); p != "" {
		spec["parent"] = p
		qs.imply(p)
	}
	if p, ok := f.amount("priority"); ok {
		spec["priority"] = p / 1000
		qs.note(f.name("priority"), "counts under a policy with queueing.fairShare")
	}
	for _, key := range []string{"preemptMinRuntime", "reclaimMinRuntime"} {
		f.instead(key, "one minimum run time holds for all queues, preemption.minRuntime of the policy; a job sets its own with muster.sh/min-runtime")
	}
	r := f.in("resources")
	// GPUs are counted in GPUs, CPU in milli-cores, memory in MB: thousandths of each are wanted.
	for _, x := range []struct {
		key   string
		model string
		unit  int64
	}{{"gpu", "*", 1}, {"cpu", "", 0}, {"memory", "", 1_000_000}} {
		if r.m[x.key] == nil {
			continue
		}
		qs.kaiResource(r.in(x.key), x.key, x.model, x.unit, spec)
	}
	r.rest()
	return spec
}

// kaiResource reads what a queue has of one resource. -1 is no limit.
func (qs *Queues) kaiResource(f *fields, name, model string, unit int64, spec map[string]any) {
	const unlimited = -1000
	scale := func(milli int64) int64 {
		if unit == 0 { // milli-cores
			return milli / 1000
		}
		return milli * unit
	}
	quota, _ := f.amount("quota")
	limit, limited := f.amount("limit")
	limited = limited && limit != unlimited
	l := limits{nominal: scale(quota)}
	if limited {
		most := scale(limit)
		l.most = &most
	}
	if lends, ok := f.amount("lendingLimit"); ok {
		lends = scale(lends)
		l.lends = &lends
	}
	none := f.m["overQuotaWeight"] == 0.0
	switch {
	case none && quota != unlimited: // nothing above quota
		f.take("overQuotaWeight")
		l.most = &l.nominal
	case model != "":
		f.weight("overQuotaWeight", spec)
	default:
		f.take("overQuotaWeight") // a queue has one weight here, for all that is divided: that of GPUs
	}
	f.rest()
	switch {
	case quota == unlimited && !limited && model == "": // as all that a queue does not list
	case quota == unlimited:
		qs.refuse(f.name("quota"), "a queue cannot own without limit: say how much it owns")
	default:
		l.put(spec, name, model)
	}
}

// elsewhere says what becomes of Kueue's other objects.
var elsewhere = map[string]string{
	"LocalQueue":            "not needed: jobs name the ClusterQueue, or their namespace has the label muster.sh/queue",
	"ResourceFlavor":        "not needed: Muster reads GPU models from the nodes; the names of flavors must be those of models",
	"WorkloadPriorityClass": "create a PriorityClass of this name",
	"Topology":              "the same spec with apiVersion muster.sh/v1alpha1",
	"AdmissionCheck":        "there are no admission checks",
}

// kueue reads Kueue's ClusterQueue and Cohort (v1beta1 and v1beta2).
func (qs *Queues) kueue(f *fields) map[string]any {
	spec := map[string]any{}
	for _, key := range []string{"cohort", "cohortName", "parentName", "parent"} {
		if p := f.text(key); p != "" {
			spec["parent"] = p
			qs.imply(p)
		}
	}
	// What has no cohort above it neither borrows nor lends beyond itself.
	if top := textOf(spec["parent"]); top == "" {
		spec["mode"] = "Isolated"
	} else if q := &qs.all[qs.named[top]]; q.implied {
		q.spec["mode"] = "Isolated"
	}
	if s := f.take("namespaceSelector"); s != nil {
		spec["namespaceSelector"] = s
	}
	fair := f.in("fairSharing")
	fair.weight("weight", spec)
	fair.rest()
	if m := f.text("queueingStrategy"); m != "" {
		qs.note(f.name("queueingStrategy"), "queueing.mode: "+m+" of the policy, for all queues")
	}
	f.elsewhere("flavorFungibility", "not needed: a job takes any GPU model that it accepts and that has room")
	if p := f.text("stopPolicy"); p != "" && p != "None" {
		qs.refuse(f.name("stopPolicy"), "a queue cannot be stopped: suspend its jobs")
	}
	for _, key := range []string{"admissionChecks", "admissionChecksStrategy", "admissionScope", "concurrentAdmissionPolicy"} {
		f.instead(key, "has no counterpart")
	}
	qs.kueuePreemption(f.in("preemption"))

	// A flavor of GPUs is a GPU model; other resources have no flavors, and are added up.
	others := map[string]*limits{}
	for _, group := range f.list("resourceGroups") {
		group.take("coveredResources")
		for _, flavor := range group.list("flavors") {
			model := flavor.text("name")
			for _, r := range flavor.list("resources") {
				qs.kueueResource(r, model, spec, others)
			}
			flavor.rest()
		}
		group.rest()
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		others[name].put(spec, name, "")
	}
	return spec
}

// kueueResource reads what a queue has of one resource in one flavor.
func (qs *Queues) kueueResource(f *fields, flavor string, spec map[string]any, others map[string]*limits) {
	name := f.text("name")
	l := &limits{}
	l.nominal, _ = f.amount("nominalQuota")
	for key, to := range map[string]**int64{"borrowingLimit": &l.borrows, "lendingLimit": &l.lends} {
		if v, ok := f.amount(key); ok {
			*to = &v
		}
	}
	f.rest()
	if isGPU(name) {
		l.put(spec, "", flavor)
		return
	}
	sum, more := others[name]
	if !more {
		others[name] = l
		return
	}
	sum.nominal += l.nominal
	for _, x := range [][2]**int64{{&sum.borrows, &l.borrows}, {&sum.lends, &l.lends}} {
		if *x[0] == nil || *x[1] == nil {
			*x[0] = nil // one of the flavors has no limit
			continue
		}
		both := **x[0] + **x[1]
		*x[0] = &both
	}
}

// kueuePreemption says what of the policy stands for a queue's preemption.
func (qs *Queues) kueuePreemption(f *fields) {
	choose := func(key string, notes map[string]string, refused string) {
		switch v := f.text(key); {
		case v == "":
		case notes[v] != "":
			qs.note(f.name(key), notes[v]+" of the policy, for all queues")
		default:
			qs.refuse(f.name(key), fmt.Sprintf("%s: %s", v, refused))
		}
	}
	choose("reclaimWithinCohort", map[string]string{"Any": "preemption.reclaim: true", "Never": "preemption.reclaim: false"},
		"an owner takes back what it lent, whatever the priority of who borrowed it")
	choose("withinClusterQueue", map[string]string{"LowerPriority": "preemption.priority: Queue", "Never": "preemption.priority: Never"},
		"jobs do not evict others of their own priority")
	borrow := f.in("borrowWithinCohort")
	if p := borrow.text("policy"); p != "" && p != "Never" {
		qs.refuse(borrow.name("policy"), p+": a job that borrows evicts those of other queues only under preemption.priority: Cluster of the policy, and only what these borrowed")
	}
	borrow.instead("maxPriorityThreshold", "has no counterpart")
	borrow.rest()
	f.rest()
}

// volcano reads Volcano's Queue (scheduling.volcano.sh/v1beta1).
func (qs *Queues) volcano(f *fields) map[string]any {
	spec := map[string]any{}
	if p := f.text("parent"); p != "" && p != "root" {
		spec["parent"] = p
		qs.imply(p)
	}
	f.weight("weight", spec)
	if p, ok := f.amount("priority"); ok {
		spec["priority"] = p / 1000
		qs.note(f.name("priority"), "counts under a policy with queueing.fairShare")
	}
	keeps := f.m["reclaimable"] == false
	as[bool](f, "reclaimable", "true or false")
	if s := f.text("dequeueStrategy"); s != "" {
		mode := map[string]string{"fifo": "StrictFIFO", "traverse": "BestEffortFIFO or Backfill"}[s]
		qs.note(f.name("dequeueStrategy"), "queueing.mode: "+mode+" of the policy, for all queues")
	}
	f.instead("affinity", "a queue has no node groups: let its jobs select nodes, or use the models of quota")
	f.instead("extendClusters", "there is one cluster")
	f.instead("type", "has no counterpart")

	deserved, most, guarantee := f.in("deserved"), f.in("capability"), f.in("guarantee")
	reserved := guarantee.in("resource")
	guarantee.rest()
	names := map[string]bool{}
	for _, x := range []*fields{deserved, most, reserved} {
		for name := range x.m {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		l := limits{}
		l.nominal, _ = deserved.amount(name)
		// What is guaranteed is kept for the queue: it owns it, and lends the rest.
		if g, ok := reserved.amount(name); ok {
			l.nominal = max(l.nominal, g)
			lends := l.nominal - g
			l.lends = &lends
		}
		if keeps {
			l.lends = new(int64)
		}
		if v, ok := most.amount(name); ok {
			l.most = &v
		}
		l.put(spec, name, modelFor(name))
	}
	return spec
}

// yunikorn reads queues.yaml of YuniKorn.
func (qs *Queues) yunikorn(o map[string]any) error {
	f := &fields{qs: qs, of: "queues.yaml", m: o}
	for _, p := range f.list("partitions") {
		name := p.text("name")
		p.of = "partition " + name
		p.elsewhere("nodesortpolicy", "placement of the policy")
		p.elsewhere("preemption", "preemption of the policy")
		p.elsewhere("statedumpfilepath", "not needed")
		p.instead("placementrules", "jobs name their queue, or their namespace has the label muster.sh/queue")
		p.instead("limits", "set them on queues")
		for _, q := range p.list("queues") {
			if err := qs.yunikornQueue(q, ""); err != nil {
				return err
			}
		}
		p.rest()
	}
	f.rest()
	return nil
}

// yunikornQueue reads a queue, and those below it.
func (qs *Queues) yunikornQueue(f *fields, parent string) error {
	name, spec := f.text("name"), map[string]any{}
	if parent != "" {
		name, spec["parent"] = parent+"."+name, parent
	}
	f.of, f.path = "queue "+name, ""
	f.take("parent") // whether it has queues below it
	if n, ok := f.amount("maxapplications"); ok {
		spec["maxRunningJobs"] = n / 1000
	}
	for _, key := range []string{"submitacl", "adminacl"} {
		if acl := f.text(key); acl != "" && acl != "*" {
			qs.refuse(f.name(key), "namespaceSelector says who can use a queue, and RBAC who can change it")
		}
	}
	f.instead("childtemplate", "queues are not created by jobs")
	properties := f.in("properties")
	for _, key := range slices.Sorted(maps.Keys(properties.m)) {
		properties.instead(key, "has no counterpart for one queue: the policy has queueing and preemption for all")
	}
	qs.yunikornLimits(f, spec)

	r := f.in("resources")
	owns, most := r.in("guaranteed"), r.in("max")
	r.rest()
	names := map[string]bool{}
	for _, x := range []*fields{owns, most} {
		for resource := range x.m {
			names[resource] = true
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(names)) {
		l := limits{}
		l.nominal, _ = owns.amount(resource)
		if v, ok := most.amount(resource); ok {
			l.most = &v
		}
		as := resource
		if resource == "vcore" {
			as = "cpu"
		}
		l.put(spec, as, modelFor(resource))
	}
	below := f.list("queues")
	if err := qs.add(name, spec, f); err != nil {
		return err
	}
	for _, q := range below {
		if err := qs.yunikornQueue(q, name); err != nil {
			return err
		}
	}
	return nil
}

// yunikornLimits reads the limits of all users; those of some users have no counterpart.
func (qs *Queues) yunikornLimits(f *fields, spec map[string]any) {
	for _, l := range f.list("limits") {
		l.take("limit") // its description
		users, _ := l.take("users").([]any)
		if len(users) != 1 || users[0] != "*" || l.m["groups"] != nil {
			qs.refuse(l.name("users"), "bounds hold for each user of a queue, not for some: maxRunningJobsPerUser, maxRunningGPUsPerUser")
			continue
		}
		if n, ok := l.amount("maxapplications"); ok {
			spec["maxRunningJobsPerUser"] = n / 1000
		}
		r := l.in("maxresources")
		for _, name := range slices.Sorted(maps.Keys(r.m)) {
			if !isGPU(name) {
				r.instead(name, "users are bounded in jobs and GPUs only")
			} else if n, ok := r.amount(name); ok {
				spec["maxRunningGPUsPerUser"] = decimal(n)
			}
		}
		l.rest()
	}
}
