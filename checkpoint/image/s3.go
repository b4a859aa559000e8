package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 is a store in a bucket of an object store that speaks S3. It needs the consistency that
// S3 has had since 2020: what was put is found by the next get, and listed.
type S3 struct {
	client         *minio.Client
	bucket, prefix string
}

// OpenS3 opens the store s3://BUCKET or s3://BUCKET/PREFIX, with credentials as AWS's programs find
// them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else ~/.aws/credentials, else the
// machine's role. AWS_ENDPOINT_URL names another server than Amazon's, AWS_REGION its region.
func OpenS3(where string) (*S3, error) {
	u, err := url.Parse(where)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("expected s3://BUCKET/PREFIX; found %q", where)
	}
	endpoint := os.Getenv("AWS_ENDPOINT_URL")
	if endpoint == "" {
		endpoint = "https://s3.amazonaws.com"
	}
	server, err := url.Parse(endpoint)
	if err != nil || server.Scheme != "http" && server.Scheme != "https" || server.Host == "" || strings.Trim(server.Path, "/") != "" {
		return nil, fmt.Errorf("AWS_ENDPOINT_URL: expected https://HOST or http://HOST; found %q", endpoint)
	}
	client, err := minio.New(server.Host, &minio.Options{
		Creds:      credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{}}),
		Secure:     server.Scheme == "https",
		Region:     os.Getenv("AWS_REGION"),
		MaxRetries: 5,
	})
	if err != nil {
		return nil, err
	}
	s := &S3{client: client, bucket: u.Host, prefix: strings.Trim(u.Path, "/")}
	if s.prefix != "" {
		s.prefix += "/"
	}
	return s, nil
}

// missing makes an error about an object that is not there fs.ErrNotExist. A bucket that is not there stays an error.
func missing(err error) error {
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return fs.ErrNotExist
	}
	return err
}

// Put writes an object in one request: it is there as a whole, or not at all.
func (s *S3) Put(ctx context.Context, object string, data []byte) error {
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+object, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{DisableMultipart: true, SendContentMd5: true})
	return err
}

// Get reads an object; fs.ErrNotExist if there is none.
func (s *S3) Get(ctx context.Context, object string) ([]byte, error) {
	o, err := s.client.GetObject(ctx, s.bucket, s.prefix+object, minio.GetObjectOptions{})
	if err != nil {
		return nil, missing(err)
	}
	defer o.Close()
	data, err := io.ReadAll(o)
	if err != nil {
		return nil, missing(err)
	}
	return data, nil
}

// Has says whether an object is there.
func (s *S3) Has(ctx context.Context, object string) (bool, error) {
	_, err := s.client.StatObject(ctx, s.bucket, s.prefix+object, minio.StatObjectOptions{})
	if err = missing(err); err == fs.ErrNotExist {
		return false, nil
	}
	return err == nil, err
}

// List returns the objects whose names begin with the prefix, in ascending order.
func (s *S3) List(ctx context.Context, prefix string) ([]Object, error) {
	var found []Object
	ctx, cancel := context.WithCancel(ctx) // ends the listing where this returns early
	defer cancel()
	for o := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, o.Err
		}
		found = append(found, Object{strings.TrimPrefix(o.Key, s.prefix), o.Size})
	}
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return found, ctx.Err()
}

// Delete removes an object, if there is one.
func (s *S3) Delete(ctx context.Context, object string) error {
	return s.client.RemoveObject(ctx, s.bucket, s.prefix+object, minio.RemoveObjectOptions{})
}
