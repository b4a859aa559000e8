package hardware

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// record is a message of the kernel log.
type record struct {
	sequence int64         // counts the messages since the machine started
	at       time.Duration // after the machine started
	text     string
}

// kernelLog reads /dev/kmsg, which gives a record for each call, from the oldest that the kernel still has:
// "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT", then lines that begin with a space.
// (Documentation/ABI/testing/dev-kmsg of Linux.)
type kernelLog struct {
	path   string
	fd     int
	opened bool
	rest   []byte // of a line that has not come as a whole
}

// mostRecord is longer than a record may be: the kernel refuses to give one that does not fit.
const mostRecord = 64 << 10

// read gives the new records of the kernel itself to each, and returns when there are no more for now.
func (k *kernelLog) read(each func(record)) error {
	if !k.opened {
		fd, err := openLog(k.path)
		if err != nil {
			return fmt.Errorf("%s: %w", k.path, err)
		}
		k.fd, k.opened, k.rest = fd, true, nil
	}
	buffer := make([]byte, mostRecord)
	for {
		n, err := readLog(k.fd, buffer)
		if err != nil {
			k.close()
			return fmt.Errorf("%s: %w", k.path, err)
		}
		if n == 0 {
			return nil
		}
		k.rest = append(k.rest, buffer[:n]...)
		for {
			end := bytes.IndexByte(k.rest, '\n')
			if end < 0 {
				break
			}
			if r, ok := parseRecord(string(k.rest[:end])); ok {
				each(r)
			}
			k.rest = k.rest[end+1:]
		}
		if len(k.rest) > mostRecord {
			k.close()
			return fmt.Errorf("%s: it is no kernel log: a line has more than %d bytes", k.path, mostRecord)
		}
	}
}

func (k *kernelLog) close() {
	if k.opened {
		closeLog(k.fd)
		k.opened = false
	}
}

// parseRecord reads the first line of a record. It refuses what a program wrote to the log: only the kernel's messages are facts.
func parseRecord(line string) (record, bool) {
	head, text, ok := strings.Cut(line, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 3 {
		return record{}, false
	}
	priority, err1 := strconv.ParseUint(fields[0], 10, 31)
	sequence, err2 := strconv.ParseInt(fields[1], 10, 64)
	us, err3 := strconv.ParseInt(fields[2], 10, 64)
	const facility = 3 // bits to its right are the level
	if err1 != nil || err2 != nil || err3 != nil || priority>>facility != 0 || sequence < 0 {
		return record{}, false
	}
	return record{sequence, time.Duration(us) * time.Microsecond, text}, true
}
