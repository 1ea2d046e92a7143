package yarn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// AppState is the state of an application.
type AppState string

// The states of an application.
const (
	AppNew       AppState = "NEW"
	AppNewSaving AppState = "NEW_SAVING"
	AppSubmitted AppState = "SUBMITTED"
	AppAccepted  AppState = "ACCEPTED" // its master has not registered yet
	AppRunning   AppState = "RUNNING"
	AppFinished  AppState = "FINISHED"
	AppFailed    AppState = "FAILED"
	AppKilled    AppState = "KILLED"
)

// Ended reports whether the state is a last one.
func (s AppState) Ended() bool { return s == AppFinished || s == AppFailed || s == AppKilled }

// App is an application.
type App struct {
	ID          string
	Name        string
	User        string
	Queue       string // its path, such as root.default
	Type        string // such as MAPREDUCE
	Tags        string // separated by commas
	State       AppState
	FinalStatus string // UNDEFINED, SUCCEEDED, FAILED, KILLED or ENDED: what the application says of itself
	Diagnostics string
	Started     time.Time
	Finished    time.Time // zero while it runs
	MasterNode  string    // id of the node of its master; empty before it has one
	MasterLabel string    // node label that its master asked for; empty: the default partition, or the queue's default
	Label       string    // the same, of its other containers
	Containers  int       // that run, the master's included
	Allocated   Resource
	// Preempted counts containers that the ResourceManager took away, not the master's.
	Preempted       int
	PreemptedMaster int
}

type appJSON struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	User            string   `json:"user"`
	Queue           string   `json:"queue"`
	Type            string   `json:"applicationType"`
	Tags            string   `json:"applicationTags"`
	State           AppState `json:"state"`
	FinalStatus     string   `json:"finalStatus"`
	Diagnostics     string   `json:"diagnostics"`
	Started         number   `json:"startedTime"`
	Finished        number   `json:"finishedTime"`
	MasterNode      string   `json:"masterNodeId"`
	MasterLabel     string   `json:"amNodeLabelExpression"`
	Label           string   `json:"appNodeLabelExpression"`
	Containers      number   `json:"runningContainers"` // -1 when it has ended; so are the next two
	Memory          number   `json:"allocatedMB"`
	VCores          number   `json:"allocatedVCores"`
	Preempted       number   `json:"numNonAMContainerPreempted"`
	PreemptedMaster number   `json:"numAMContainerPreempted"`
}

func (j appJSON) app() (App, error) {
	if j.ID == "" {
		return App{}, errors.New("the ResourceManager lists an application without an id")
	}
	return App{
		ID: j.ID, Name: j.Name, User: j.User, Queue: j.Queue, Type: j.Type, Tags: j.Tags, State: j.State,
		FinalStatus: j.FinalStatus, Diagnostics: j.Diagnostics, Started: j.Started.time(), Finished: j.Finished.time(),
		MasterNode: j.MasterNode, MasterLabel: j.MasterLabel, Label: j.Label, Containers: int(max(j.Containers, 0)),
		Allocated: Resource{MemoryMiB: int64(max(j.Memory, 0)), VCores: int64(max(j.VCores, 0))},
		Preempted: int(j.Preempted), PreemptedMaster: int(j.PreemptedMaster),
	}, nil
}

// Apps returns the applications in these states, or all that the ResourceManager remembers if none is given.
func (c *RM) Apps(ctx context.Context, states ...AppState) ([]App, error) {
	var answer struct {
		Apps optional[struct {
			App list[appJSON] `json:"app"`
		}] `json:"apps"`
	}
	if err := c.get(ctx, "/apps", inStates(states), &answer); err != nil {
		return nil, err
	}
	var apps []App
	for _, j := range answer.Apps.v.App {
		a, err := j.app()
		if err != nil {
			return nil, err
		}
		apps = append(apps, a)
	}
	return apps, nil
}

