package web

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
)

// encoded is JSON that is ready to be sent, and the same compressed; nil: it is compressed when it is sent.
type encoded struct{ plain, zipped []byte }

// send answers with JSON. A caller that has the same already gets no body.
func send(w http.ResponseWriter, r *http.Request, value any) {
	e, ready := value.(*encoded)
	if !ready {
		plain, err := json.Marshal(value)
		if err != nil { // no type here can fail
			refuse(w, problem{http.StatusInternalServerError, "The answer cannot be encoded: " + err.Error()})
			return
		}
		e = &encoded{plain: plain}
	}
	h := fnv.New64a()
	_, _ = h.Write(e.plain) // never fails
	tag := `"` + strconv.FormatUint(h.Sum64(), 36) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Vary", "Accept-Encoding, Authorization")
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	body := e.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && len(body) > 1<<10 {
		w.Header().Set("Content-Encoding", "gzip")
		if body = e.zipped; body == nil {
			body = zip(e.plain)
		}
	}
	_, _ = w.Write(body) // the caller has left
}

func zip(plain []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(plain)                           // memory takes everything
	_ = z.Close()
	return b.Bytes()
}
