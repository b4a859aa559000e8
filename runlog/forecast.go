package runlog

import (
	"encoding/csv"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// The columns of forecast.csv; the last ones are those of [sim.Ahead].
const forecastHeader = "t,model,hp_gpus,expected_1,expected_6,expected_24\n"

func writeForecast(w io.Writer, rows []sim.HPSample) error {
	out := csv.NewWriter(w)
	record := strings.Split(strings.TrimSpace(forecastHeader), ",")
	err := out.Write(record)
	for i := 0; err == nil && i < len(rows); i++ {
		r := &rows[i]
		record = append(record[:0], string(appendSeconds(nil, r.T)), r.Model, string(appendGPUs(nil, r.GPU)))
		for _, x := range r.Expected {
			text := ""
			if x >= 0 {
				text = string(appendGPUs(nil, x))
			}
			record = append(record, text)
		}
		err = out.Write(record)
	}
	out.Flush()
	return errors.Join(err, out.Error())
}

// readForecast returns nil if there is no such file.
func readForecast(path string) ([]sim.HPSample, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var rows []sim.HPSample
	err := eachRow(path, forecastHeader, func(f *fields) {
		r := sim.HPSample{T: f.time(), Model: f.text(), GPU: f.gpus()}
		for k := range r.Expected {
			r.Expected[k] = core.Milli(-1)
			if f.row[f.next] == "" {
				f.next++
			} else {
				r.Expected[k] = f.gpus()
			}
		}
		rows = append(rows, r)
	})
	return rows, err
}
