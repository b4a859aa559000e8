package after

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Limit is how many Jobs of an array of gangs run at a time, and which of them one is.
type Limit struct {
	Array  string
	ID     int // of the Job; those of lower ids are before it
	AtOnce int
}

// ParseLimit reads the limit of a Job's array; nil if it has none.
func ParseLimit(o metav1.Object) (*Limit, error) {
	text, ok := o.GetAnnotations()[v1alpha1.SlurmArrayLimitAnnotation]
	if !ok {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%s: expected how many jobs of the array run at a time, 1 or more; found %q", v1alpha1.SlurmArrayLimitAnnotation, text)
	}
	labels := o.GetLabels()
	id, err := strconv.Atoi(labels[v1alpha1.SlurmJobIDLabel])
	if err != nil || labels[v1alpha1.SlurmArrayLabel] == "" {
		return nil, fmt.Errorf("%s: expected the labels %s and %s, a number, beside it", v1alpha1.SlurmArrayLimitAnnotation, v1alpha1.SlurmArrayLabel, v1alpha1.SlurmJobIDLabel)
	}
	return &Limit{labels[v1alpha1.SlurmArrayLabel], id, int(n)}, nil
}

// Limits checks limits. It reads the Jobs of an array once for all of those that ask within [readFor], for each of a thousand asks
// every few seconds: what it read earlier only makes them wait longer. Its methods can be called concurrently.
type Limits struct {
	now  func() time.Time
	mu   sync.Mutex
	read map[types.NamespacedName]*open
}

// open are the ids of the Jobs of an array that had not ended at a time, in order.
type open struct {
	at  time.Time
	ids []int
}

const readFor = 2 * time.Second

// NewLimits returns one that tells the time by a clock.
func NewLimits(now func() time.Time) *Limits {
	return &Limits{now: now, read: map[types.NamespacedName]*open{}}
}

// Check returns nil if so few Jobs of the array that are before one have not ended that it may run, an [UnmetError] if not, and another
// error if the Jobs cannot be read.
func (l *Limits) Check(ctx context.Context, namespace string, limit *Limit, jobs Jobs) error {
	ids, err := l.open(ctx, types.NamespacedName{Namespace: namespace, Name: limit.Array}, jobs)
	if err != nil {
		return err
	}
	if before, _ := slices.BinarySearch(ids, limit.ID); before >= limit.AtOnce {
		return &UnmetError{false, fmt.Sprintf("array %s: %d of its jobs run at a time, and %d before this one have not ended", limit.Array, limit.AtOnce, before)}
	}
	return nil
}

func (l *Limits) open(ctx context.Context, array types.NamespacedName, jobs Jobs) ([]int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if o := l.read[array]; o != nil && now.Sub(o.at) < readFor {
		return o.ids, nil
	}
	for name, o := range l.read {
		if now.Sub(o.at) >= readFor {
			delete(l.read, name)
		}
	}
	all, err := Array(ctx, jobs, array.Name)
	if err != nil {
		return nil, err
	}
	o := &open{at: now}
	for i := range all {
		id, err := strconv.Atoi(all[i].Labels[v1alpha1.SlurmJobIDLabel])
		if ended, _ := End(&all[i]); err == nil && !ended {
			o.ids = append(o.ids, id)
		}
	}
	slices.Sort(o.ids)
	l.read[array] = o
	return o.ids, nil
}
