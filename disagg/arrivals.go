package disagg

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/muster-sched/muster/disagg/pipeline"
	"github.com/muster-sched/muster/workload"
)

// Arrival is a request as it arrives. Tokens are 0 where that is not known: then the request is as
// the profile describes one.
type Arrival struct {
	At                 pipeline.Time
	Context, Generated int
}

// Closed returns n requests that are there from the beginning: as many run as a policy lets in.
func Closed(n int) []Arrival { return make([]Arrival, n) }

// Poisson returns n requests at random times, rate a second on average. The same seed gives the
// same times.
func Poisson(n int, rate float64, seed uint64) (all []Arrival) {
	r := rand.New(rand.NewPCG(seed, 0))
	at := 0.0
	for range n {
		at += r.ExpFloat64() / rate
		all = append(all, Arrival{At: pipeline.Time(math.Round(at * 1e9))})
	}
	return all
}

// ReadArrivals reads a trace of requests, plain or gzip-compressed: CSV whose header has TIMESTAMP and, if
// the sizes are known, ContextTokens and GeneratedTokens, in order of time, as the Azure LLM inference traces
// have them. Times count from the first row. What is wrong with the file is a *workload.Error.
func ReadArrivals(file string) ([]Arrival, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &workload.Error{File: file, Want: fmt.Sprintf("a file that can be read; found: %v", err)}
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, &workload.Error{File: file, Want: fmt.Sprintf("gzip; found: %v", err)}
		}
		in = z
	}
	r := csv.NewReader(in)
	r.ReuseRecord = true
	columns, err := arrivalColumns(file, r)
	if err != nil {
		return nil, err
	}
	var all []Arrival
	var first time.Time
	for {
		row, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, badRow(file, err)
		}
		line, _ := r.FieldPos(0)
		wrong := func(field, format string, args ...any) error {
			return &workload.Error{File: file, Line: line, Field: field, Want: fmt.Sprintf(format, args...)}
		}
		at, err := time.Parse("2006-01-02 15:04:05", row[columns[0]])
		if err != nil {
			return nil, wrong("TIMESTAMP", "a time such as 2023-11-16 18:15:46.6805900; found %q", row[columns[0]])
		}
		if len(all) == 0 {
			first = at
		}
		a := Arrival{At: pipeline.Time(at.Sub(first))}
		if len(all) > 0 && a.At < all[len(all)-1].At {
			return nil, wrong("TIMESTAMP", "a time that is not before that of the row above; found %q", row[columns[0]])
		}
		for i, to := range []*int{&a.Context, &a.Generated} {
			if columns[i+1] < 0 {
				continue
			}
			n, err := strconv.Atoi(row[columns[i+1]])
			if err != nil || n < 0 || n > 1e9 {
				return nil, wrong(tokenColumns[i], "a number of tokens; found %q", row[columns[i+1]])
			}
			*to = n
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return nil, &workload.Error{File: file, Want: "at least one request; found none"}
	}
	return all, nil
}

var tokenColumns = [2]string{"ContextTokens", "GeneratedTokens"}

// arrivalColumns returns the places of the columns; -1 for one that is not there.
func arrivalColumns(file string, r *csv.Reader) ([3]int, error) {
	columns := [3]int{-1, -1, -1}
	head, err := r.Read()
	if err != nil {
		return columns, badRow(file, err)
	}
	for i, name := range head {
		switch name {
		case "TIMESTAMP":
			columns[0] = i
		case tokenColumns[0]:
			columns[1] = i
		case tokenColumns[1]:
			columns[2] = i
		}
	}
	if columns[0] < 0 || (columns[1] < 0) != (columns[2] < 0) {
		return columns, &workload.Error{File: file, Line: 1, Want: fmt.Sprintf("the columns TIMESTAMP, and both or none of %s and %s; found %q", tokenColumns[0], tokenColumns[1], strings.Join(head, ","))}
	}
	return columns, nil
}

func badRow(file string, err error) error {
	e := &workload.Error{File: file, Want: fmt.Sprintf("CSV; found: %v", err)}
	var p *csv.ParseError
	if errors.As(err, &p) {
		e.Line, e.Want = p.Line, fmt.Sprintf("CSV; found: %v", p.Err)
	}
	return e
}

// Part returns the arrivals from one time to another, whose times then count from the first of these,
// and stretches the times between arrivals by a factor.
func Part(all []Arrival, from, to pipeline.Time, stretch float64) (part []Arrival) {
	for _, a := range all {
		if a.At >= from && (to == 0 || a.At < to) {
			a.At = pipeline.Time(math.Round(float64(a.At-from) * stretch))
			part = append(part, a)
		}
	}
	return part
}

// largestBatch is the largest batch that Batch finds by itself.
const largestBatch = 4096

// Batch returns the smallest number of requests that run each phase a whole number of times
// together; 0 if there is none up to 4096.
func (p *Profile) Batch() int {
	for n := 1; n <= largestBatch; n++ {
		whole := true
		for _, phase := range p.Phases {
			x := phase.Runs * float64(n)
			whole = whole && math.Abs(x-math.Round(x)) <= 1e-9*x
		}
		if whole {
			return n
		}
	}
	return 0
}

// Requests turns arrivals into what the pipeline runs. Each is a batch of that many requests of the
// profile; a phase that would run a part of a time runs once more. An arrival with tokens runs a phase once for
// each Tokens of its Per tokens.
func (p *Profile) Requests(arrivals []Arrival, phases []string, batch int) (all []pipeline.Request) {
	for _, a := range arrivals {
		r := pipeline.Request{Arrived: a.At}
		for _, name := range phases {
			runs := float64(batch)
			for _, phase := range p.Phases {
				if phase.Name != name {
					continue
				}
				runs = phase.Runs * float64(batch)
				switch known := a.Context+a.Generated > 0; {
				case known && phase.Per == perContext:
					runs = float64(a.Context) / phase.Tokens
				case known && phase.Per == perGenerated:
					runs = float64(a.Generated) / phase.Tokens
				}
			}
			r.Runs = append(r.Runs, int(math.Ceil(runs-1e-9)))
		}
		all = append(all, r)
	}
	return all
}
