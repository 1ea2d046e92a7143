package impala

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// The part of HiveServer2's protocol that a statement without a result needs, over HTTP. Numbers are those of
// common/thrift/hive-1-api/TCLIService.thrift in Impala's sources of August 2026 (commit b215952).

// protocolV6 is the version that Impala answers with.
const protocolV6 = int32(5)

// Values of TOperationState that end an operation.
const (
	finished  = int32(2)
	cancelled = int32(3)
	closed    = int32(4)
	failed    = int32(5)
	timedOut  = int32(8)
)

// pollInterval is the time between two queries of a running statement's state.
const pollInterval = 100 * time.Millisecond

// hs2 calls a coordinator's HiveServer2 over HTTP.
type hs2 struct {
	client *drain.Client
	url    string // with the path
	user   string
}

// run runs a statement to its end.
func (h *hs2) run(ctx context.Context, statement string) (err error) {
	opened, err := h.call(ctx, "OpenSession", fields{1: protocolV6, 2: h.user})
	if err != nil {
		return err
	}
	session, there := opened[3].(fields)
	if !there {
		return errors.New("OpenSession: the answer has no session")
	}
	defer func() { // ends the operation too
		if _, closing := h.call(ctx, "CloseSession", fields{1: session}); err == nil {
			err = closing
		}
	}()
	started, err := h.call(ctx, "ExecuteStatement", fields{1: session, 2: statement})
	if err != nil {
		return err
	}
	operation, there := started[2].(fields)
	if !there {
		return errors.New("ExecuteStatement: the answer has no operation")
	}
	for {
		status, err := h.call(ctx, "GetOperationStatus", fields{1: operation})
		if err != nil {
			return err
		}
		switch state, _ := status[2].(int32); state {
		case finished:
			return nil
		case cancelled, closed, failed, timedOut:
			text, _ := status[5].([]byte)
			return fmt.Errorf("%s: %s", statement, strings.TrimSpace(string(text)))
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("%s: waiting for its end: %w", statement, ctx.Err())
		}
	}
}

// call calls a method, and returns its result. A status of failure is an error.
func (h *hs2) call(ctx context.Context, method string, argument fields) (fields, error) {
	answer, err := h.client.Send(ctx, http.MethodPost, h.url, "application/x-thrift", encodeCall(method, argument))
	if drain.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden) {
		return nil, fmt.Errorf("%s: user %q is not accepted: %w", method, h.user, err)
	}
	if err != nil {
		return nil, errors.Join(drain.ErrCoordinator, fmt.Errorf("%s: %w", method, err))
	}
	result, err := decodeReply(answer)
	if err != nil {
		return nil, fmt.Errorf("%s: reading the answer of %s: %w", method, h.url, err)
	}
	status, _ := result[1].(fields)
	if code, there := status[1].(int32); !there || code > 2 { // success, success with information, still executing
		text, _ := status[5].([]byte)
		return nil, fmt.Errorf("%s: %s", method, strings.TrimSpace(string(text)))
	}
	return result, nil
}
