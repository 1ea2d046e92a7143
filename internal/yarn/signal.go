package yarn

import (
	"context"
	"net/http"
	"net/url"
)

// ContainerSignal is a signal to a container by the name that the ResourceManager has for it.
type ContainerSignal string

// The signals that end a container.
const (
	GracefulShutdown ContainerSignal = "GRACEFUL_SHUTDOWN" // SIGTERM
	ForcefulShutdown ContainerSignal = "FORCEFUL_SHUTDOWN" // SIGKILL
)

// SignalContainer requests a signal to a container. The NodeManager receives the request with its next heartbeat, and
// has its container executor signal the processes. No answer says whether it did. The caller must be in
// yarn.admin.acl, if yarn.acl.enable is true. A container that does not run is answered with status 500.
func (c *RM) SignalContainer(ctx context.Context, id string, signal ContainerSignal) error {
	return c.Do(ctx, http.MethodPost, "/containers/"+url.PathEscape(id)+"/signal/"+string(signal), nil, nil)
}
