package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// kai reads KAI's Queue (scheduling.run.ai/v2).
func (qs *Queues) kai(f *fields) queue {
	spec := map[string]any{}
	q := queue{spec: spec, inclusive: true}
	f.take("displayName")
	if p := f.text("parentQueue"); p != "" {
		spec["parent"] = p
		qs.imply(p)
	}
	if p, ok := f.amount("priority"); ok {
		spec["priority"] = p / 1000
		qs.note(f.name("priority"), "counts under a policy with queueing.fairShare, such as default")
	}
	for _, key := range []string{"preemptMinRuntime", "reclaimMinRuntime"} {
		f.instead(key, "one minimum run time holds for all queues, preemption.minRuntime of the policy; a job sets its own with muster.sh/min-runtime")
	}
	r := f.in("resources")
	// GPUs are counted in GPUs, CPU in milli-cores, memory in MB: thousandths of each are wanted.
	for _, x := range []struct {
		key  string
		of   amount
		unit int64
	}{{"gpu", amount{model: "*"}, 1}, {"cpu", amount{resource: "cpu"}, 0}, {"memory", amount{resource: "memory"}, 1_000_000}} {
		if r.m[x.key] != nil {
			q.amounts = append(q.amounts, kaiResource(r.in(x.key), x.of, x.unit, spec))
		}
	}
	r.rest()
	return q
}

