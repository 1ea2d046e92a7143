package yarn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
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
	Allocated   yarn.Resource
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
	Started         int64    `json:"startedTime"`
	Finished        int64    `json:"finishedTime"`
	MasterNode      string   `json:"masterNodeId"`
	MasterLabel     string   `json:"amNodeLabelExpression"`
	Label           string   `json:"appNodeLabelExpression"`
	Containers      int64    `json:"runningContainers"` // -1 when it has ended; so are the next two
	Memory          int64    `json:"allocatedMB"`
	VCores          int64    `json:"allocatedVCores"`
	Preempted       int64    `json:"numNonAMContainerPreempted"`
	PreemptedMaster int64    `json:"numAMContainerPreempted"`
}

func (j appJSON) app() (App, error) {
	if j.ID == "" {
		return App{}, errors.New("the ResourceManager lists an application without an id")
	}
	return App{
		ID: j.ID, Name: j.Name, User: j.User, Queue: j.Queue, Type: j.Type, Tags: j.Tags, State: j.State,
		FinalStatus: j.FinalStatus, Diagnostics: j.Diagnostics, Started: timeOf(j.Started), Finished: timeOf(j.Finished),
		MasterNode: j.MasterNode, MasterLabel: j.MasterLabel, Label: j.Label, Containers: int(max(j.Containers, 0)),
		Allocated: yarn.Resource{MemoryMiB: max(j.Memory, 0), VCores: max(j.VCores, 0)},
		Preempted: int(j.Preempted), PreemptedMaster: int(j.PreemptedMaster),
	}, nil
}

// timeOf returns the time that a number of milliseconds since 1970 stands for; the zero time for 0.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Apps returns the applications in these states, or all that the ResourceManager remembers if none is given.
func Apps(ctx context.Context, rm *yarn.RM, states ...AppState) ([]App, error) {
	var answer struct {
		Apps struct {
			App []appJSON `json:"app"`
		} `json:"apps"`
	}
	if err := rm.Do(ctx, http.MethodGet, "/apps", nil, &answer); err != nil {
		return nil, err
	}
	var apps []App
	for _, j := range answer.Apps.App {
		if len(states) > 0 && !slices.Contains(states, j.State) {
			continue
		}
		a, err := j.app()
		if err != nil {
			return nil, err
		}
		apps = append(apps, a)
	}
	return apps, nil
}

// AppByID returns the application with an id. The error is [yarn.ErrNotFound] if the ResourceManager does not know it.
func AppByID(ctx context.Context, rm *yarn.RM, id string) (App, error) {
	var answer struct {
		App appJSON `json:"app"`
	}
	if err := rm.Do(ctx, http.MethodGet, "/apps/"+url.PathEscape(id), nil, &answer); err != nil {
		return App{}, err
	}
	return answer.App.app()
}

// Submission is an application to submit: a shell command that runs as its master. Unless the command registers with
// the ResourceManager, the application stays in the state ACCEPTED and fails when the command ends.
type Submission struct {
	Name        string
	Queue       string // by name, not by path
	Type        string
	Command     string
	Master      yarn.Resource // of the command's container
	MaxAttempts int           // how often the command may be started; 0: as the ResourceManager is configured
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
func Submit(ctx context.Context, rm *yarn.RM, s Submission) (App, error) {
	var made struct {
		ID string `json:"application-id"`
	}
	if err := rm.Do(ctx, http.MethodPost, "/apps/new-application", nil, &made); err != nil {
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
	if err := rm.Do(ctx, http.MethodPost, "/apps", send, nil); err != nil {
		return App{}, err
	}
	return readBack(ctx, rm, made.ID, "the application", func(App) bool { return true })
}

// Kill ends an application, and returns it as read back. An application that has ended already is left alone.
func Kill(ctx context.Context, rm *yarn.RM, id string) (App, error) {
	app, err := AppByID(ctx, rm, id)
	if err != nil || app.State.Ended() {
		return app, err
	}
	body := map[string]AppState{"state": AppKilled}
	if err := rm.Do(ctx, http.MethodPut, "/apps/"+url.PathEscape(id)+"/state", body, nil); err != nil {
		return App{}, err
	}
	return readBack(ctx, rm, id, string(AppKilled), func(a App) bool { return a.State.Ended() })
}

// readBack returns an application once it exists and is as wanted. It waits for 5 s at most.
func readBack(ctx context.Context, rm *yarn.RM, id, want string, is func(App) bool) (App, error) {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		app, err := AppByID(ctx, rm, id)
		switch {
		case err != nil && !errors.Is(err, yarn.ErrNotFound):
			return app, fmt.Errorf("reading back: %w", err)
		case err == nil && is(app):
			return app, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-within.Done():
			return app, &yarn.NoEffectError{What: "application " + id, Want: want, Have: string(app.State)}
		}
	}
}

// Resize gives a node, host:port, a new total, as [yarn.RM.SendResize] does, and returns the node as read back. A node
// that has that total already is left alone.
func Resize(
	ctx context.Context, rm *yarn.RM, id string, total yarn.Resource, overCommit time.Duration,
) (yarn.Node, error) {
	node, err := rm.Node(ctx, id)
	if err != nil || node.Total == total {
		return node, err
	}
	if err := rm.SendResize(ctx, id, total, overCommit); err != nil {
		return yarn.Node{}, err
	}
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		node, err := rm.Node(ctx, id)
		switch {
		case err != nil:
			return node, fmt.Errorf("reading back: %w", err)
		case node.Total == total && (node.Settled() || node.State != yarn.NodeRunning):
			return node, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-within.Done():
			have := fmt.Sprintf("%v in state %s", node.Total, node.State)
			return node, &yarn.NoEffectError{What: "the total of node " + id, Want: total.String(), Have: have}
		}
	}
}

// ResizeNodes gives nodes, by host:port, new totals in one call, and returns when all are read back.
func ResizeNodes(
	ctx context.Context, admin *yarn.Admin, rm *yarn.RM, totals map[string]yarn.Resource, overCommit time.Duration,
) error {
	var all []yarn.NodeResize
	for id, total := range totals {
		all = append(all, yarn.NodeResize{ID: id, Total: total, OverCommit: overCommit})
	}
	if err := admin.SendResizes(ctx, all); err != nil {
		return err
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		nodes, err := rm.Nodes(ctx)
		have := map[string]yarn.Resource{}
		for _, n := range nodes {
			if _, changed := totals[n.ID]; changed && (n.Settled() || n.State != yarn.NodeRunning) {
				have[n.ID] = n.Total
			}
		}
		switch {
		case err != nil || maps.Equal(have, totals):
			return err
		case time.Now().After(deadline):
			return &yarn.NoEffectError{What: "totals of nodes", Want: fmt.Sprint(totals), Have: fmt.Sprint(have)}
		}
		time.Sleep(100 * time.Millisecond)
	}
}
