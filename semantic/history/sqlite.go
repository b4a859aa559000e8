package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"

	_ "modernc.org/sqlite" // the driver "sqlite", which needs no C compiler
)

// sqlite is a journal in a SQLite file. Several processes of a machine may use it at a time.
type sqlite struct{ db *sql.DB }

// schemaVersion is what PRAGMA user_version says of a file that this code can read.
const schemaVersion = 1

// schema creates the table. A sequence number is never used again, so that readers notice replaced jobs as new ones.
const schema = `
CREATE TABLE IF NOT EXISTS jobs (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL UNIQUE,
	ended INTEGER NOT NULL, -- ns since 1970
	job TEXT NOT NULL,      -- JSON
	embedder TEXT NOT NULL,
	vector BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS jobs_by_end ON jobs (ended, id);`

func openSQLite(ctx context.Context, file string) (*sqlite, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	// A transaction is durable when it is committed (FULL), readers do not wait for writers (WAL), and writers wait for each
	// other from the beginning of a transaction.
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: url.Values{
		"_pragma": {"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	s := &sqlite{db}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), db.Close())
	}
	return s, nil
}

// prepare creates the table of a new file, and refuses a file that is something else.
func (s *sqlite) prepare(ctx context.Context) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		var version, tables int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return err
		}
		switch {
		case version == schemaVersion:
			return nil
		case version != 0 || tables > 0:
			return fmt.Errorf("expected a history of version %d; found another SQLite file, of version %d", schemaVersion, version)
		}
		if _, err := tx.ExecContext(ctx, schema); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
		return err
	})
}

// change runs a transaction.
func (s *sqlite) change(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (s *sqlite) append(ctx context.Context, records []record) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, "INSERT OR REPLACE INTO jobs (id, ended, job, embedder, vector) VALUES (?, ?, ?, ?, ?)")
		if err != nil {
			return err
		}
		defer insert.Close()
		for i := range records {
			r := &records[i]
			job, err := json.Marshal(&r.job)
			if err != nil {
				return err
			}
			vector := r.vector
			if vector == nil {
				vector = []byte{}
			}
			if _, err := insert.ExecContext(ctx, r.job.ID, r.job.End.UnixNano(), string(job), r.embedder, vector); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) read(ctx context.Context, after string, yield func(record)) (string, error) {
	seq, _ := strconv.ParseInt(after, 10, 64)
	rows, err := s.db.QueryContext(ctx, "SELECT seq, id, job, embedder, vector FROM jobs WHERE seq > ? ORDER BY seq", seq)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			id  string
			job []byte
			r   record
		)
		if err := rows.Scan(&seq, &id, &job, &r.embedder, &r.vector); err != nil {
			return "", err
		}
		if r.job, err = decodeJob(id, job, r.vector); err != nil {
			return "", err
		}
		yield(r)
	}
	return strconv.FormatInt(seq, 10), rows.Err()
}

// decodeJob reads a job that a journal kept.
func decodeJob(id string, text, vector []byte) (Job, error) {
	var j Job
	err := json.Unmarshal(text, &j)
	if err == nil {
		err = valid(vector)
	}
	if err == nil && j.ID != id {
		err = fmt.Errorf("it calls itself %q", j.ID)
	}
	if err == nil {
		err = j.Check()
	}
	if err != nil {
		return j, fmt.Errorf("the record of job %s: %w", id, err)
	}
	return j, nil
}

func (s *sqlite) keep(ctx context.Context, n int) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM jobs WHERE (ended, id) <= (SELECT ended, id FROM jobs ORDER BY ended DESC, id DESC LIMIT 1 OFFSET ?)`, n)
	return err
}

func (s *sqlite) close() error { return s.db.Close() }
