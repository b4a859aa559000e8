// Package coretest tests the core from text. A scenario file describes nodes,
// queues and jobs as they come and go, and what the engine decides about them;
// testdata/README.md describes the language. Beside the engine runs a
// [Twin]: a slow, obvious model of the cluster that shares no code with the
// engine's accounting and refuses every decision that breaks an invariant.
package coretest
