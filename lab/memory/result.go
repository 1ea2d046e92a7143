package memory

import (
	"fmt"
	"strings"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/measure"
)

// The goals.
const (
	goalRefaults = 10   // ratio of plain's refaults to waterline's
	goalMemory   = 0.95 // part of the requests that are answered from memory
)

// outcome is all that the experiment measured.
type outcome struct {
	seconds int
	runs    [4]run // alone, roomy, plain, waterline
}

// run is what was measured in one mode.
type run struct {
	mode   string
	window measure.Window
	counts
	seconds []counts // at the end of each
}

// perSecond returns how many requests were answered in a second.
func (r *run) perSecond() float64 { return r.answered / r.window.Length.Seconds() }

// fromMemory returns the part of the requests that did not wait for the disk.
func (r *run) fromMemory() float64 { return 1 - r.waited/max(r.answered, 1) }

// ofRoomy returns a mode's requests as a part of those in mode roomy; 0 if there were none.
func (o *outcome) ofRoomy(r *run) float64 {
	roomy := o.runs[1].perSecond()
	if roomy == 0 {
		return 0
	}
	return r.perSecond() / roomy
}

const mib = 1 << 20

// figures returns the metrics of a mode, by names that end in units.
func (r *run) figures() map[string]float64 {
	return map[string]float64{
		"requests": r.answered, "requests_from_memory_percent": 100 * r.fromMemory(), "requests_per_second": r.perSecond(),
		"refaults_pages": float64(r.online.refaults), "online_oom_kills": float64(r.online.killed),
		"batch_oom_kills": float64(r.batch.killed), "online_low_events": float64(r.online.low),
		"batch_high_events": float64(r.batch.high), "batch_max_events": float64(r.batch.max),
		"batch_refaults_pages": float64(r.batch.refaults), "reclaimed_mib": float64(r.reclaimed) / mib,
		"batch_work_mib": r.worked / 1024, "online_cpus": r.window.CPUsOf("online"), "batch_cpus": r.window.CPUsOf("batch"),
		"agent_cpus": r.window.CPUsOf("agent"),
	}
}

// report makes the result.
//
// Metrics, each beginning with its mode, such as plain_requests: those of [run.figures]. Then requests_ratio_alone,
// requests_ratio_plain and requests_ratio_waterline, to those in mode roomy; and refaults_ratio, waterline's to
// plain's.
func (o *outcome) report(r *report.Result) {
	r.Metrics["seconds"] = float64(o.seconds)
	r.Table.Head = []string{
		"mode", "requests/s", "of roomy", "from memory", "refaults", "online killed", "batch killed", "batch throttled",
		"reclaimed MiB", "batch work MiB",
	}
	bars := chart.Bars{
		Title: "Requests answered from memory", Caption: "Requests that a server answers from its page cache", Mark: "alone",
		Desc: "Bars: part of the answered requests that did not wait for the disk. Marks: alone.",
	}
	alone, plain, waterline := &o.runs[0], &o.runs[2], &o.runs[3]
	for i := range o.runs {
		run := &o.runs[i]
		for name, value := range run.figures() {
			r.Metrics[run.mode+"_"+name] = measure.Round(value, 3)
		}
		refaults, used := run.mode+"_refaults_pages", run.mode+"_batch_mib"
		for _, now := range run.seconds {
			r.Series[refaults] = append(r.Series[refaults], float64(now.online.refaults))
			r.Series[used] = append(r.Series[used], measure.Round(float64(now.used)/mib, 1))
		}
		r.Table.Rows = append(r.Table.Rows, []string{
			run.mode, fmt.Sprintf("%.0f", run.perSecond()), measure.Percent(o.ofRoomy(run)), measure.Percent(run.fromMemory()),
			fmt.Sprint(run.online.refaults), fmt.Sprint(run.online.killed), fmt.Sprint(run.batch.killed),
			fmt.Sprint(run.batch.high), fmt.Sprintf("%.0f", float64(run.reclaimed)/mib), fmt.Sprintf("%.0f", run.worked/1024),
		})
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: run.mode, Note: fmt.Sprintf("%d refaults", run.online.refaults), Value: 100 * run.fromMemory(),
			Theory: 100 * alone.fromMemory(), Strong: run == waterline,
		})
	}
	r.Chart = bars
	for _, run := range []*run{alone, plain, waterline} {
		r.Metrics["requests_ratio_"+run.mode] = measure.Round(o.ofRoomy(run), 4)
	}
	was, is := plain.online.refaults, waterline.online.refaults
	r.Metrics["refaults_ratio"] = measure.Round(float64(is)/float64(max(was, 1)), 4)
	r.Metrics["load_1m"] = measure.LoadAverage()
	r.Headline = report.Headline{
		Value: fmt.Sprintf("refaults %d → %d, %.1f → %.1f %% of requests from memory, %d → %d times killed", was, is,
			100*plain.fromMemory(), 100*waterline.fromMemory(), plain.online.killed, waterline.online.killed),
		Goal: "online is not killed, a tenth of the refaults, 95 % of requests from memory",
		Met: waterline.online.killed == 0 && was > 0 && goalRefaults*is <= was && waterline.answered > 0 &&
			waterline.fromMemory() >= goalMemory,
	}
	r.Notes = o.notes()
}

// notes returns what a reader must know to judge the figures.
func (o *outcome) notes() []string {
	notes := []string{
		fmt.Sprintf("The node has %d MiB. The server requests %d and reads pieces of %d KiB of a file of %d, at random "+
			"places, "+
			"one after the other; each mode %d s.", nodeBytes>>20, requestBytes>>20, piece>>10, ServedBytes>>20, o.seconds),
		fmt.Sprintf("Batch requests %d MiB of batch memory. It takes %d and %d a second more, up to %d, and reads a file "+
			"of %d "+
			"from end to end, %d a second. Once killed it is started again within a second.", batchBytes>>20, batchAtOnce>>20,
			pace*grow>>20, batchInTheEnd>>20, StreamedBytes>>20, pace*chunk>>20),
		"Refaults are pages of its file that the server read again because the kernel had reclaimed them. Batch that " +
			"takes more " +
			"than its request is killed by its own limit, in every mode.",
		fmt.Sprintf("How many requests are answered in a second depends on the CPUs, too. In mode roomy batch does the "+
			"same, and "+
			"the node has %d MiB, which is enough: fewer requests than there are due to memory.", roomyBytes>>20),
	}
	if n := o.runs[1].online.refaults; n > 0 {
		notes = append(notes, fmt.Sprintf("In mode roomy the kernel reclaimed %d pages from the server, although the "+
			"node has "+
			"memory for both: this machine has not.", n))
	}
	if o.runs[2].online.refaults == 0 {
		notes = append(notes, "Beside batch without protection the kernel reclaimed nothing from the server, so nothing "+
			"is shown.")
	}
	var busy []string
	for i := range o.runs {
		if w := o.runs[i].window; w.Busy-w.CPUs() > measure.TooBusy {
			busy = append(busy, fmt.Sprintf("%.2f CPUs (%s)", w.Busy-w.CPUs(), o.runs[i].mode))
		}
	}
	if len(busy) > 0 {
		notes = append(notes, "Processes outside of the pods used "+strings.Join(busy, ", ")+", which the server may "+
			"have wanted.")
	}
	return notes
}
