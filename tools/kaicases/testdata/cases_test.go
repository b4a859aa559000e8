// Cases in the form of KAI's tests, written for the test of kaicases. This file is read, never compiled.
package cases

const half = 0.5

func cases() []utils.TestTopologyMetadata {
	return []utils.TestTopologyMetadata{
		{
			TestTopologyBasic: test_utils.TestTopologyBasic{
				Name: "an owner " + "takes back what is its own",
				Jobs: []*jobs_fake.TestJobBasic{
					{Name: "waits", QueueName: "owner", RequiredGPUsPerTask: 1, Priority: constants.PriorityTrainNumber,
						Tasks: []*tasks_fake.TestTaskBasic{{State: pod_status.Pending}}},
					{Name: "old", QueueName: "guest", RequiredGPUsPerTask: 1, Priority: constants.PriorityTrainNumber,
						Tasks: []*tasks_fake.TestTaskBasic{{State: pod_status.Running, NodeName: "n0"}}},
					{Name: "young", QueueName: "guest", RequiredGPUsPerTask: 1, Priority: constants.PriorityTrainNumber,
						Tasks: []*tasks_fake.TestTaskBasic{{State: pod_status.Running, NodeName: "n0"}}},
				},
				Nodes: map[string]nodes_fake.TestNodeBasic{"n0": {GPUs: 2}},
				Queues: []test_utils.TestQueueBasic{
					{Name: "owner", ParentQueue: "d", DeservedGPUs: 1, GPUOverQuotaWeight: 3},
					{Name: "guest", ParentQueue: "d", DeservedGPUs: 1, MaxAllowedGPUs: 2},
				},
				Departments: []test_utils.TestDepartmentBasic{{Name: "d", DeservedGPUs: 3}},
				JobExpectedResults: map[string]test_utils.TestExpectedResultBasic{
					"waits": {NodeName: "n0", Status: pod_status.Running},
					"old":   {NodeName: "n0", Status: pod_status.Running},
					"young": {Status: pod_status.Pending},
				},
			},
		},
		{
			TestTopologyBasic: test_utils.TestTopologyBasic{
				Name: "a part of a GPU, a gang with a minimum, and pods by name",
				Jobs: []*jobs_fake.TestJobBasic{
					{Name: "part", QueueName: "q", RequiredGPUsPerTask: half, Priority: constants.PriorityBuildNumber,
						Tasks: []*tasks_fake.TestTaskBasic{{State: pod_status.Running, NodeName: "n1", GPUGroups: []string{"0"}}}},
					{Name: "gang", QueueName: "q", RequiredGPUsPerTask: 1, RequiredCPUsPerTask: 2, Priority: constants.PriorityTrainNumber - 1,
						RootSubGroupSet: jobs_fake.DefaultSubGroup(2),
						Tasks: []*tasks_fake.TestTaskBasic{
							{State: pod_status.Pending, NodeAffinityNames: []string{"n1"}},
							{State: pod_status.Pending, NodeAffinityNames: []string{"n1"}},
							{State: pod_status.Pending, NodeAffinityNames: []string{"n1"}},
						}},
				},
				Nodes: map[string]nodes_fake.TestNodeBasic{"n1": {GPUs: 3, CPUMillis: 8, CPUMemory: 9000000000}},
				Queues: []test_utils.TestQueueBasic{
					{Name: "q", DeservedGPUs: 3, DeservedCPUs: pointer.Float64(4000), Priority: pointer.Int(commonconstants.DefaultQueuePriority + 1)}},
				JobExpectedResults: map[string]test_utils.TestExpectedResultBasic{"part": {Status: pod_status.Running}},
				TaskExpectedResults: map[string]test_utils.TestExpectedResultBasic{
					"gang-0": {Status: pod_status.Pipelined}, "gang-1": {Status: pod_status.Binding}, "gang-2": {Status: pod_status.Pending},
				},
			},
		},
		{
			TestTopologyBasic: test_utils.TestTopologyBasic{
				Name: "slices of GPUs",
				Jobs: []*jobs_fake.TestJobBasic{{Name: "mig", Tasks: []*tasks_fake.TestTaskBasic{
					{State: pod_status.Pending, RequiredMigInstances: map[v1.ResourceName]int{"nvidia.com/mig-1g.5gb": 1}}}}},
				Nodes:  map[string]nodes_fake.TestNodeBasic{"n0": {GPUs: 1}},
				Queues: []test_utils.TestQueueBasic{{Name: "q"}},
			},
		},
		{
			TestTopologyBasic: test_utils.TestTopologyBasic{
				Name: "jobs made by code", Jobs: many(100),
				Nodes:  map[string]nodes_fake.TestNodeBasic{"n0": {GPUs: 1}},
				Queues: []test_utils.TestQueueBasic{{Name: "q"}},
			},
		},
		{
			TestTopologyBasic: test_utils.TestTopologyBasic{
				Name:   "no result",
				Jobs:   []*jobs_fake.TestJobBasic{{Name: "j", QueueName: "q", Tasks: []*tasks_fake.TestTaskBasic{{State: pod_status.Pending}}}},
				Nodes:  map[string]nodes_fake.TestNodeBasic{"n0": {GPUs: 1}},
				Queues: []test_utils.TestQueueBasic{{Name: "q"}},
			},
		},
		{
			TestTopologyBasic: test_utils.TestTopologyBasic{
				Name: "groups of pods whose names differ in a digit, and memory in bytes",
				Jobs: []*jobs_fake.TestJobBasic{{Name: "j", QueueName: "q", RequiredMemoryPerTask: 750, RequiredGPUsPerTask: 1,
					RootSubGroupSet: func() *subgroup_info.SubGroupSet {
						root := subgroup_info.NewSubGroupSet(subgroup_info.RootSubGroupSetName, nil)
						root.AddPodSet(subgroup_info.NewPodSet("s-0", 1, nil))
						root.AddPodSet(subgroup_info.NewPodSet("s-1", 1, nil))
						return root
					}(),
					Tasks: []*tasks_fake.TestTaskBasic{
						{State: pod_status.Pending, SubGroupName: "s-0"}, {State: pod_status.Pending, SubGroupName: "s-0"}, {State: pod_status.Pending, SubGroupName: "s-1"}}}},
				Nodes:              map[string]nodes_fake.TestNodeBasic{"n": {GPUs: 3, CPUMemory: 2000}},
				Queues:             []test_utils.TestQueueBasic{{Name: "q", DeservedGPUs: 3}},
				JobExpectedResults: map[string]test_utils.TestExpectedResultBasic{"j": {Status: pod_status.Running}},
			},
		},
		{
			TestTopologyBasic: test_utils.TestTopologyBasic{
				Name: "a pod that is leaving in the end, and one that comes back",
				Jobs: []*jobs_fake.TestJobBasic{
					{Name: "goes", QueueName: "q", RequiredGPUsPerTask: 1, DeleteJobInTest: true,
						Tasks: []*tasks_fake.TestTaskBasic{{State: pod_status.Releasing, NodeName: "n"}}},
					{Name: "back", QueueName: "q", RequiredGPUsPerTask: 1,
						Tasks: []*tasks_fake.TestTaskBasic{{State: pod_status.Releasing, NodeName: "n", NodeAffinityNames: []string{"a"}}}},
				},
				Nodes:  map[string]nodes_fake.TestNodeBasic{"n": {GPUs: 2, Labels: map[string]string{tasks_fake.NodeAffinityKey: "a"}}},
				Queues: []test_utils.TestQueueBasic{{Name: "q", DeservedGPUs: 2}},
				JobExpectedResults: map[string]test_utils.TestExpectedResultBasic{
					"goes": {Status: pod_status.Releasing}, "back": {Status: pod_status.Running, NodeName: "n"},
				},
			},
		},
	}
}
