package gputime

// This file has what a ledger hands to one that goes on after it.

// Served is what a queue or a job has received and deserved.
type Served struct{ Received, Deserved Amount }

// Queue returns what a queue with all below it and its own jobs have received and deserved, and the index of the queue, which
// is known.
func (l *Ledger) Queue(name string) (all, own Served, index int64) {
	a := l.byName[name]
	return Served{a.received, a.deserved}, Served{a.own.received, a.own.deserved}, l.Index(a)
}

// Job returns what a job has received and deserved.
func (l *Ledger) Job(j *Job) Served { return Served{j.Received(l), j.Deserved()} }

// SetQueue says what a queue with all below it and its own jobs had received and deserved at a time that has passed. Between
// then and now they received and deserved nothing, and half-lives went on. The queue is known.
func (l *Ledger) SetQueue(name string, all, own Served, at Time) {
	l.version++
	a := l.byName[name]
	a.received, a.deserved = all.Received, all.Deserved
	a.own.received, a.own.deserved = own.Received, own.Deserved
	if l.step == 0 {
		return
	}
	for n := floor(l.at, l.step) - floor(at, l.step); n > 0 && (Served{a.received, a.deserved} != Served{} || Served{a.own.received, a.own.deserved} != Served{}); n-- {
		a.received, a.deserved = a.received.decayed(), a.deserved.decayed()
		a.own.received, a.own.deserved = a.own.received.decayed(), a.own.deserved.decayed()
	}
}

// SetJob says what a job has received and deserved up to now.
func (l *Ledger) SetJob(j *Job, is Served) {
	l.version++
	j.received, j.since = is.Received, l.at
	j.deserved, j.from = is.Deserved, Amount{}
	if j.wanted > 0 {
		i, _ := j.account.sizeOf(j.wanted)
		j.from = j.account.sizes[i].each
	}
}
