package vm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/waterline-io/waterline/test/bed/vm/wire"
)

// errHangs is returned for a guest that gives no sign of life.
var errHangs = errors.New("it hangs")

// session is the conversation with one guest.
type session struct {
	c      Config
	m      *machine
	began  time.Time
	report Report
	files  *unpacking
}

// follow receives frames until the guest is done.
func (s *session) follow() error {
	frames := wire.NewReader(s.m.frames)
	limit := cmp.Or(s.c.BootLimit, bootLimit)
	for {
		if err := s.m.frames.SetReadDeadline(time.Now().Add(limit)); err != nil {
			return fmt.Errorf("setting a deadline for the guest: %w", err)
		}
		kind, payload, err := frames.Next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%w: %w: no sign of life for %v, %s", ErrGuest, errHangs, limit, s.progress())
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("%w: it ended %s", ErrGuest, s.progress())
		case err != nil:
			return fmt.Errorf("%w: receiving from it: %w", ErrGuest, err)
		}
		if s.report.Release != "" {
			limit = silenceLimit
		}
		if kind == wire.KindDone {
			return nil
		}
		if err := s.handle(kind, payload); err != nil {
			return err
		}
	}
}

// progress says how far the guest has come.
func (s *session) progress() string {
	switch done := len(s.report.Results); {
	case s.report.Release == "":
		return "before it was ready for commands"
	case done < len(s.c.Commands):
		return fmt.Sprintf("during the command %s", s.c.Commands[done].Name)
	}
	return "after the last command"
}

func (s *session) handle(kind wire.Kind, payload []byte) error {
	switch kind {
	case wire.KindHello:
		return s.hello(payload)
	case wire.KindStart:
		s.c.Log.Info("started", "command", string(payload))
	case wire.KindOutput:
		if _, err := s.c.Stdout.Write(payload); err != nil {
			return fmt.Errorf("passing on output of the guest: %w", err)
		}
	case wire.KindExit:
		return s.exit(payload)
	case wire.KindFiles:
		if s.files == nil {
			s.files = startUnpacking(s.c.OutDir)
		}
		return s.files.write(payload)
	case wire.KindError:
		return fmt.Errorf("%w: %s", ErrGuest, payload)
	}
	return nil
}

func (s *session) hello(payload []byte) error {
	var h wire.Hello
	if err := json.Unmarshal(payload, &h); err != nil {
		return fmt.Errorf("decoding the guest's first message: %w", err)
	}
	s.report.Release, s.report.Controllers = h.Release, h.Controllers
	s.report.Boot = time.Since(s.began)
	s.c.Log.Info("booted", "kernel", h.Release, "took", s.report.Boot.Round(10*time.Millisecond))
	return nil
}

func (s *session) exit(payload []byte) error {
	var e wire.Exit
	if err := json.Unmarshal(payload, &e); err != nil {
		return fmt.Errorf("decoding how a command ended: %w", err)
	}
	s.report.Results = append(s.report.Results, e)
	switch {
	case e.Skipped:
		s.c.Log.Error("skipped", "command", e.Name)
	case e.TimedOut:
		s.c.Log.Error("out of time", "command", e.Name, "after", s.c.Timeout)
	case e.Code != 0:
		s.c.Log.Error("failed", "command", e.Name, "code", e.Code, "took", e.Took.Round(10*time.Millisecond), "err", e.Err)
	default:
		s.c.Log.Info("passed", "command", e.Name, "took", e.Took.Round(10*time.Millisecond))
	}
	if len(e.Leftovers) > 0 {
		s.c.Log.Warn("left cgroups behind", "command", e.Name, "cgroups", e.Leftovers)
	}
	return nil
}

// endFiles ends the unpacking, if there was one, and returns its error.
func (s *session) endFiles(cause error) error {
	if s.files == nil {
		return nil
	}
	return s.files.end(cause)
}
