package snapshot

import (
	"strings"
	"testing"
)

func TestAnswerText(t *testing.T) {
	waits := []Waiting{{"big", "Resources", "8 GPUs asked, 4 free"}}
	a := Answer{Rounds: []Round{
		{
			Decisions: []Decision{
				{Op: "bind", Job: "a", Pod: "a-0", Node: "node-1", GPUs: []int{0, 1, 2, 5}, Reason: "Placed"},
				{Op: "evict", Job: "low", Pod: "low-0", Node: "n2", GPUs: []int{3}, Reason: "PriorityPreemption", For: "big"},
				{Op: "bind", Job: "cpu", Pod: "cpu-0", Node: "n2", GPUs: []int{}, Reason: "Backfilled"},
			},
			Waiting: []Waiting{{"big", "Victims", ""}},
		},
		{Waiting: waits}, {Waiting: waits},
	}}
	want := `Round 1
  bind   a-0    on node-1 GPU 0-2,5  Placed
  evict  low-0  from n2 GPU 3        PriorityPreemption, for big
  bind   cpu-0  on n2                Backfilled
  wait   big                         Victims
Round 2
  wait  big    Resources: 8 GPUs asked, 4 free
  (no further changes from here on)
Round 3
  wait  big    Resources: 8 GPUs asked, 4 free
`
	var b strings.Builder
	if err := a.WriteText(&b); err != nil || b.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, b.String(), want)
	}
}

func TestExplanationText(t *testing.T) {
	s := Explanation{
		Job: "big", State: "nominated", Waiting: 2, Ahead: 1, Reason: "Victims", Detail: "8 GPUs are being freed",
		Change: "Nothing: the pods evicted for it must leave first.",
		Decisions: []Decision{
			{Op: "evict", Pod: "low-0", Node: "n2", GPUs: []int{3}, Reason: "PriorityPreemption", For: "big"},
			{Op: "evict", Pod: "low-1", Node: "n3", GPUs: []int{3}, Reason: "PriorityPreemption", For: "big"},
		},
	}
	want := `Job          big
State        nominated
Pods         0 running, 2 waiting, 0 leaving
Reason       Victims: 8 GPUs are being freed
Ahead of it  1 waiting jobs
To start it  Nothing: the pods evicted for it must leave first.
Decided now  evict low-0 from n2 GPU 3 PriorityPreemption, for big
             evict low-1 from n3 GPU 3 PriorityPreemption, for big
`
	var b strings.Builder
	if err := s.WriteText(&b); err != nil || b.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, b.String(), want)
	}
}
