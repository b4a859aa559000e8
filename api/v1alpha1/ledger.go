package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Ledger is what the scheduler remembers of queues and jobs when it starts again: the GPU time
// that they received and deserved, and since when gangs are stale. The scheduler writes it, in
// several objects if there are many jobs. The latest entry of a queue or a job counts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=mledger,categories=muster
// +kubebuilder:printcolumn:name="At",type=string,JSONPath=`.at`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Ledger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// At is the time up to which it counts. An entry counts for a queue or a job that
	// was created before.
	At metav1.MicroTime `json:"at"`
	// Queues has the queues, by name.
	//
	// +listType=atomic
	Queues []LedgerQueue `json:"queues,omitempty"`
	// Jobs has live jobs, by name.
	//
	// +listType=atomic
	Jobs []LedgerJob `json:"jobs,omitempty"`
}

// LedgerQueue is an entry of a queue.
type LedgerQueue struct {
	Name         string `json:"name"`
	QueueGPUTime `json:",inline"`
}

// LedgerJob is an entry of a job.
type LedgerJob struct {
	// Name is namespace/kind/name.
	Name string `json:"name"`
	// +kubebuilder:validation:Pattern=`^[0-9]{1,37}$`
	Received string `json:"received,omitempty"`
	// +kubebuilder:validation:Pattern=`^[0-9]{1,37}$`
	Deserved string `json:"deserved,omitempty"`
	// StaleSince is since when the job's gang has had fewer pods than its minimum.
	StaleSince *metav1.MicroTime `json:"staleSince,omitempty"`
}

// LedgerList is a list of ledgers.
//
// +kubebuilder:object:root=true
type LedgerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Ledger `json:"items"`
}
