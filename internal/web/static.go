package web

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed static
var files embed.FS

// policy of content: the page loads its own files and connects to its own origin, runs no text as a program, and is in
// no frame.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// static serves the files of the page. Without a token they show nothing but a form.
func static() http.Handler {
	inside, _ := fs.Sub(files, "static") // the folder is embedded
	return http.FileServerFS(inside)
}

// secured sets the headers with which a browser keeps other sites out, on every answer.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      contentPolicy,
			"Cache-Control":                "no-cache",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
			"Referrer-Policy":              "no-referrer",
			"X-Content-Type-Options":       "nosniff",
		} {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}
