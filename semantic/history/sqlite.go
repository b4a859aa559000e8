package history

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"modernc.org/sqlite" // the driver "sqlite", which needs no C compiler
	sqlite3 "modernc.org/sqlite/lib"
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

// file is a journal in a SQLite file, which several processes of a machine may use at a time. The first job that is appended creates
// the file: what only asks, or fails before, leaves none behind.
type file struct {
	path string

	mu sync.Mutex
	db *database // nil as long as there is no file
}

// openSQLite opens a file, which need not be there yet unless it must exist.
func openSQLite(ctx context.Context, path string, existing bool) (*file, error) {
	f := &file{path: path}
	db, err := f.database(ctx, false)
	switch {
	case err != nil:
		return nil, err
	case db != nil:
		return f, nil
	case existing:
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	// A long run must not find at its end that it cannot write.
	probe, err := os.CreateTemp(filepath.Dir(path), ".muster-*")
	if err != nil {
		return nil, fmt.Errorf("%s: expected a folder that can be written; found: %w", path, cause(err))
	}
	return f, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// cause returns an error without the operation and the file.
func cause(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// database returns the database, nil if there is none and it is not to be created. An empty file is none.
func (f *file) database(ctx context.Context, create bool) (*database, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db != nil {
		return f.db, nil
	}
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%s: %w", f.path, cause(err))
	case info.IsDir():
		return nil, fmt.Errorf("%s: expected a file; found a folder", f.path)
	}
	if !create && (err != nil || info.Size() == 0) {
		return nil, nil
	}
	err = patiently(ctx, func() error {
		f.db, err = connectSQLite(ctx, f.path)
		return err
	})
	return f.db, f.inWords(err)
}

// patiently does something again while another process writes to the file: until the context is done, or for as long as [patience].
// SQLite would wait as long by itself, but not end when the context does.
func patiently(ctx context.Context, do func() error) error {
	for end := time.Now().Add(patience); ; {
		err := do()
		e := (*sqlite.Error)(nil)
		if !errors.As(err, &e) || e.Code()&0xff != sqlite3.SQLITE_BUSY || time.Now().After(end) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (f *file) append(ctx context.Context, records []record) error {
	db, err := f.database(ctx, true)
	if err != nil {
		return err
	}
	return f.inWords(patiently(ctx, func() error { return db.append(ctx, records) }))
}

func (f *file) read(ctx context.Context, after string, yield func(record)) (string, error) {
	db, err := f.database(ctx, false)
	if db == nil || err != nil {
		return "", err
	}
	var place string
	var late error // after a record was read, nothing is read again
	err = patiently(ctx, func() (err error) {
		begun := false
		place, err = db.read(ctx, after, func(r record) { begun = true; yield(r) })
		if begun {
			late, err = err, nil
		}
		return err
	})
	return place, f.inWords(cmp.Or(err, late))
}

func (f *file) keep(ctx context.Context, n int) error {
	db, err := f.database(ctx, false)
	if db == nil || err != nil {
		return err
	}
	return f.inWords(patiently(ctx, func() error { return db.keep(ctx, n) }))
}

func (f *file) close() error {
	if f.db == nil {
		return nil
	}
	return f.inWords(f.db.close())
}

// inWords names the file, and says what is wrong with it where SQLite says it in its own terms.
func (f *file) inWords(err error) error {
	if err == nil {
		return nil
	}
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		switch e.Code() & 0xff { // the others are refinements of these
		case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR:
			err = errors.New("expected a history; found a file that is damaged, or something else")
		case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
			err = errors.New("the file cannot be opened")
		case sqlite3.SQLITE_READONLY:
			err = errors.New("the file, or its folder, cannot be written")
		case sqlite3.SQLITE_FULL:
			err = errors.New("the disk is full")
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			err = fmt.Errorf("another process has been writing to the file for %v", patience)
		case sqlite3.SQLITE_IOERR:
			err = errors.New("the disk reports an error")
		}
	}
	return fmt.Errorf("%s: %w", f.path, err)
}

// patience is how long a writer waits for another one, and turn how much of it SQLite waits by itself.
const (
	patience = 30 * time.Second
	turn     = 200 * time.Millisecond
)

// connectSQLite opens a file, or creates it.
func connectSQLite(ctx context.Context, file string) (*database, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	// A transaction is durable when it is committed (FULL), readers do not wait for writers (WAL), and writers wait for each
	// other from the beginning of a transaction.
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", turn.Milliseconds()), "journal_mode(WAL)", "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	d := newDatabase(db, "jobs", "", func(n int) string { return "?" + strconv.Itoa(n) })
	if err := prepareSQLite(ctx, d); err != nil {
		db.Close()
		return nil, err
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
