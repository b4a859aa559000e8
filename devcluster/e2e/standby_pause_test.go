package e2e

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/pause"
)

// lendsPaused lets HP pods lend their GPUs, whose processes agents pause.
func lendsPaused(k *kube.Config) {
	spotGPU(k)
	pausing(k)
}

// processIs waits until the agent of a node says that the process of a pod is in a phase.
func (c *cluster) processIs(node string, pod types.UID, phase agentpb.Phase) {
	c.Helper()
	var k kube.Config
	pausing(&k)
	network := pause.Network{Client: admin, Port: k.Agents.Port, Name: k.Agents.Name, TLS: k.Agents.TLS}
	c.until("the process is in "+phase.String(), func() error {
		m, err := network.Member(ctx(), node, pod)
		if err != nil || m == nil {
			return fmt.Errorf("it is not there (%v)", err)
		}
		defer m.Client.Close()
		return is(m, phase)
	})
}

func is(m *agent.Member, phase agentpb.Phase) error {
	s, err := m.Client.Status(ctx(), &agentpb.StatusRequest{Node: m.Node})
	if err != nil {
		return err
	}
	for _, p := range s.Processes {
		if p.Pod == m.Pod && p.Phase != phase {
			return fmt.Errorf("it is in %v", p.Phase)
		}
	}
	return nil
}

// A service whose processes can be paused lends its GPUs: they are paused before that, stay so while another scheduler starts, and go on when
// the GPUs are its own again.
func TestStandbyPauses(t *testing.T) {
	c := begin(t)
	c.agentNode("n")
	c.schedule(lendsPaused)
	c.create(pod("serve", uncounted(8), needs("120", "900Gi"), pausable, note(fleet.PauseTakes, "500ms")))
	c.bound("serve")
	c.phase(v1.PodRunning, "serve")
	serve := c.get("serve").UID
	c.rests("serve", time.Hour, "cpu=1,memory=200Gi")
	c.standby("serve", v1alpha1.StandbyPreparing, "are being paused")
	c.standby("serve", v1alpha1.StandbyPreparing, "requests 120000 milli-cores")
	c.processIs("n", serve, agentpb.Phase_PHASE_SAVED)
	c.resize("serve", "1", "200Gi")
	c.standby("serve", v1alpha1.StandbyLending)
	c.create(pod("guest", uncounted(2), spot, needs("60", "100Gi")))
	c.bound("guest")
	c.phase(v1.PodRunning, "guest")
	guest := c.get("guest")

	c.scheduler.stop()
	c.schedule(lendsPaused)
	c.annotate("serve", fmt.Sprintf("%q:null", v1alpha1.StandbyUntilAnnotation))
	c.gone(guest)
	c.standby("serve", v1alpha1.StandbyResumed)
	c.processIs("n", serve, agentpb.Phase_PHASE_RUNNING)
	c.resize("serve", "120", "900Gi")
	c.stay("serve")
}

// A service whose processes cannot be paused lends nothing, and runs on.
func TestStandbyPauseFails(t *testing.T) {
	c := begin(t)
	c.agentNode("n")
	c.schedule(lendsPaused)
	c.create(pod("serve", uncounted(8), needs("1", "1Gi"), pausable, note(fleet.PauseFails, "process 7 holds memory that cannot be copied")))
	c.bound("serve")
	c.phase(v1.PodRunning, "serve")
	c.rests("serve", time.Hour, "")
	c.standby("serve", v1alpha1.StandbyRefused, "process 7 holds memory that cannot be copied")
	c.processIs("n", c.get("serve").UID, agentpb.Phase_PHASE_RUNNING)
	c.create(pod("guest", uncounted(2), spot))
	c.waits("guest", "Resources")
}

// A standby that is taken back while the processes are being paused leaves them running.
func TestStandbyTakenBack(t *testing.T) {
	c := begin(t)
	c.agentNode("n")
	c.schedule(lendsPaused)
	c.create(pod("serve", uncounted(8), needs("1", "1Gi"), pausable, note(fleet.PauseTakes, "1s")))
	c.bound("serve")
	c.phase(v1.PodRunning, "serve")
	serve := c.get("serve").UID
	c.rests("serve", time.Hour, "cpu=0,memory=1Mi")
	c.standby("serve", v1alpha1.StandbyPreparing, "are being paused")
	c.annotate("serve", fmt.Sprintf("%q:null", v1alpha1.StandbyUntilAnnotation))
	c.until("the scheduler lets it go on", func() error {
		return c.scheduler.log.has("action=ACTION_RESUME")
	})
	c.processIs("n", serve, agentpb.Phase_PHASE_RUNNING)
}
