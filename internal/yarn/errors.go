package yarn

import (
	"errors"
	"fmt"
	"net/http"
)

// ErrNotFound is what a [StatusError] for status 404 is, by [errors.Is]: the node or application does not exist.
var ErrNotFound = errors.New("not found")

// ErrStandby is the answer of a ResourceManager that is not the active one.
var ErrStandby = errors.New("this ResourceManager is on standby")

// ErrNoActive is returned if no ResourceManager answered as the active one. The error says what each answered.
var ErrNoActive = errors.New("no active ResourceManager answered")

// StatusError is an answer with an HTTP status that is no success.
type StatusError struct {
	Method, URL string
	Status      int
	Exception   string // class name of the Java exception, if the answer has one
	Message     string // of the exception
	hint        string // what to do; may be empty
}

// Error says what was asked and what was answered.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s %s: status %d", e.Method, e.URL, e.Status)
	if e.Exception != "" {
		text += " " + e.Exception
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.hint != "" {
		text += "; " + e.hint
	}
	return text
}

// Is reports whether the target is [ErrNotFound] and so is this.
func (e *StatusError) Is(target error) bool {
	return target == ErrNotFound && e.Status == http.StatusNotFound
}

// NoEffectError says that a ResourceManager accepted a change, and that the change did not show within seconds.
type NoEffectError struct {
	What string // what was to change
	Want string
	Have string // what was read back last
}

// Error says what was to change, and what was read back.
func (e *NoEffectError) Error() string {
	return fmt.Sprintf("the ResourceManager accepted a change of %s, but reading back gives %s instead of %s; "+
		"its log says why, and another program may have changed it too", e.What, e.Have, e.Want)
}

// OtherSchedulerError says that a ResourceManager has another scheduler than the CapacityScheduler.
type OtherSchedulerError struct {
	Kind string // such as fairScheduler
}

// Error says which scheduler there is, and what to set.
func (e *OtherSchedulerError) Error() string {
	return fmt.Sprintf("the ResourceManager's scheduler is %q; node labels need \"capacityScheduler\": set "+
		"yarn.resourcemanager.scheduler.class to CapacityScheduler", e.Kind)
}
