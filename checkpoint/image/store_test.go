package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// bucket opens a store in a bucket of a server in this process.
func bucket(t *testing.T, where string) *S3 {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"} {
		t.Setenv(name, value)
	}
	s, err := OpenS3(where)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stores(t *testing.T) map[string]Store {
	within := bucket(t, "s3://bucket/users/a")
	beside := *within
	beside.prefix = "users/ab/"
	if err := beside.Put(ctx, "images/other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	return map[string]Store{"folder": Dir(filepath.Join(t.TempDir(), "new")), "bucket": within}
}

// What a store has to do, each alike.
func TestStores(t *testing.T) {
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) { conforms(t, s) })
	}
}

func conforms(t *testing.T, s Store) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(ctx, "images/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an object that is not there: %v", err)
	}
	if all, err := s.List(ctx, ""); err != nil || len(all) > 0 {
		t.Errorf("an empty store: %v, %v", all, err)
	}
	must(s.Delete(ctx, "images/none"))
	content := map[string][]byte{"images/b.name-1": []byte("b"), "images/a": []byte("aa"), "regions/ff/ff00": noise(1, 5<<20), "store.json": []byte("{}")}
	for object, data := range content {
		must(s.Put(ctx, object, []byte("before")))
		must(s.Put(ctx, object, data))
	}
	for object, want := range content {
		if got, err := s.Get(ctx, object); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; expected %d", object, len(got), err, len(want))
		}
		if has, err := s.Has(ctx, object); err != nil || !has {
			t.Errorf("%s: %v, %v", object, has, err)
		}
	}
	for prefix, want := range map[string][]Object{
		"":          {{"images/a", 2}, {"images/b.name-1", 1}, {"regions/ff/ff00", 5 << 20}, {"store.json", 2}},
		"images/":   {{"images/a", 2}, {"images/b.name-1", 1}},
		"images/b":  {{"images/b.name-1", 1}},
		"leases/":   nil,
		"regions/f": {{"regions/ff/ff00", 5 << 20}},
	} {
		if got, err := s.List(ctx, prefix); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; expected %v", prefix, got, err, want)
		}
	}
	must(s.Delete(ctx, "images/a"))
	if has, err := s.Has(ctx, "images/a"); err != nil || has {
		t.Errorf("a deleted object: %v, %v", has, err)
	}
	interrupted, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Put(interrupted, "images/c", []byte("c")); err == nil {
		t.Error("an interrupted caller writes")
	}
	// Writers of one name at the same time: one of them is there, as a whole.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := s.Put(ctx, "images/d", bytes.Repeat([]byte{byte(i)}, 10000)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := s.Get(ctx, "images/d"); err != nil || len(got) != 10000 || !bytes.Equal(got, bytes.Repeat(got[:1], 10000)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Images in a bucket: saved, restored, deleted and collected as in a folder.
func TestImagesInBucket(t *testing.T) {
	s := bucket(t, "s3://bucket")
	im, err := Open(ctx, s, key(t, "a"), true)
	if err != nil {
		t.Fatal(err)
	}
	want := data(noise(1, 40*RegionBytes), make([]byte, 3*RegionBytes), []byte("end"))
	saved := save(t, im, want, want)
	if float64(saved.Written) > 0.55*float64(saved.Bytes) {
		t.Errorf("%d bytes for %d", saved.Written, saved.Bytes)
	}
	if err := im.Verify(ctx, saved.Entry); err != nil {
		t.Error(err)
	}
	if sum, err := im.Collect(ctx, false); err != nil || sum.Regions != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
	if err := im.Delete(ctx, saved.Entry); err != nil {
		t.Fatal(err)
	}
	if sum, err := im.Collect(ctx, false); err != nil || sum.Regions != 42 {
		t.Errorf("%+v, %v", sum, err)
	}
	if left, err := names(s, ""); err != nil || fmt.Sprint(left) != "[store.json]" {
		t.Errorf("%v, %v", left, err)
	}
	elsewhere := *s
	elsewhere.bucket = "none"
	if _, err := Open(ctx, &elsewhere, nil, true); err == nil || !strings.Contains(err.Error(), "bucket does not exist") {
		t.Error(err)
	}
}

func TestAddressesOfBuckets(t *testing.T) {
	for _, bad := range []string{"s3://", "s3:///x", "http://bucket", "s3://user@bucket", "s3://bucket?x=1", "s3://bucket/%zz"} {
		if _, err := OpenS3(bad); err == nil {
			t.Errorf("%s is a store", bad)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL", "localhost:9000")
	if _, err := OpenS3("s3://bucket"); err == nil || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL") {
		t.Error(err)
	}
}
