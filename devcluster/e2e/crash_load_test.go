package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/devcluster/audit"
)

// crashLoad is what users do meanwhile. Six nodes are of the pool east, four of west, each
// with 8 GPUs and CPU for these and a little more. Always there should be, and run:
//
//	train   a gang of 4 pods of 8 GPUs: all of west   queue prod, which owns 40
//	serve   4 replicas of a GPU, under a budget       queue prod
//	parts   4 replicas of half a GPU                  queue prod
//	lab     6 Jobs of 2 pods of a GPU                 queue lab, which owns 24 and borrows 16
//	iso     a Job that is a gang of 6 pods of 2 GPUs  queue iso, which owns 16 for itself
//
// Each GPU comes with 2 CPUs and 1 or 3 GiB. Of these the queues have quotas too, which run
// out before their GPUs: lab borrows CPUs of prod.
//
// All nodes may have parts beside whole GPUs: else the parts would need one that the others never let them have.
//
// Beside these, Jobs come that end by themselves, some of a priority for which others
// make room, and some in the place of the gang while it is away. For all that come at least 13 GPUs
// of east are left, or 8 beside a node that takes nothing: wherever the others are, two pods of 2 GPUs fit.
type crashLoad struct {
	*cluster
	crashFaults
	rng    *rand.Rand
	limits []audit.Limit
	high   func(*v1.Pod)
	serial int
	// guests are the Jobs that need GPUs of the gang's.
	guests []string
	// endless are the Jobs whose pods never end.
	endless map[string]*batchv1.JobSpec
}

const (
	eastNodes, westNodes = 6, 4
	crashReplicas        = 4
	crashLabs            = 6
)

// to keeps a pod to a pool.
func to(pool string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Labels[v1alpha1.PoolLabel] = pool
		p.Spec.NodeSelector = map[string]string{v1alpha1.PoolLabel: pool}
	}
}

// crashLoad makes the cluster and what should always run.
func (c *cluster) crashLoad(seed uint64) *crashLoad {
	c.Helper()
	l := &crashLoad{cluster: c, crashFaults: newCrashFaults(), rng: rand.New(rand.NewPCG(seed, 1<<32)), high: c.priority("crash-high", 1000)}
	for _, pool := range []struct {
		name string
		n    int
	}{{"east", eastNodes}, {"west", westNodes}} {
		c.nodesNamed(pool.name, pool.n, inPool(pool.name), mixed, func(n *v1.Node) {
			n.Status.Capacity[v1.ResourceCPU], n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("20"), resource.MustParse("18")
		})
	}
	c.queue("prod", 40, owns("cpu", "96", ""), owns("memory", "64Gi", ""))
	c.queue("lab", 24, borrows(16), owns("cpu", "30", "18"), owns("memory", "20Gi", "12Gi"))
	c.queue("iso", 16, isolated, owns("cpu", "30", ""), owns("memory", "24Gi", ""))
	of := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	l.limits = []audit.Limit{
		{Queue: "lab", GPUs: 40_000, Others: of("48", "32Gi")}, {Queue: "iso", GPUs: 16_000, Others: of("30", "24Gi"), Isolated: true}, {Queue: "prod", GPUs: 80_000},
	}
	c.group("train", westNodes, func(g *schedulingv1beta1.PodGroup) { g.Labels[v1alpha1.QueueLabel] = "prod" })
	c.budget(policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(crashReplicas - 1))})
	c.replicas("serve", asking(1, in("prod"), to("east")))
	c.replicas("parts", asking(0, in("prod"), to("east"), note(v1alpha1.GPUFractionAnnotation, "0.5")))
	l.endless = map[string]*batchv1.JobSpec{}
	for i := range crashLabs {
		l.endless[fmt.Sprintf("lab-%d", i)] = endless(2, asking(1, in("lab"), to("east")))
	}
	iso := endless(6, asking(2, in("iso"), to("east")))
	iso.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	gang(iso)
	l.endless["iso"] = iso
	for name, spec := range l.endless {
		c.job(name, spec)
	}
	return l
}

