package yarn

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
)

// readInterval is the time between the first attempts to make the ResourceManager read the exclude file. An attempt can
// take callTimeout.
const readInterval = 30 * time.Second

// Files guards the exclude files of all pools, of which two may have the same one.
type Files struct{ mu sync.Mutex }

// Edit changes a file. The reason names the cause of an error.
func (f *Files) Edit(
	file yarn.ExcludeFile, add map[string]time.Duration, remove map[string]bool,
) (reason string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := file.Read()
	if err != nil {
		return "Unreadable", err
	}
	next, err := file.With(content, add, remove)
	if err != nil {
		return "Unreadable", err
	}
	if string(next) == string(content) {
		return "", nil
	}
	return "NotWritable", file.Write(next)
}

// Exclude makes all changes of an exclude file in a round: it adds hosts, with the time in which their NodeManagers
// drain, removes others, and has the file read. The reason names the cause of an error.
func (a *Actor) Exclude(
	ctx context.Context, files *Files, file yarn.ExcludeFile, add map[string]time.Duration, remove map[string]bool,
) (reason string, err error) {
	if reason, err := files.Edit(file, add, remove); err != nil {
		return reason, err
	}
	if a.unread == nil {
		a.unread = map[string]bool{}
	}
	for host := range add {
		a.unread[host] = true
	}
	maps.Copy(a.unread, remove)
	if err := a.readExcludes(ctx); err != nil {
		return "NotRead", err
	}
	clear(a.unread)
	return "", nil
}

// Hear notes that the ResourceManager was told a time for a worker, and confirmed it.
func (a *Actor) Hear(worker string, at time.Time) { a.heard[worker] = at }

// ReadOnce makes the ResourceManager read its exclude file once, because the manager before this one may have been
// killed after it had written it.
func (a *Actor) ReadOnce(ctx context.Context, now time.Time) error {
	if a.unread != nil {
		return nil
	}
	if now.Sub(a.tried) >= readInterval {
		a.tried, a.err = now, a.readExcludes(ctx)
	}
	if a.err == nil {
		a.unread = map[string]bool{}
	}
	return a.err
}

// Unread reports whether the entry of a host changed, and the ResourceManager is not known to have read that.
func (a *Actor) Unread(host string) bool { return a.unread[host] }

// readExcludes has the file read. Hosts without a time of their own may be those of others, so no time is sent.
func (a *Actor) readExcludes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := a.Cluster.Admin.RefreshNodesGracefully(ctx, yarn.ConfiguredTimeout); err != nil {
		return fmt.Errorf("the ResourceManager did not read the exclude file; check spec.yarn.admins, and that "+
			"spec.yarn.user is in yarn.admin.acl: %w", err)
	}
	return nil
}
