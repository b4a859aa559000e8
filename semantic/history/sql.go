package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
)

// database is a journal in a SQL database: a table with a sequence number, which is never used again, so that readers notice
// replaced jobs as new ones. Transactions that append are committed in the order of their numbers, so that a reader that has
// seen a number has seen all before it.
type database struct {
	db *sql.DB
	// begin is what a transaction that appends starts with; insert, remove, since and reduce are the statements.
	begin                         string
	insert, remove, since, reduce string
}

// newDatabase returns a journal in the table of that name. arg says how the driver spells an argument, by its number.
func newDatabase(db *sql.DB, table, begin string, arg func(int) string) *database {
	return &database{
		db: db, begin: begin,
		insert: fmt.Sprintf("INSERT INTO %s (id, ended, job, embedder, vector) VALUES (%s, %s, %s, %s, %s)", table, arg(1), arg(2), arg(3), arg(4), arg(5)),
		remove: fmt.Sprintf("DELETE FROM %s WHERE id = %s", table, arg(1)),
		since:  fmt.Sprintf("SELECT seq, id, job, embedder, vector FROM %s WHERE seq > %s ORDER BY seq", table, arg(1)),
		reduce: fmt.Sprintf("DELETE FROM %s WHERE (ended, id) <= (SELECT ended, id FROM %[1]s ORDER BY ended DESC, id DESC LIMIT 1 OFFSET %s)", table, arg(1)),
	}
}

// change runs a transaction.
func (d *database) change(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if d.begin != "" {
		_, err = tx.ExecContext(ctx, d.begin)
	}
	if err == nil {
		err = do(tx)
	}
	if err != nil {
		_ = tx.Rollback() // it says nothing that err does not
		return err
	}
	return tx.Commit()
}

func (d *database) append(ctx context.Context, records []record) error {
	return d.change(ctx, func(tx *sql.Tx) error {
		remove, err := tx.PrepareContext(ctx, d.remove)
		if err != nil {
			return err
		}
		defer remove.Close()
		insert, err := tx.PrepareContext(ctx, d.insert)
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
			if _, err := remove.ExecContext(ctx, r.job.ID); err != nil {
				return err
			}
			if _, err := insert.ExecContext(ctx, r.job.ID, r.job.End.UnixNano(), string(job), r.embedder, vector); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *database) read(ctx context.Context, after string, yield func(record)) (string, error) {
	seq, _ := strconv.ParseInt(after, 10, 64)
	rows, err := d.db.QueryContext(ctx, d.since, seq)
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
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			return "", fmt.Errorf("the record after number %d cannot be read: it is damaged", seq)
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
		err = j.valid()
	}
	if err != nil {
		return j, fmt.Errorf("the record of job %s: %w", id, err)
	}
	return j, nil
}

func (d *database) keep(ctx context.Context, n int) error {
	_, err := d.db.ExecContext(ctx, d.reduce, n)
	return err
}

func (d *database) close() error { return d.db.Close() }
