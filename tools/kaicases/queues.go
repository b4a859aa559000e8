package main

import (
	"fmt"
	"math"
	"slices"
)

type queue struct {
	Name      string   `json:"name"`
	Parent    string   `json:"parent,omitempty"`
	Weight    int      `json:"weight"`
	Priority  int      `json:"priority,omitempty"`
	Quota     []amount `json:"quota,omitempty"`
	Resources []amount `json:"resources,omitempty"`

	deserves map[string]float64 // by resource; GPUs, cores, MB; less than 0 is no limit
	limit    map[string]float64
	weight   float64
}

// amount is a quota. Of GPUs it names the model, of others the resource.
type amount struct {
	Model     string `json:"model,omitempty"`
	Name      string `json:"name,omitempty"`
	Nominal   any    `json:"nominal"`
	Borrowing any    `json:"borrowingLimit,omitempty"`
}

// fieldsOf are the names of KAI's fields for each resource, with what its unit is in ours.
var fieldsOf = []struct {
	resource, deserved, most string
	unit                     float64
}{
	{"gpu", "DeservedGPUs", "MaxAllowedGPUs", 1},
	{"cpu", "DeservedCPUs", "MaxAllowedCPUs", 1e-3},
	{"memory", "DeservedMemory", "MaxAllowedMemory", 1},
}

var queueFields = []string{"Name", "ParentQueue", "Priority", "DeservedGPUs", "DeservedCPUs", "DeservedMemory", "MaxAllowedGPUs",
	"MaxAllowedCPUs", "MaxAllowedMemory", "GPUOverQuotaWeight", "InteractiveTimeoutInMinutes", "UseOnlyFreeCPUResources"}

// addQueues adds the queues and what KAI's tests call departments, which are queues above others.
func (c *converted) addQueues(body fields) error {
	departments := each(body, "Departments")
	known := map[string]bool{}
	for i, f := range append(departments, each(body, "Queues")...) {
		if err := only(f, queueFields); err != nil {
			return err
		}
		q := queue{Name: text(f, "Name"), Parent: text(f, "ParentQueue"), deserves: map[string]float64{}, limit: map[string]float64{}}
		if p, ok := f["Priority"].(float64); ok {
			q.Priority = int(p) - 100 // what KAI gives a queue that does not say
		}
		for _, r := range fieldsOf {
			q.deserves[r.resource], q.limit[r.resource] = -1, -1
			if v, ok := f[r.deserved].(float64); ok {
				q.deserves[r.resource] = v * r.unit
			} else if r.resource == "gpu" {
				q.deserves[r.resource] = 0
			}
			if v, ok := f[r.most].(float64); ok && (v != 0 || r.resource != "gpu") {
				q.limit[r.resource] = v * r.unit
			}
		}
		if q.weight = number(f, "GPUOverQuotaWeight"); i < len(departments) {
			q.weight = q.deserves["gpu"] // as KAI's tests have it
		}
		known[q.Name] = true
		c.Queues = append(c.Queues, q)
	}
	for i := range c.Queues {
		if q := &c.Queues[i]; !known[q.Parent] {
			q.Parent = "" // the department that KAI's tests add to queues without one, unlimited
		}
	}
	c.weigh()
	c.deserved = map[string]float64{}
	for _, q := range c.Queues {
		c.deserved[q.Name] = q.deserves["gpu"]
	}
	for _, r := range fieldsOf {
		c.own(r.resource)
	}
	return nil
}

// weigh gives the queues whole weights.
func (c *converted) weigh() {
	scale := 1.0
	for _, q := range c.Queues {
		if q.weight != math.Trunc(q.weight) {
			scale = 1000
		}
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		if q.Weight = int(math.Round(q.weight * scale)); q.weight < 0 {
			q.Weight = 1 // a department without a limit
		}
	}
}

// all returns what the nodes have of a resource.
func (c *converted) all(resource string) float64 {
	sum := 0.0
	for _, n := range c.Nodes {
		switch resource {
		case "gpu":
			sum += float64(n.GPUs)
		case "cpu":
			sum += float64(n.CPUMilli) / 1000
		default:
			sum += float64(n.MemMiB)
		}
	}
	return sum
}

// own gives the queues their quotas of one resource: those of CPU and memory only if a queue is limited in it.
func (c *converted) own(resource string) {
	limited := resource == "gpu"
	for _, q := range c.Queues {
		limited = limited || q.deserves[resource] >= 0 || q.limit[resource] >= 0
	}
	if !limited {
		return
	}
	below := map[string]float64{} // what the queues below each one deserve
	for _, q := range c.Queues {
		if q.deserves[resource] > 0 {
			below[q.Parent] += q.deserves[resource]
		}
	}
	// For the queues below each one: which part of what they deserve they own, and whether a queue above them limits
	// those that have no limit themselves.
	share, bound := map[string]float64{"": 1}, map[string]bool{}
	for len(share) < len(c.Queues)+1 {
		for i := range c.Queues {
			q := &c.Queues[i]
			part, known := share[q.Parent]
			if _, done := share[q.Name]; done || !known {
				continue
			}
			share[q.Name], bound[q.Name] = part, bound[q.Parent]
			if q.deserves[resource] < 0 && q.limit[resource] < 0 && (bound[q.Parent] || c.parent(q.Name)) {
				continue
			}
			bound[q.Name] = true
			if owned := c.grant(q, resource, part, below[q.Name]); below[q.Name] > 0 {
				share[q.Name] = min(part, owned/below[q.Name])
			}
		}
	}
}

func (c *converted) parent(name string) bool {
	return slices.ContainsFunc(c.Queues, func(q queue) bool { return q.Parent == name })
}

// grant gives a queue its quota of a resource: what it deserves, times part, less what those below have of it. It
// returns what the queue has together with those below.
func (c *converted) grant(q *queue, resource string, part, below float64) float64 {
	deserves, most := q.deserves[resource]*part, q.limit[resource]
	if deserves < 0 {
		if deserves = c.all(resource); most >= 0 {
			deserves = min(deserves, most)
		}
	}
	own, borrows := max(0, deserves-below*part), max(0, most-deserves)
	if resource == "gpu" {
		a := amount{Model: "*", Nominal: thousandths(own)}
		if most >= 0 {
			a.Borrowing = thousandths(borrows)
		}
		q.Quota = append(q.Quota, a)
		return deserves
	}
	a := amount{Name: resource, Nominal: quantity(resource, own)}
	if most >= 0 {
		a.Borrowing = quantity(resource, borrows)
	}
	q.Resources = append(q.Resources, a)
	return deserves
}

func thousandths(v float64) float64 { return math.Round(v*1000) / 1000 }

// quantity writes an amount of CPU in milli-cores, and of memory in Mi, of which the snapshot has as many as KAI's MB.
func quantity(resource string, v float64) string {
	if resource == "cpu" {
		return fmt.Sprintf("%.0fm", 1000*v)
	}
	return fmt.Sprintf("%.0fMi", v)
}
