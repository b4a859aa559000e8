package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/table"
)

// Migrations is a plan of moves, as JSON and as text.
type Migrations struct {
	// For names the waiting job for which the moves make room; empty if they vacate nodes.
	For string `json:"for,omitempty"`
	// SlackBefore and SlackAfter count nodes of which some GPUs are in use and some are free,
	// without the plan and after it.
	SlackBefore int `json:"slack_nodes_before"`
	SlackAfter  int `json:"slack_nodes_after"`
	// Vacated names the nodes on which no GPU is in use after the plan.
	Vacated []string `json:"vacated"`
	// Waves is how many waves of moves there are, GPUs how much GPU the pods that move have.
	Waves int     `json:"waves"`
	GPUs  float64 `json:"moved_gpus"`
	// DoubleGPUHours is the GPU time for which pods have two places, if each move takes
	// MoveSeconds; in a plan that vacates nodes, also that for which pods that restart do not work.
	MoveSeconds    float64 `json:"move_s"`
	DoubleGPUHours float64 `json:"double_gpu_hours"`
	// LostGPUHours is the work that the restarts lose.
	LostGPUHours float64 `json:"lost_gpu_hours"`
	// GainedGPUHours is the GPU time of the vacated nodes for UseSeconds, until the next plan; or
	// that of the job for which room is made, or of one pod of it, if it would otherwise wait for
	// UseSeconds. NetGPUHours is that less DoubleGPUHours and LostGPUHours.
	UseSeconds     float64 `json:"use_s,omitempty"`
	GainedGPUHours float64 `json:"gained_gpu_hours"`
	NetGPUHours    float64 `json:"net_gpu_hours"`
	Moves          []Move  `json:"moves"`
	// Restarts are the pods that stop and start again elsewhere.
	Restarts []Restart `json:"restarts,omitempty"`
}

// Restart is a pod that stops, and starts again on a node: another than before, or the same one if
// its gang restarts, or on other GPUs.
type Restart struct {
	// Wave is the wave of the restart, if the plan vacates nodes; one that makes room for a job
	// restarts others when all have moved.
	Wave int    `json:"wave,omitempty"`
	Job  string `json:"job"`
	Pod  int    `json:"pod"`
	// Name is the name of the pod on a Kubernetes cluster.
	Name string  `json:"name,omitempty"`
	From string  `json:"from"`
	To   string  `json:"to"`
	GPUs float64 `json:"gpus"`
}

// Move is a pod that goes from a node to another.
type Move struct {
	// Wave counts from 1. The moves of a wave are made at the same time, when those before are
	// over.
	Wave int    `json:"wave"`
	Job  string `json:"job"`
	Pod  int    `json:"pod"`
	// Name is the name of the pod on a Kubernetes cluster.
	Name string  `json:"name,omitempty"`
	From string  `json:"from"`
	To   string  `json:"to"`
	GPUs float64 `json:"gpus"`
	// DoubleGPUHours is the cost of the move.
	DoubleGPUHours float64 `json:"double_gpu_hours"`
}

// NewMigrations returns the engine's plan in the form of the command's answers, with its costs
// and its benefit under these options. A job for which it makes room would otherwise wait for the
// assumed time; 0 if no time is assumed, and then the benefit is not known.
func NewMigrations(plan core.Migrations, d *core.Defrag, assumedWait core.Time) Migrations {
	each := d.MoveTime
	m := Migrations{SlackBefore: plan.SlackBefore, SlackAfter: plan.SlackAfter, Vacated: append([]string{}, plan.Vacated...), Moves: []Move{}, MoveSeconds: each.Seconds()}
	for _, x := range plan.Moves {
		gpus := float64(x.GPU) / float64(core.WholeGPU)
		m.Waves = x.Wave + 1
		m.GPUs += gpus
		m.Moves = append(m.Moves, Move{Wave: x.Wave + 1, Job: x.Job, Pod: x.Pod, From: x.From, To: x.To, GPUs: gpus, DoubleGPUHours: gpus * each.Seconds() / 3600})
	}
	held := m.GPUs
	for _, x := range plan.Restarts {
		r := Restart{Job: x.Job, Pod: x.Pod, From: x.From, To: x.To, GPUs: float64(x.GPU) / float64(core.WholeGPU)}
		if plan.Needed == 0 {
			r.Wave = x.Wave + 1
			m.Waves = max(m.Waves, r.Wave)
			held += r.GPUs
		}
		m.Restarts = append(m.Restarts, r)
	}
	m.DoubleGPUHours = held * each.Seconds() / 3600
	m.LostGPUHours = float64(plan.Lost) / float64(core.WholeGPU) / 3600
	gained := plan.Gained
	if m.UseSeconds = d.Every.Seconds(); plan.Needed > 0 {
		gained, m.UseSeconds = plan.Needed, assumedWait.Seconds()
	}
	if none := len(m.Moves)+len(m.Restarts) == 0; none || gained == 0 || m.UseSeconds == 0 {
		m.UseSeconds = 0
		return m
	}
	m.GainedGPUHours = float64(gained) / float64(core.WholeGPU) * m.UseSeconds / 3600
	m.NetGPUHours = m.GainedGPUHours - m.DoubleGPUHours - m.LostGPUHours
	return m
}