// owns gives a queue quota of a resource, and limits what it borrows unless that is empty.
func owns(name v1alpha1.ResourceName, nominal, borrows v1alpha1.Quantity) func(*v1alpha1.Queue) {
	return func(q *v1alpha1.Queue) {
		r := v1alpha1.ResourceQuota{Name: name, Nominal: nominal}
		if borrows != "" {
			r.BorrowingLimit = &borrows
		}
		q.Spec.Resources = append(q.Spec.Resources, r)
	}
}

// asking is a template of pods with so many GPUs, and 2 CPUs and a GiB for each.
func asking(n int, options ...func(*v1.Pod)) v1.PodTemplateSpec {
	all := []func(*v1.Pod){asks(n)}
	if n > 0 {
		all = append(all, beside(n, 1))
	}
	return podTemplate(append(all, options...)...)
}

// beside is what pods ask for beside so many GPUs.
func beside(gpus, gib int) func(*v1.Pod) {
	return needs(fmt.Sprint(2*gpus), fmt.Sprintf("%dGi", gib*gpus))
}

// endless is a Job of so many pods that run until they are deleted. Pods that are evicted,
// or that go in another way, do not end it.
func endless(pods int, template v1.PodTemplateSpec) *batchv1.JobSpec {
	return &batchv1.JobSpec{
		Parallelism: ptr.To(int32(pods)), Completions: ptr.To(int32(pods)), BackoffLimit: ptr.To[int32](1 << 20), Template: template,
	}
}

// gang makes a Job start whole.
func gang(s *batchv1.JobSpec) {
	s.Scheduling = &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{
		Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{MinCount: s.Parallelism},
	}}
}

// replicas makes a ReplicaSet.
func (c *cluster) replicas(name string, template v1.PodTemplateSpec) {
	c.Helper()
	app := map[string]string{"app": name}
	template.Labels["app"] = name
	template.Spec.RestartPolicy = v1.RestartPolicyAlways
	_, err := admin.AppsV1().ReplicaSets(c.namespace).Create(ctx(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](crashReplicas), Selector: &metav1.LabelSelector{MatchLabels: app}, Template: template},
	}, metav1.CreateOptions{})
	c.must(err)
}

// train makes the pods of the gang that are not there: nobody else would.
func (l *crashLoad) train() {
	l.Helper()
	for i := range westNodes {
		p := pod(fmt.Sprintf("train-%d", i), asks(8), beside(8, 1), in("prod"), to("west"), ofGroup("train"))
		_, err := admin.CoreV1().Pods(l.namespace).Create(ctx(), p, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			l.must(err)
		}
	}
	// One that a node refused is over.
	for i := range westNodes {
		p, err := admin.CoreV1().Pods(l.namespace).Get(ctx(), fmt.Sprintf("train-%d", i), metav1.GetOptions{})
		if err == nil && p.Status.Phase == v1.PodFailed {
			l.remove(p.Name)
		}
	}
}

