// Package console is what people see of a cluster and do to it: the verbs
// queue, jobs, nodes, top, frag, explain, drain and submit. It reads the API with the
// rights of whoever asks, and knows nothing but what the API says: which job a
// pod belongs to comes from [translate], why it waits from the conditions that
// the scheduler writes.
package console
