package metadata

import "time"

// Submitted is a job of a cluster as it is known when it is submitted: what the scheduler weighs, and what its objects say of the program.
type Submitted struct {
	ID   string // by which the scheduler knows it while it lives
	Name string // of what made its pods: unlike the ID it is the same, but for numbers and random parts, in the job's next run
	User string
	// Queue, Kind and Priority are as the scheduler has them.
	Queue, Kind string
	Priority    int
	Pods        int
	GPUs        float64  // of all pods together
	Models      []string // of GPUs, that it names
	At          time.Time
	Launch      Launch
}

// Launch is what starts a pod.
type Launch struct {
	Command string   // as a shell takes it, words that need quotes in quotes; empty: that of the image
	Env     []string // NAME=value; variables whose value is elsewhere, as in Secrets, are not among them
	Image   string   // without the registry, tag and digest
}
