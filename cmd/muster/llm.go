package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	strictly "github.com/muster-sched/muster/api/strict"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/semantic/agent"
	"github.com/muster-sched/muster/semantic/consult"
	"github.com/muster-sched/muster/semantic/embed"
	"github.com/muster-sched/muster/semantic/llm"
	"github.com/muster-sched/muster/semantic/redact"
)

// llmFile is the file of --llm-config: which models may be asked, and what may leave the cluster.
type llmFile struct {
	LLM       *endpointFile `json:"llm,omitempty"`
	Embedding *endpointFile `json:"embedding,omitempty"`
	Redact    redactFile    `json:"redact,omitempty"`
	Agent     agentFile     `json:"agent,omitempty"`
	Diagnose  struct {
		Lines int     `json:"lines,omitempty" min:"10" max:"5000"`
		Below float64 `json:"below,omitempty" min:"0" max:"1"`
	} `json:"diagnose,omitempty"`
	Advise struct {
		Threshold float64 `json:"threshold,omitempty" min:"0" max:"1"`
	} `json:"advise,omitempty"`
	Track struct {
		Lines int `json:"lines,omitempty" min:"1" max:"200"`
	} `json:"track,omitempty"`
}

type endpointFile struct {
	URL         string            `json:"url"`
	Model       string            `json:"model"`
	KeyEnv      string            `json:"keyEnv,omitempty"`
	KeyFile     string            `json:"keyFile,omitempty"`
	Timeout     v1alpha1.Duration `json:"timeout,omitempty"`
	Total       v1alpha1.Duration `json:"total,omitempty"`
	Retries     *int              `json:"retries,omitempty" min:"0" max:"10"`
	Concurrency int               `json:"concurrency,omitempty" min:"1" max:"64"`
	AnswerBytes int64             `json:"answerBytes,omitempty" min:"1000" max:"67108864"`
	Batch       int               `json:"batch,omitempty" min:"1" max:"2048"`
}

type redactFile struct {
	Emails    bool     `json:"emails,omitempty"`
	Addresses bool     `json:"addresses,omitempty"`
	Hosts     bool     `json:"hosts,omitempty"`
	Users     bool     `json:"users,omitempty"`
	Paths     bool     `json:"paths,omitempty"`
	Names     []string `json:"names,omitempty"`
}

type agentFile struct {
	Calls      int               `json:"calls,omitempty" min:"1" max:"200"`
	ReadBytes  int               `json:"readBytes,omitempty" min:"1000" max:"1000000"`
	TotalBytes int               `json:"totalBytes,omitempty" min:"1000" max:"10000000"`
	Time       v1alpha1.Duration `json:"time,omitempty"`
}

// llmFlags name the models that a command may ask.
type llmFlags struct{ config string }

func (f *llmFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.config, "llm-config", "", "also ask the models that this YAML `FILE` names; without an answer of theirs, rules alone decide")
}

// models are the endpoints that a command may ask. Either may be nil.
type models struct {
	llm, embedding *llm.Client
	redact         redact.Rules
	agent          agent.Limits
	file           llmFile

	stderr io.Writer
	mu     sync.Mutex
	failed map[string]bool // what was reported
}

// open reads the file, and makes no request. It returns nil without the flag.
func (f *llmFlags) open(c *cobra.Command) (*models, error) {
	if f.config == "" {
		return nil, nil
	}
	data, err := os.ReadFile(f.config)
	if err != nil {
		return nil, unreadable(f.config, err)
	}
	m := &models{stderr: c.ErrOrStderr(), failed: map[string]bool{}}
	m.file.Redact = redactFile{Emails: redact.Default.Emails, Addresses: redact.Default.Addresses, Hosts: redact.Default.Hosts}
	m.file.Diagnose.Lines, m.file.Diagnose.Below, m.file.Track.Lines = 200, 0.6, 20
	m.file.Advise.Threshold = 0.9
	src, err := strictly.Decode(f.config, data, &m.file)
	if err != nil {
		return nil, err
	}
	if m.file.LLM == nil && m.file.Embedding == nil {
		return nil, src.Errorf("", "llm, embedding or both; found neither")
	}
	if m.llm, err = m.file.LLM.client(src.Below("llm")); err != nil {
		return nil, err
	}
	if m.embedding, err = m.file.Embedding.client(src.Below("embedding")); err != nil {
		return nil, err
	}
	m.redact = redact.Rules(m.file.Redact)
	a := m.file.Agent
	m.agent = agent.Limits{Calls: a.Calls, Read: a.ReadBytes, Total: a.TotalBytes, Time: time.Duration(a.Time)}
	return m, nil
}

// forLogs opens the models for a command that may read each log twice. Call done at the end.
func (f *llmFlags) forLogs(c *cobra.Command, logs []jobLog) (m *models, done func(), err error) {
	if m, err = f.open(c); m == nil {
		return nil, func() {}, err
	}
	done, err = rereadable(c, logs)
	return m, done, err
}

// client returns a client of an endpoint, nil of none. wrong makes the error of a field.
func (e *endpointFile) client(wrong func(path, format string, args ...any) error) (*llm.Client, error) {
	if e == nil {
		return nil, nil
	}
	at := llm.Endpoint{
		URL: e.URL, Model: e.Model, Timeout: time.Duration(e.Timeout), Total: time.Duration(e.Total), Concurrency: e.Concurrency, Answer: e.AnswerBytes, Batch: e.Batch,
	}
	if e.Retries != nil {
		if at.Retries = *e.Retries; at.Retries == 0 {
			at.Retries = -1
		}
	}
	var err error
	switch {
	case e.KeyEnv != "" && e.KeyFile != "":
		return nil, wrong("keyFile", "keyEnv or keyFile; found both")
	case e.KeyEnv != "":
		if at.Key, err = llm.KeyFromEnv(e.KeyEnv); err != nil {
			return nil, wrong("keyEnv", "the name of an environment variable with a key in one line; found none")
		}
	case e.KeyFile != "":
		if at.Key, err = llm.KeyFromFile(e.KeyFile); err != nil {
			return nil, wrong("keyFile", "a readable file with a key in one line; found none")
		}
	}
	if e.Model == "" {
		return nil, wrong("model", "the name of a model; found none")
	}
	c, err := llm.New(at)
	if err != nil {
		return nil, wrong("url", "a URL that begins with http:// or https://, without user, password and query; a key comes from keyEnv or keyFile")
	}
	return c, nil
}

// fingerprints returns what makes vectors of jobs by the embedding endpoint, nil without one.
func (m *models) fingerprints() embed.Embedder {
	if m == nil || m.embedding == nil {
		return nil
	}
	return consult.Fingerprints{Embedder: m.embedding, Model: m.file.Embedding.Model, Redact: m.redact}
}

// fellBack reports once for each endpoint why it has no answer.
func (m *models) fellBack(of string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed[of] {
		return
	}
	m.failed[of] = true
	fmt.Fprintf(m.stderr, "muster: the %s has no answer, so rules decide: %s\n", of, message(err))
}

const (
	languageModel     = "language model"
	embeddingEndpoint = "embedding endpoint"
)