// remove deletes a pod, if it is there.
func (l *crashLoad) remove(name string) {
	l.Helper()
	if err := admin.CoreV1().Pods(l.namespace).Delete(ctx(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		l.must(err)
	}
}

// startOver makes the Jobs that never end again. Each pod that they lose doubles the time after which their controller makes the next one,
// up to ten minutes.
func (l *crashLoad) startOver() {
	l.Helper()
	for name, spec := range l.endless {
		l.must(admin.BatchV1().Jobs(l.namespace).Delete(ctx(), name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
		l.until("Job "+name+" is gone", func() error {
			_, err := admin.BatchV1().Jobs(l.namespace).Get(ctx(), name, metav1.GetOptions{})
			if err == nil {
				return errors.New("it is there")
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		l.job(name, spec)
	}
}

// storm is what users do for some time.
func (l *crashLoad) storm(d time.Duration) {
	l.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		l.train()
		switch l.rng.IntN(14) {
		case 0:
			l.trainRestarts()
		case 1:
			l.loses(one(l.rng, "serve", "parts", "lab", "iso", "guest", "short"))
		case 2:
			l.cordon(fmt.Sprintf("east%d", l.rng.IntN(eastNodes)), true)
		case 3:
			l.openAll()
		case 4, 5:
			l.nodeFails()
		case 6, 7:
			l.gpuFails()
		default:
			l.short()
		}
		time.Sleep(time.Duration(20+l.rng.IntN(400)) * time.Millisecond)
	}
}

// short makes a Job that ends by itself.
func (l *crashLoad) short() {
	l.Helper()
	if len(l.unfinished("short-")) > 12 {
		return
	}
	l.another()
}

// another makes one more such Job.
func (l *crashLoad) another() {
	l.Helper()
	gpus, pods := 1+l.rng.IntN(2), 1+l.rng.IntN(3)
	options := []func(*v1.Pod){to("east"), runsFor(time.Duration(100+l.rng.IntN(2500)) * time.Millisecond)}
	queue := one(l.rng, "lab", "lab", "prod", "iso")
	together := l.rng.IntN(3) == 0
	switch {
	case queue == "prod":
		gpus, pods = 1, 2 // what prod has left
	case queue == "iso": // and iso, which has CPUs for one pod
		gpus, pods = 2, 1+l.rng.IntN(2)
		together = together && pods == 1
	default:
		if l.rng.IntN(3) == 0 {
			options = append(options, l.high)
		}
		options = append(options, beside(gpus, one(l.rng, 1, 3)))
		if together && gpus == 2 { // three may have no room, however long they wait
			pods = min(pods, 2)
		}
	}
	s := endless(pods, asking(gpus, append(options, in(queue))...))
	if together {
		s.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		gang(s)
	}
	l.serial++
	l.job(fmt.Sprintf("short-%d", l.serial), s)
}

// trainRestarts deletes the gang, as its owner would who starts it again, and has others
// come that could use its place.
func (l *crashLoad) trainRestarts() {
	l.Helper()
	for i := range westNodes {
		l.remove(fmt.Sprintf("train-%d", i))
	}
	for range l.rng.IntN(3) {
		l.serial++
		name := fmt.Sprintf("guest-%d", l.serial)
		l.guests = append(l.guests, name)
		l.job(name, endless(1, asking(8, in("lab"), to("west"), runsFor(time.Duration(500+l.rng.IntN(4000))*time.Millisecond))))
	}
}

// loses deletes a pod of those with a prefix.
func (l *crashLoad) loses(prefix string) {
	l.Helper()
	list, err := admin.CoreV1().Pods(l.namespace).List(ctx(), metav1.ListOptions{})
	l.must(err)
	list.Items = slices.DeleteFunc(list.Items, func(p v1.Pod) bool { return !strings.HasPrefix(p.Name, prefix) })
	if len(list.Items) > 0 {
		l.remove(one(l.rng, list.Items...).Name)
	}
}

func (l *crashLoad) cordon(node string, closed bool) {
	l.Helper()
	if removed := l.away[node]; !removed {
		l.editNode(node, func(n *v1.Node) { n.Spec.Unschedulable = closed })
	}
}

// openAll makes all nodes schedulable.
func (l *crashLoad) openAll() {
	l.Helper()
	for _, n := range l.nodes {
		l.cordon(n, false)
	}
}

// unfinished lists the Jobs with a prefix that have not ended.
func (l *crashLoad) unfinished(prefix string) []string {
	l.Helper()
	list, err := admin.BatchV1().Jobs(l.namespace).List(ctx(), metav1.ListOptions{})
	l.must(err)
	var out []string
	for i := range list.Items {
		if j := &list.Items[i]; strings.HasPrefix(j.Name, prefix) && j.Status.CompletionTime == nil {
			out = append(out, j.Name)
		}
	}
	return out
}

// settle waits until all that should run does, that which should end has, and nothing is
// left behind, though GPUs are broken; then the Jobs that have ended go, and the GPUs work.
func (l *crashLoad) settle() {
	l.Helper()
	l.nodesReturn()
	l.openAll()
	if len(l.shunned) > 0 { // with a whole node out, all others are needed
		l.sickWork()
	}
	for range 3 {
		l.another()
	}
	now := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	for _, name := range l.guests { // the gang has their place
		if err := admin.BatchV1().Jobs(l.namespace).Delete(ctx(), name, now); !apierrors.IsNotFound(err) {
			l.must(err)
		}
	}
	l.guests = nil
	// Each pod that a Job loses doubles the time after which its controller makes the next one, from ten seconds on.
	l.within(3*patience, "all runs that should, and nothing else is left", func() error {
		l.train()
		return few(l.amiss())
	})
	for _, name := range l.names("short-") {
		l.must(admin.BatchV1().Jobs(l.namespace).Delete(ctx(), name, now))
	}
	l.gpusWork()
}

func (l *crashLoad) names(prefix string) []string {
	l.Helper()
	list, err := admin.BatchV1().Jobs(l.namespace).List(ctx(), metav1.ListOptions{})
	l.must(err)
	var out []string
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, prefix) {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}

// amiss says what is not as it should be once all is quiet.
func (l *crashLoad) amiss() []string {
	l.Helper()
	list, err := admin.CoreV1().Pods(l.namespace).List(ctx(), metav1.ListOptions{})
	l.must(err)
	var pods []*v1.Pod
	var why []string
	running := map[string]int{} // by what the name begins with
	for i := range list.Items {
		p := &list.Items[i]
		pods = append(pods, p)
		kind, rest, _ := strings.Cut(p.Name, "-")
		if kind == "lab" {
			number, _, _ := strings.Cut(rest, "-")
			kind += "-" + number
		}
		if p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil {
			running[kind]++
		}
		if k := condition(p, v1alpha1.WaitingCondition); k != nil && k.Status == v1.ConditionTrue {
			why = append(why, fmt.Sprintf("pod %s is said to wait: %s %s", p.Name, k.Reason, k.Message))
		}
	}
	nodes, err := admin.CoreV1().Nodes().List(ctx(), metav1.ListOptions{})
	l.must(err)
	groups, err := admin.SchedulingV1beta1().PodGroups(l.namespace).List(ctx(), metav1.ListOptions{})
	l.must(err)
	jobs, err := admin.BatchV1().Jobs(l.namespace).List(ctx(), metav1.ListOptions{})
	l.must(err)
	out := slices.Concat(audit.Nodes(nodes.Items, pods), audit.Gangs(groups.Items, pods), audit.Quotas(l.limits, pods),
		audit.Waiting(pods), audit.Suspended(jobs.Items))
	want := map[string]int{"train": westNodes, "serve": crashReplicas, "parts": crashReplicas, "iso": 6}
	for i := range crashLabs {
		want[fmt.Sprintf("lab-%d", i)] = 2
	}
	for kind, n := range want {
		if running[kind] != n {
			out = append(out, fmt.Sprintf("%d pods of %s run; expected %d", running[kind], kind, n))
		}
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		for _, k := range j.Status.Conditions {
			if k.Type == batchv1.JobFailed && k.Status == v1.ConditionTrue {
				out = append(out, fmt.Sprintf("Job %s failed: %s", j.Name, k.Message))
			}
		}
		if strings.HasPrefix(j.Name, "short-") && j.Status.CompletionTime == nil {
			out = append(out, fmt.Sprintf("Job %s has not ended", j.Name))
		}
	}
	if len(out) > 0 {
		out = append(out, why...)
	}
	return out
}
