package vmnode

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

// Client talks to the server in a node.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client of the node that is reached at an address, with a certificate of its cluster.
func NewClient(address, caFile, certFile, keyFile string) (*Client, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of a client: %w", err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}},
	}
	return &Client{fmt.Sprintf("https://%s:%d", address, controlPort), &http.Client{Transport: transport}}, nil
}

// do asks and returns the answer's body and trailer.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader) ([]byte, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("asking the node: %w", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return content, nil, fmt.Errorf("asking the node: %w", err)
	case response.StatusCode == http.StatusNotFound:
		return nil, nil, fmt.Errorf("%w: %s", fs.ErrNotExist, path)
	case response.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("asking the node: %s", bytes.TrimSpace(content))
	}
	return content, response.Trailer, nil
}

// ReadFile returns the content of a file, or the names in a directory, one a line.
func (c *Client) ReadFile(ctx context.Context, path string) ([]byte, error) {
	content, _, err := c.do(ctx, http.MethodGet, "/files"+path, nil)
	return content, err
}

// WriteFile writes a file.
func (c *Client) WriteFile(ctx context.Context, path string, content []byte) error {
	_, _, err := c.do(ctx, http.MethodPut, "/files"+path, bytes.NewReader(content))
	return err
}

// Remove removes a file.
func (c *Client) Remove(ctx context.Context, path string) error {
	_, _, err := c.do(ctx, http.MethodDelete, "/files"+path, nil)
	return err
}

// Run runs a command and returns what it prints. That it fails is an error.
func (c *Client) Run(ctx context.Context, args ...string) (string, error) {
	body, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	out, trailer, err := c.do(ctx, http.MethodPost, "/run", bytes.NewReader(body))
	if how := trailer.Get("Exit"); err == nil && how != "" {
		err = errors.New(how)
	}
	if err != nil {
		return string(out), fmt.Errorf("running %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// Watch runs a watch in the node.
func (c *Client) Watch(ctx context.Context, w Watch) ([]Change, error) {
	body, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	answer, _, err := c.do(ctx, http.MethodPost, "/watch", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var changes []Change
	return changes, json.Unmarshal(answer, &changes)
}

// First waits in the node for a first process.
func (c *Client) First(ctx context.Context, f First) (string, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	content, _, err := c.do(ctx, http.MethodPost, "/first", bytes.NewReader(body))
	return string(content), err
}
