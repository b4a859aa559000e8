package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"

	_ "modernc.org/sqlite" // the driver "sqlite", which needs no C compiler
)

// sqliteVersion is what PRAGMA user_version says of a file that this code can read.
const sqliteVersion = 1

const sqliteSchema = `
CREATE TABLE jobs (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL UNIQUE,
	ended INTEGER NOT NULL, -- ns since 1970
	job TEXT NOT NULL,      -- JSON
	embedder TEXT NOT NULL,
	vector BLOB NOT NULL
);
CREATE INDEX jobs_by_end ON jobs (ended, id);`

// openSQLite opens a file, which several processes of a machine may use at a time.
func openSQLite(ctx context.Context, file string) (*database, error) {
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
	d := newDatabase(db, "jobs", "", func(n int) string { return "?" + strconv.Itoa(n) })
	if err := prepareSQLite(ctx, d); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), db.Close())
	}
	return d, nil
}

// prepareSQLite creates the table of a new file, and refuses a file that is something else.
func prepareSQLite(ctx context.Context, d *database) error {
	return d.change(ctx, func(tx *sql.Tx) error {
		var version, tables int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return err
		}
		switch {
		case version == sqliteVersion:
			return nil
		case version != 0 || tables > 0:
			return fmt.Errorf("expected a history of version %d; found another SQLite file, of version %d", sqliteVersion, version)
		}
		if _, err := tx.ExecContext(ctx, sqliteSchema); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", sqliteVersion))
		return err
	})
}
