package vmnode

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Serve serves files and commands of this machine, to holders of a certificate of the cluster, until it fails:
//
//	GET    /files/PATH   the content of a file, or the names in a directory, one a line
//	PUT    /files/PATH   write the body into a file, which is made if it is missing
//	DELETE /files/PATH   remove a file
//	POST   /run          a command and its arguments as a JSON list; its output, and how it ended in the trailer Exit
//	POST   /watch        a [Watch] in JSON; the changes that it saw, as a JSON list
//	POST   /first        a [First] in JSON; the content that it read
func Serve() error {
	ca, err := os.ReadFile(CA)
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files/", answer(readFile))
	mux.HandleFunc("PUT /files/", answer(writeFile))
	mux.HandleFunc("DELETE /files/", answer(removeFile))
	mux.HandleFunc("POST /run", runCommand)
	mux.HandleFunc("POST /watch", answer(watch))
	mux.HandleFunc("POST /first", answer(first))
	server := &http.Server{
		Addr: fmt.Sprintf(":%d", controlPort), Handler: mux, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert},
	}
	return server.ListenAndServeTLS(Cert, Key)
}

// answer makes a handler of a function that returns the body.
func answer(f func(*http.Request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := f(r)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			_, _ = w.Write(body) // a client that has gone does not matter
		}
	}
}

func pathOf(r *http.Request) string { return r.URL.Path[len("/files"):] }

func readFile(r *http.Request) ([]byte, error) {
	entries, err := os.ReadDir(pathOf(r))
	if err != nil {
		return os.ReadFile(pathOf(r))
	}
	var names []byte
	for _, e := range entries {
		names = fmt.Appendln(names, e.Name())
	}
	return names, nil
}

func writeFile(r *http.Request) ([]byte, error) {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(pathOf(r)), 0o755); err != nil {
		return nil, err
	}
	return nil, os.WriteFile(pathOf(r), content, 0o644)
}

func removeFile(r *http.Request) ([]byte, error) { return nil, os.Remove(pathOf(r)) }

func runCommand(w http.ResponseWriter, r *http.Request) {
	var args []string
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil || len(args) == 0 {
		http.Error(w, "the body is a command and its arguments, as a list", http.StatusBadRequest)
		return
	}
	w.Header().Set("Trailer", "Exit")
	c := exec.CommandContext(r.Context(), args[0], args[1:]...)
	c.Stdout, c.Stderr = w, w
	how := ""
	if err := c.Run(); err != nil {
		how = err.Error()
	}
	w.Header().Set("Exit", how)
}

func watch(r *http.Request) ([]byte, error) {
	var what Watch
	if err := json.NewDecoder(r.Body).Decode(&what); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := json.NewEncoder(&out).Encode(what.Run(r.Context()))
	return out.Bytes(), err
}

func first(r *http.Request) ([]byte, error) {
	var what First
	if err := json.NewDecoder(r.Body).Decode(&what); err != nil {
		return nil, err
	}
	return []byte(what.Run(r.Context())), nil
}
