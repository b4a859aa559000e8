package mirror

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/reports"
	"github.com/muster-sched/muster/kube/translate"
)

// Of a job that waits for others to end it is said when it starts, or why nobody
// knows; the answer is made again now and then.
func TestExpectedStart(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "r1")
	w.pod("runs", asking(v1alpha1.GPUResource, "8"), noted("muster.sh/walltime", "4h"))
	w.on("runs>n1")
	ends := w.now.Add(4 * time.Hour).Add(-time.Second) // it was bound a second ago
	w.pod("next", asking(v1alpha1.GPUResource, "8"))
	w.pod("never", asking(v1alpha1.GPUResource, "9"))
	w.pod("then", asking(v1alpha1.GPUResource, "8"))
	w.waits("next", "Resources", "are free"+translate.StartMark+ends.UTC().Format(time.RFC3339))
	w.waits("then", "Resources", "; jobs ahead: 1"+translate.NoStartMark+"jobs before it have no walltime, or it needs more than running jobs will free")
	w.waits("never", "NoNode", "")
	if g := w.m.Pods[w.pods["default/never"].UID].Group; strings.Contains(g.Waiting.Detail, "expected") {
		t.Errorf("of a pod that fits no node it says %q", g.Waiting.Detail)
	}
	w.pod("runs", noted("muster.sh/walltime", "1s")) // that is over
	w.waits("next", "Resources", translate.NoStartMark+"running jobs without a walltime, or past it: 1")
	w.m.reports.Outlook.Until = core.Never
	w.pod("late", asking(v1alpha1.GPUResource, "8"))
	w.waits("late", "Resources", translate.NoStartMark+"the job was created after the last forecast")
	w.waits("next", "Resources", translate.NoStartMark+"running jobs without a walltime, or past it: 1")
	w.m.reports.Outlook = reports.Outlook{Forecast: core.Forecast{Cut: true}, Until: core.Never}
	w.waits("next", "Resources", translate.NoStartMark+"too many jobs wait to forecast all of them")
}
