package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// The client would write to stderr what it returns as errors, too.
func init() { logging.Disable() }

// stream is a journal in a Redis stream: Redis numbers the entries in the order in which they are appended.
type stream struct {
	client *redis.Client
	key    string
}

// redisKey is the stream's name, with the version of its entries; key=NAME in the URL names another.
const redisKey = "muster:jobs:1"

// page is how many entries are read at a time.
const page = 1000

// openRedis opens the server of a URL. It refuses a server that says that it would forget what it has acknowledged.
func openRedis(ctx context.Context, where string) (*stream, error) {
	u, err := url.Parse(where)
	if err != nil {
		return nil, errors.New("expected a URL such as redis://host:6379/0; found one that cannot be read")
	}
	query := u.Query()
	key := query.Get("key")
	if key == "" {
		key = redisKey
	}
	query.Del("key")
	u.RawQuery = query.Encode()
	options, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	if options.DialerRetries == 0 {
		options.DialerRetries = 1 // each command is tried again as a whole
	}
	s := &stream{redis.NewClient(options), key}
	if err := s.durable(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the Redis server at %s: %w", options.Addr, err), s.close())
	}
	return s, nil
}

// durable returns an error if the server does not write each entry to its disk before it answers. A server that does not say, as
// those of clouds, is believed to.
func (s *stream) durable(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return err
	}
	config, err := s.client.ConfigGet(ctx, "append*").Result()
	if err != nil {
		return nil // it does not say
	}
	for name, want := range map[string]string{"appendonly": "yes", "appendfsync": "always"} {
		if got := config[name]; got != "" && got != want {
			return fmt.Errorf("expected %s %s, as it would lose jobs; found %s", name, want, got)
		}
	}
	return nil
}

func (s *stream) append(ctx context.Context, records []record) error {
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error { // all of them, or none
		for i := range records {
			r := &records[i]
			job, err := json.Marshal(&r.job)
			if err != nil {
				return err
			}
			p.XAdd(ctx, &redis.XAddArgs{Stream: s.key, Values: []any{"id", r.job.ID, "job", job, "embedder", r.embedder, "vector", r.vector}})
		}
		return nil
	})
	return err
}

// each calls do for every entry after a place, and returns the place after the last.
func (s *stream) each(ctx context.Context, after string, do func(place string, r record) error) (string, error) {
	for {
		from := "-"
		if after != "" {
			from = "(" + after
		}
		entries, err := s.client.XRangeN(ctx, s.key, from, "+", page).Result()
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			field := func(name string) string { text, _ := e.Values[name].(string); return text }
			r := record{embedder: field("embedder"), vector: []byte(field("vector"))}
			if r.job, err = decodeJob(field("id"), []byte(field("job")), r.vector); err == nil {
				err = do(e.ID, r)
			}
			if err != nil {
				return "", err
			}
			after = e.ID
		}
		if len(entries) < page {
			return after, nil
		}
	}
}

func (s *stream) read(ctx context.Context, after string, yield func(record)) (string, error) {
	return s.each(ctx, after, func(_ string, r record) error {
		yield(r)
		return nil
	})
}

// keep also removes the older entries of replaced jobs.
func (s *stream) keep(ctx context.Context, n int) error {
	type entryOf struct {
		place string
		e     *entry
	}
	last := map[string]entryOf{}
	var gone []string
	_, err := s.each(ctx, "", func(place string, r record) error {
		if old, replaced := last[r.job.ID]; replaced {
			gone = append(gone, old.place)
		}
		last[r.job.ID] = entryOf{place, &entry{Job: r.job}}
		return nil
	})
	if err != nil {
		return err
	}
	var kept []entryOf
	for _, k := range last {
		kept = append(kept, k)
	}
	slices.SortFunc(kept, func(a, b entryOf) int { return byEnd(a.e, b.e) })
	for _, k := range kept[:max(0, len(kept)-n)] {
		gone = append(gone, k.place)
	}
	for part := range slices.Chunk(gone, page) {
		if err := s.client.XDel(ctx, s.key, part...).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) close() error { return s.client.Close() }