// kaiResource reads what a queue has of one resource. -1 is no limit.
func kaiResource(f *fields, of amount, unit int64, spec map[string]any) limits {
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
	l := limits{amount: of, of: f.name("quota"), nominal: max(scale(quota), 0), endless: quota == unlimited}
	if limited {
		most := scale(limit)
		l.most = &most
	}
	if lends, ok := f.amount("lendingLimit"); ok {
		lends = scale(lends)
		l.lends = &lends
	}
	switch {
	case of.model != "":
		f.weight("overQuotaWeight", spec)
	default:
		f.take("overQuotaWeight") // a queue has one weight here, for all that is divided: that of GPUs
	}
	f.rest()
	return l
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
func (qs *Queues) kueue(f *fields) queue {
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
	f.instead("admissionScope", "fairBetween: Users is fair between users by what they hold, not between LocalQueues by what they used")
	for _, key := range []string{"admissionChecks", "admissionChecksStrategy", "concurrentAdmissionPolicy"} {
		f.instead(key, "has no counterpart")
	}
	qs.kueuePreemption(f.in("preemption"))

	// A flavor of GPUs is a GPU model; other resources have no flavors, and are added up.
	q, others := queue{spec: spec}, map[string]*limits{}
	for _, group := range f.list("resourceGroups") {
		group.take("coveredResources")
		for _, flavor := range group.list("flavors") {
			model := flavor.text("name")
			for _, r := range flavor.list("resources") {
				q.kueueResource(r, model, others)
			}
			flavor.rest()
		}
		group.rest()
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		q.amounts = append(q.amounts, *others[name])
	}
	return q
}

// kueueResource reads what a queue has of one resource in one flavor.
func (q *queue) kueueResource(f *fields, flavor string, others map[string]*limits) {
	name := f.text("name")
	l := &limits{amount: amount{resource: name}}
	l.nominal, _ = f.amount("nominalQuota")
	for key, to := range map[string]**int64{"borrowingLimit": &l.borrows, "lendingLimit": &l.lends} {
		if v, ok := f.amount(key); ok {
			*to = &v
		}
	}
	f.rest()
	if isGPU(name) {
		l.amount = amount{model: flavor}
		q.amounts = append(q.amounts, *l)
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
func (qs *Queues) volcano(f *fields) queue {
	spec := map[string]any{}
	q := queue{spec: spec, inclusive: true}
	if p := f.text("parent"); p != "" && p != "root" {
		spec["parent"] = p
		qs.imply(p)
	}
	f.weight("weight", spec)
	if p, ok := f.amount("priority"); ok {
		spec["priority"] = p / 1000
		qs.note(f.name("priority"), "counts under a policy with queueing.fairShare, such as default")
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
		l := limits{amount: amountOf(name), of: deserved.name(name)}
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
		q.amounts = append(q.amounts, l)
	}
	return q
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
	f.take("checksum")
	f.rest()
	return nil
}

// yunikornQueue reads a queue, and those below it.
func (qs *Queues) yunikornQueue(f *fields, parent string) error {
	name, spec := f.text("name"), map[string]any{}
	q := queue{spec: spec, inclusive: true}
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
	yunikornProperties(f.in("properties"))
	qs.yunikornLimits(f, spec)

	r := f.in("resources")
	q.owns(r.in("guaranteed"), r.in("max"))
	r.rest()
	below := f.list("queues")
	if err := qs.add(name, q, f); err != nil {
		return err
	}
	for _, b := range below {
		if err := qs.yunikornQueue(b, name); err != nil {
			return err
		}
	}
	return nil
}

// yunikornProperties reads how a queue is served, which the policy says on Muster for all queues.
func yunikornProperties(f *fields) {
	f.elsewhere("preemption.delay", "preemption.delay of the policy, for all queues")
	for _, x := range [][3]string{
		{"application.sort.policy", "fifo", "queueing.order: Submission of the policy, for all queues"},
		{"application.sort.priority", "enabled", "jobs of higher priority come first"},
		{"preemption.policy", "default", "preemption.reclaim: true of the policy, for all queues"},
		{"priority.policy", "default", "preemption.priority: Cluster of the policy, for all queues"},
	} {
		if f.m[x[0]] == x[1] {
			f.elsewhere(x[0], x[2])
		}
	}
	if f.m["application.sort.policy"] == "fair" {
		f.instead("application.sort.policy", "fairBetween: Users of the queue is fair between users, not between applications")
	}
	for _, key := range slices.Sorted(maps.Keys(f.m)) {
		f.instead(key, "has no counterpart for one queue: the policy has queueing and preemption for all")
	}
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

// koordinator reads Koordinator's ElasticQuota (scheduling.sigs.k8s.io/v1alpha1), of which labels and annotations say the rest.
func (qs *Queues) koordinator(name string, metadata map[string]any, f *fields) error {
	const prefix = "quota.scheduling.koordinator.sh/"
	switch name {
	case "koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota":
		qs.note(f.of, "not needed: no queue stands for all others, or for pods without one")
		return nil
	}
	spec := map[string]any{}
	q := queue{spec: spec, inclusive: true}
	read := func(key string) *fields {
		of := &fields{qs: qs, of: f.of, path: "metadata." + key + ".", m: map[string]any{}}
		for k, v := range asMap(metadata[key]) {
			if short, ok := strings.CutPrefix(k, prefix); ok {
				of.m[short] = v
			}
		}
		return of
	}
	labels, annotations := read("labels"), read("annotations")
	if p := labels.text("parent"); p != "" && p != "koordinator-root-quota" {
		spec["parent"] = p
		qs.imply(p)
	}
	labels.take("is-parent")
	keeps := labels.text("allow-lent-resource") == "false"
	labels.instead("tree-id", "there is one tree of queues")
	annotations.instead("namespaces", "set namespaceSelector")
	annotations.instead("shared-weight", "a queue has one weight, for all that is divided: set weight")
	annotations.instead("admission", "bound the queue with borrowingLimit")

	q.owns(f.in("min"), f.in("max"))
	for i := range q.amounts {
		if keeps {
			q.amounts[i].lends = new(int64)
		}
	}
	return qs.add(name, q, f)
}

// owns reads how much of each resource a queue owns, and how much it can use at most.
func (q *queue) owns(nominal, most *fields) {
	names := maps.Clone(nominal.m)
	maps.Copy(names, most.m)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		l := limits{amount: amountOf(name), of: nominal.name(name)}
		l.nominal, _ = nominal.amount(name)
		if v, ok := most.amount(name); ok {
			l.most = &v
		}
		q.amounts = append(q.amounts, l)
	}
}
