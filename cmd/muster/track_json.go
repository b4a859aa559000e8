package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/muster-sched/muster/semantic/llm"
	"github.com/muster-sched/muster/semantic/track"
)

// printReadings prints readings as track --json does: an object on a line for each, with null for what the line does not say, as encoding/json would. A log of gigabytes
// has millions. The stage is printed if models may be asked.
func printReadings(out *bufio.Writer, file string, stage llm.Stage, all []*track.Reading) error {
	head, tail := `{"file":`+quoted(file)+`,"line_index":`, "}\n"
	if stage != "" {
		tail = `,"stage":` + quoted(string(stage)) + tail
	}
	unit, unitText := "", ""
	for _, x := range all {
		b := append(out.AvailableBuffer(), head...)
		b = strconv.AppendInt(b, x.Line, 10)
		b = appendFigure(append(b, `,"step":`...), x.Step)
		b = appendFigure(append(b, `,"total_steps":`...), x.TotalSteps)
		b = appendFigure(append(b, `,"epoch":`...), x.Epoch)
		b = appendFigure(append(b, `,"step_time_s":`...), x.StepTime)
		b = appendFigure(append(b, `,"throughput":`...), x.Throughput)
		b = append(b, `,"throughput_unit":`...)
		if finite(x.Throughput) && x.Unit != "" {
			if unit != x.Unit {
				unit, unitText = x.Unit, quoted(x.Unit)
			}
			b = append(b, unitText...)
		} else {
			b = append(b, "null"...)
		}
		b = appendFigure(append(b, `,"loss":`...), x.Loss)
		if x.HasLoss && !finite(x.Loss) {
			b = append(b, `,"nan_loss":true`...)
		}
		if _, err := out.Write(append(b, tail...)); err != nil {
			return err
		}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// appendFigure appends a number in JSON, or null for one that is not finite.
func appendFigure(b []byte, v float64) []byte {
	switch size := math.Abs(v); {
	case !finite(v):
		return append(b, "null"...)
	case v == math.Trunc(v) && size < 1e15 && !(v == 0 && math.Signbit(v)):
		return strconv.AppendInt(b, int64(v), 10)
	case size < 1e-6 && v != 0 || size >= 1e21:
		b = strconv.AppendFloat(b, v, 'e', -1, 64)
		if n := len(b); b[n-4] == 'e' && b[n-3] == '-' && b[n-2] == '0' { // 1e-07
			b = append(b[:n-2], b[n-1])
		}
		return b
	case v != 0 && size < 1e9:
		// What a log prints has few decimals. Numbers of at most 15 digits differ in floating point, so these are the digits.
		if n := math.Round(v * 1e6); n/1e6 == v {
			return appendMillionths(b, int64(n))
		}
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}

// appendMillionths appends a number of millionths that is no whole number, without zeros at its end.
func appendMillionths(b []byte, n int64) []byte {
	if n < 0 {
		b, n = append(b, '-'), -n
	}
	b = append(strconv.AppendInt(b, n/1e6, 10), '.')
	from := len(b)
	b = strconv.AppendInt(b, 1e6+n%1e6, 10)
	b = append(b[:from], b[from+1:]...) // the 1 before the zeros
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// quoted returns a text as a string in JSON.
func quoted(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string can be encoded, and a Buffer written
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