// WriteText writes the plan for people to read: its first moves, up to
// limit of them, and what the plan comes to.
func (m Migrations) WriteText(w io.Writer, limit int) error {
	if len(m.Moves)+len(m.Restarts) == 0 && m.For != "" {
		_, err := fmt.Fprintf(w, "No moves: no plan was found by which job %s could start, or it can start without.\n", m.For)
		return err
	}
	if len(m.Moves)+len(m.Restarts) == 0 {
		_, err := fmt.Fprintf(w, "No moves: no node can be vacated. Slack nodes (some GPUs in use, some free): %d\n", m.SlackBefore)
		return err
	}
	t := table.Table{Align: "rlrllr"}
	t.Add("WAVE", "JOB", "POD", "FROM", "TO", "GPUS")
	for _, x := range m.Moves[:min(limit, len(m.Moves))] {
		t.Add(fmt.Sprint(x.Wave), x.Job, cmp.Or(x.Name, fmt.Sprint(x.Pod)), x.From, x.To, fmt.Sprint(x.GPUs))
	}
	for _, x := range m.Restarts[:min(limit, len(m.Restarts))] {
		wave := "restart"
		if x.Wave > 0 {
			wave = fmt.Sprintf("%d, restart", x.Wave)
		}
		t.Add(wave, x.Job, cmp.Or(x.Name, fmt.Sprint(x.Pod)), x.From, x.To, fmt.Sprint(x.GPUs))
	}
	var b strings.Builder
	if err := t.Write(&b, 0); err != nil {
		return err
	}
	if more := max(0, len(m.Moves)-limit) + max(0, len(m.Restarts)-limit); more > 0 {
		fmt.Fprintf(&b, "(%d more; --plan FILE writes all)\n", more)
	}
	fmt.Fprintf(&b, "\nMoves           %d, in %d waves\n", len(m.Moves), m.Waves)
	if m.For != "" {
		fmt.Fprintf(&b, "Room for        %s\n", m.For)
	}
	if len(m.Restarts) == 0 || m.For == "" {
		fmt.Fprintf(&b, "Vacated nodes   %d\n", len(m.Vacated))
		fmt.Fprintf(&b, "Slack nodes     %d before, %d after (some GPUs in use, some free)\n", m.SlackBefore, m.SlackAfter)
	}
	fmt.Fprintf(&b, "Moved GPUs      %g\n", m.GPUs)
	fmt.Fprintf(&b, "Double use      %.2f GPU-hours, if a move takes %g s\n", m.DoubleGPUHours, m.MoveSeconds)
	if len(m.Restarts) > 0 {
		fmt.Fprintf(&b, "Restarts        %d, which lose %.2f GPU-hours of work\n", len(m.Restarts), m.LostGPUHours)
	}
	switch {
	case m.UseSeconds > 0 && m.For != "":
		fmt.Fprintf(&b, "Benefit         %.2f GPU-hours if %s would otherwise wait for %g s, less the cost %.2f\n", m.GainedGPUHours, m.For, m.UseSeconds, m.NetGPUHours)
	case m.UseSeconds > 0:
		fmt.Fprintf(&b, "Benefit         %.2f GPU-hours in vacated nodes within %g s, less the cost %.2f\n", m.GainedGPUHours, m.UseSeconds, m.NetGPUHours)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
