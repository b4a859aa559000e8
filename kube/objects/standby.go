package objects

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/translate"
)

// Standby is what a pod says about lending its GPUs, and what the scheduler wrote on it.
type Standby struct {
	// Until is until when it lends them, zero if it does not ask to. Keeps is what it keeps then,
	// nil for all that it requests. Wrong says what cannot be read.
	Until time.Time
	Keeps *translate.Amounts
	Wrong string
	// Reason is that of the condition, empty for none; Lends says that the condition is True.
	Reason string
	Lends  bool
	// Place is the CPU and memory that are kept for it on its node, whatever it requests now; nil
	// before it asked to be on standby.
	Place *translate.Amounts
	// Requests is what it requests now.
	Requests translate.Amounts
}

// StandbyOf returns what a pod says about standby; nil if neither it nor the scheduler said
// anything.
func StandbyOf(p *v1.Pod) *Standby {
	s, said := &Standby{Requests: translate.Requests(p)}, false
	if v, ok := p.Annotations[v1alpha1.StandbyUntilAnnotation]; ok {
		said = true
		var err error
		if s.Until, err = time.Parse(time.RFC3339, v); err != nil {
			s.Wrong = fmt.Sprintf("%s: %q: expected a time such as 2026-01-31T06:00:00Z", v1alpha1.StandbyUntilAnnotation, v)
		}
		if v, ok := p.Annotations[v1alpha1.StandbyKeepsAnnotation]; ok {
			if s.Keeps, err = keptAmounts(v); err != nil {
				s.Wrong = fmt.Sprintf("%s: %v", v1alpha1.StandbyKeepsAnnotation, err)
			}
		}
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1alpha1.StandbyCondition {
			said = true
			s.Reason, s.Lends = c.Reason, c.Status == v1.ConditionTrue
			if _, place, ok := strings.Cut(c.Message, placeMark); ok {
				s.Place, _ = keptAmounts(place) // what cannot be read was not written by Muster
			}
		}
	}
	if !said {
		return nil
	}
	if !s.Until.IsZero() {
		s.Extend(&s.Requests)
	}
	return s
}

// willLend reports whether a pod says what it keeps on standby, or until when it is.
func willLend(p *v1.Pod) bool {
	_, keeps := p.Annotations[v1alpha1.StandbyKeepsAnnotation]
	_, until := p.Annotations[v1alpha1.StandbyUntilAnnotation]
	return keeps || until
}

// Extend makes the place of a pod at least as large as another; nil changes nothing.
func (s *Standby) Extend(by *translate.Amounts) {
	switch {
	case by == nil:
	case s.Place == nil:
		s.Place = &translate.Amounts{CPUMilli: by.CPUMilli, MemMiB: by.MemMiB}
	default:
		s.Place.CPUMilli, s.Place.MemMiB = max(s.Place.CPUMilli, by.CPUMilli), max(s.Place.MemMiB, by.MemMiB)
	}
}

// placeMark stands before the place of a pod in the message of its condition.
const placeMark = "; its place on the node: "

// WithPlace adds the place of a pod to a message, for [StandbyOf].
func WithPlace(message string, place *translate.Amounts) string {
	return fmt.Sprintf("%s%scpu=%dm,memory=%dMi", message, placeMark, place.CPUMilli, place.MemMiB)
}

// WithoutPlace returns a message without what [WithPlace] added.
func WithoutPlace(message string) string {
	text, _, _ := strings.Cut(message, placeMark)
	return text
}

// keptAmounts reads CPU and memory: "cpu=1,memory=2Gi".
func keptAmounts(text string) (*translate.Amounts, error) {
	list := v1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		name, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		q, err := v1alpha1.ParseQuantity(v)
		if _, twice := list[v1.ResourceName(name)]; err != nil || twice || name != "cpu" && name != "memory" {
			return nil, fmt.Errorf("%q: expected CPU and memory such as cpu=1,memory=2Gi", text)
		}
		list[v1.ResourceName(name)] = q
	}
	if len(list) < 2 {
		return nil, fmt.Errorf("%q: expected both CPU and memory such as cpu=1,memory=2Gi", text)
	}
	a := translate.AmountsIn(list)
	return &a, nil
}