// App returns the application with an id. The error is [ErrNotFound] if the ResourceManager does not know it.
func (c *RM) App(ctx context.Context, id string) (App, error) {
	var answer struct {
		App appJSON `json:"app"`
	}
	if err := c.get(ctx, "/apps/"+url.PathEscape(id), nil, &answer); err != nil {
		return App{}, err
	}
	return answer.App.app()
}

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
	return c.call(ctx, request{
		method: http.MethodPost, path: "/containers/" + url.PathEscape(id) + "/signal/" + string(signal),
	}, nil)
}

// Submission is an application to submit: a shell command that runs as its master. Unless the command registers with
// the ResourceManager, the application stays in the state ACCEPTED and fails when the command ends.
type Submission struct {
	Name        string
	Queue       string // by name, not by path
	Type        string
	Command     string
	Master      Resource // of the command's container
	MaxAttempts int      // how often the command may be started; 0: as the ResourceManager is configured
	// Label is the node label that all containers ask for. If it is empty, they go to the default partition, even if the
	// queue has a default label: the web service turns a missing label into an empty one, and an empty one is an answer.
	Label string
}

type submitJSON struct {
	ID          string `json:"application-id"`
	Name        string `json:"application-name"`
	Queue       string `json:"queue,omitempty"`
	Type        string `json:"application-type,omitempty"`
	MaxAttempts int    `json:"max-app-attempts,omitempty"`
	Label       string `json:"app-node-label-expression,omitempty"`
	MasterLabel string `json:"am-container-node-label-expression,omitempty"`
	Resource    struct {
		Memory int64 `json:"memory"`
		VCores int64 `json:"vCores"`
	} `json:"resource"`
	Container struct {
		Commands struct {
			Command string `json:"command"`
		} `json:"commands"`
	} `json:"am-container-spec"`
}

// Submit submits an application, and returns it as read back.
func (c *RM) Submit(ctx context.Context, s Submission) (App, error) {
	var made struct {
		ID string `json:"application-id"`
	}
	if err := c.call(ctx, request{method: http.MethodPost, path: "/apps/new-application"}, &made); err != nil {
		return App{}, err
	}
	if made.ID == "" {
		return App{}, errors.New("submitting an application: the ResourceManager gave no application id")
	}
	send := submitJSON{
		ID: made.ID, Name: s.Name, Queue: s.Queue, Type: s.Type, MaxAttempts: s.MaxAttempts,
		Label: s.Label, MasterLabel: s.Label,
	}
	send.Resource.Memory, send.Resource.VCores = s.Master.MemoryMiB, s.Master.VCores
	send.Container.Commands.Command = s.Command
	// Sent twice, the ResourceManager sees from the id that it is the same.
	if err := c.post(ctx, "/apps", send); err != nil {
		return App{}, err
	}
	var app App
	err := c.until(ctx, func() (bool, error) {
		var err error
		app, err = c.App(ctx, made.ID)
		if errors.Is(err, ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}, func() *NoEffectError {
		return &NoEffectError{"application " + made.ID, "the application", "no such application"}
	})
	return app, err
}

// Kill ends an application, and returns it as read back. An application that has ended already is left alone.
func (c *RM) Kill(ctx context.Context, id string) (App, error) {
	app, err := c.App(ctx, id)
	if err != nil || app.State.Ended() {
		return app, err
	}
	kill := request{
		method: http.MethodPut, path: "/apps/" + url.PathEscape(id) + "/state", body: map[string]AppState{"state": AppKilled},
	}
	if err := c.call(ctx, kill, nil); err != nil {
		return App{}, err
	}
	err = c.until(ctx, func() (bool, error) {
		app, err = c.App(ctx, id)
		return app.State.Ended(), err
	}, func() *NoEffectError {
		return &NoEffectError{fmt.Sprintf("the state of application %s", id), string(AppKilled), string(app.State)}
	})
	return app, err
}
