package faillog

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestLog checks how often the same trouble is told.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := New(slog.New(slog.NewTextHandler(&out, nil)))
		told := func() int { n := bytes.Count(out.Bytes(), []byte("\n")); out.Reset(); return n }
		full, busy := errors.New("disk full"), errors.New("disk busy")

		for range 1000 {
			log.Report("a", full)
		}
		if n := told(); n != 1 {
			t.Errorf("a trouble that stays was told %d times, want once", n)
		}
		for range 1000 {
			log.Report("a", nil)
			log.Report("a", full)
		}
		if n := told(); n != 1 {
			t.Errorf("one that comes and goes was told %d times within a minute, want once: that it was over", n)
		}
		time.Sleep(time.Minute)
		log.Report("a", full)
		if n := told(); n != 1 {
			t.Errorf("it stayed, and after a minute it was told %d times, want once", n)
		}
		for range 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			log.Report("a", busy)
			log.Report("a", full)
		}
		if n := told(); n > 2 {
			t.Errorf("one that changes its words was told %d times within a minute", n)
		}
		log.Report("a", nil)
		log.Report("a", nil)
		if n := told(); n != 1 {
			t.Errorf("its end was told %d times, want once", n)
		}
		log.Each(func(_ string, count uint64) {
			if count != 1000+1000+1+1200 {
				t.Errorf("%d failures were counted", count)
			}
		})
	})
}

// TestStanding checks which errors stand: those of work that failed the last time.
func TestStanding(t *testing.T) {
	log := New(slog.New(slog.DiscardHandler))
	if all := log.Standing(); all != nil {
		t.Errorf("nothing failed, but %v stands", all)
	}
	log.Report("a", errors.New("disk full"))
	log.Report("b", errors.New("disk busy"))
	log.Report("b", nil)
	if all := log.Standing(); len(all) != 1 || all["a"] != "disk full" {
		t.Errorf("%v stands", all)
	}
	log.Report("b", errors.New("disk busy"))
	log.Report("a", nil)
	if all := log.Standing(); len(all) != 1 || all["b"] != "disk busy" {
		t.Errorf("%v stands", all)
	}
}
