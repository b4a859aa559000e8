package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresTable has the version of its columns in its name.
const postgresTable = "muster_jobs_1"

const postgresSchema = `
CREATE TABLE IF NOT EXISTS muster_jobs_1 (
	seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id TEXT NOT NULL UNIQUE,
	ended BIGINT NOT NULL, -- ns since 1970
	job JSON NOT NULL,
	embedder TEXT NOT NULL,
	vector BYTEA NOT NULL
);
CREATE INDEX IF NOT EXISTS muster_jobs_1_by_end ON muster_jobs_1 (ended, id);`

// postgresLock lets one transaction that appends in at a time, and only then the next: sequence numbers are given out before a
// transaction is committed, and a reader must not pass one that is not. The server reports a commit when it is on the disk,
// whatever its configuration says.
const postgresLock = "SELECT pg_advisory_xact_lock(7815263911), set_config('synchronous_commit', 'on', true)"

// openPostgres opens the database of a URL, as libpq reads it, and creates the table if there is none.
func openPostgres(ctx context.Context, url string) (*database, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err // it does not show the password
	}
	db := stdlib.OpenDB(*config)
	d := newDatabase(db, postgresTable, postgresLock, func(n int) string { return "$" + strconv.Itoa(n) })
	err = d.change(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, postgresSchema)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("PostgreSQL at %s: %w", config.Host, err), db.Close())
	}
	return d, nil
}
