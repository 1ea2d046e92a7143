package experiment

import (
	"fmt"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
)

// What experiment memory is to show.
const (
	goalRefaults = 10   // plain's to waterline's
	goalMemory   = 0.95 // of the requests, that are answered from memory
)

// MemoryFound is all that experiment memory measured.
type MemoryFound struct {
	When    time.Time
	Machine string
	Seconds int
	runs    [4]memoryRun // alone, roomy, plain, waterline
}

// memoryRun is what was measured in one mode.
type memoryRun struct {
	mode   string
	window window
	pinch
	seconds []pinch // as it was at the end of each
}

// pinch is what was done, and what became of memory.
type pinch struct {
	answered      float64 // requests
	waited        float64 // of them, for the disk
	worked        float64 // KiB that batch read and took
	online, batch strain
	reclaimed     int64 // bytes that batch gave back when the agent asked
	used          int64 // bytes that batch has; not summed
}

func (p pinch) since(before pinch) pinch {
	return pinch{
		p.answered - before.answered, p.waited - before.waited, p.worked - before.worked, p.online.since(before.online), p.batch.since(before.batch), p.reclaimed - before.reclaimed, p.used,
	}
}

// perSecond is how many requests were answered in a second.
func (r *memoryRun) perSecond() float64 { return r.answered / r.window.length.Seconds() }

// fromMemory is the part of the requests that did not wait for the disk.
func (r *memoryRun) fromMemory() float64 { return 1 - r.waited/max(r.answered, 1) }

// served is the part of what the server answers beside batch where there is memory for both, 0 where that is nothing.
func (f *MemoryFound) served(r *memoryRun) float64 {
	roomy := f.runs[1].perSecond()
	if roomy == 0 {
		return 0
	}
	return r.perSecond() / roomy
}

// figures returns what a mode is judged by, by names that end in units.
func (r *memoryRun) figures() map[string]float64 {
	return map[string]float64{
		"requests": r.answered, "requests_from_memory_percent": 100 * r.fromMemory(), "requests_per_second": r.perSecond(), "refaults_pages": float64(r.online.refaults),
		"online_oom_kills": float64(r.online.killed), "batch_oom_kills": float64(r.batch.killed), "online_low_events": float64(r.online.low),
		"batch_high_events": float64(r.batch.high), "batch_max_events": float64(r.batch.full), "batch_refaults_pages": float64(r.batch.refaults),
		"reclaimed_mib": float64(r.reclaimed) / (1 << 20), "batch_work_mib": r.worked / 1024,
		"online_cpus": r.window.of("online"), "batch_cpus": r.window.of("batch"), "agent_cpus": r.window.of("agent"),
	}
}

// Result makes figures of it.
//
// Metrics, each beginning with its mode, such as plain_requests: those of [memoryRun.figures]. Then requests_ratio_alone,
// requests_ratio_plain and requests_ratio_waterline, to those in mode roomy; and refaults_ratio, waterline's to plain's.
func (f *MemoryFound) Result() Result {
	r := Result{Name: MemoryName, About: MemoryAbout, When: f.When, Machine: f.Machine, Metrics: map[string]float64{"seconds": float64(f.Seconds)}, Series: map[string][]float64{}}
	r.Table.Head = []string{"mode", "requests/s", "of roomy", "from memory", "refaults", "online killed", "batch killed", "batch slowed", "given back MiB", "batch work MiB"}
	bars := chart.Bars{
		Title: "Requests answered from memory", Caption: "Requests that a server answers from its page cache", Mark: "alone",
		Desc: "Bars: of the requests that the server answered, those that did not wait for the disk. Marks: alone.",
	}
	alone, plain, waterline := &f.runs[0], &f.runs[2], &f.runs[3]
	for i := range f.runs {
		run := &f.runs[i]
		for name, value := range run.figures() {
			r.Metrics[run.mode+"_"+name] = round(value, 3)
		}
		for _, now := range run.seconds {
			r.Series[run.mode+"_refaults_pages"] = append(r.Series[run.mode+"_refaults_pages"], float64(now.online.refaults))
			r.Series[run.mode+"_batch_mib"] = append(r.Series[run.mode+"_batch_mib"], round(float64(now.used)/(1<<20), 1))
		}
		r.Table.Rows = append(r.Table.Rows, []string{
			run.mode, fmt.Sprintf("%.0f", run.perSecond()), percent(f.served(run)), percent(run.fromMemory()), fmt.Sprint(run.online.refaults),
			fmt.Sprint(run.online.killed), fmt.Sprint(run.batch.killed), fmt.Sprint(run.batch.high), fmt.Sprintf("%.0f", float64(run.reclaimed)/(1<<20)), fmt.Sprintf("%.0f", run.worked/1024),
		})
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: run.mode, Note: fmt.Sprintf("%d refaults", run.online.refaults), Value: 100 * run.fromMemory(), Theory: 100 * alone.fromMemory(), Strong: run == waterline,
		})
	}
	r.Chart = bars
	for _, run := range []*memoryRun{alone, plain, waterline} {
		r.Metrics["requests_ratio_"+run.mode] = round(f.served(run), 4)
	}
	r.Metrics["refaults_ratio"] = round(float64(waterline.online.refaults)/float64(max(plain.online.refaults, 1)), 4)
	r.Metrics["load_1m"] = loadAverage()
	r.Headline = Headline{
		Value: fmt.Sprintf("refaults %d → %d, %.1f → %.1f %% of requests from memory, %d → %d times killed",
			plain.online.refaults, waterline.online.refaults, 100*plain.fromMemory(), 100*waterline.fromMemory(), plain.online.killed, waterline.online.killed),
		Goal: "online is not killed, a tenth of the refaults, 95 % of requests from memory",
		Met: waterline.online.killed == 0 && plain.online.refaults > 0 && goalRefaults*waterline.online.refaults <= plain.online.refaults &&
			waterline.answered > 0 && waterline.fromMemory() >= goalMemory,
	}
	r.Notes = f.notes()
	return r
}

// notes says what a reader should know to judge the figures.
func (f *MemoryFound) notes() []string {
	notes := []string{
		fmt.Sprintf("The node has %d MiB. The server requests %d and reads pieces of %d KiB of a file of %d, at random places, one after the other; each mode %d s.",
			memoryNode>>20, memoryRequest>>20, piece>>10, MemoryServed>>20, f.Seconds),
		fmt.Sprintf("Batch was sold %d MiB. It takes %d and %d a second more, up to %d, and reads a file of %d from end to end, %d a second. Once killed it is started again within a second.",
			memorySold>>20, memoryTaken>>20, pace*grow>>20, memoryWanted>>20, MemoryStreamed>>20, pace*chunk>>20),
		"Refaults are pages of its file that the server read again because they had been taken from it. Batch that takes more than it was sold is killed by its own limit, in every mode.",
		fmt.Sprintf("How many requests are answered in a second depends on who has the CPUs, too. In mode roomy batch does the same, and the node has %d MiB, which is enough: what is fewer than there is due to memory.", memoryRoomy>>20),
	}
	if f.runs[1].online.refaults > 0 {
		notes = append(notes, fmt.Sprintf("In mode roomy %d pages were taken from the server, although the node has memory for both: this machine has not.", f.runs[1].online.refaults))
	}
	if f.runs[2].online.refaults == 0 {
		notes = append(notes, "Beside batch without protection nothing was taken from the server, so nothing is shown.")
	}
	var busy []string
	for i := range f.runs {
		if w := f.runs[i].window; w.busy-w.cpus() > tooBusy {
			busy = append(busy, fmt.Sprintf("%.2f CPUs (%s)", w.busy-w.cpus(), f.runs[i].mode))
		}
	}
	if len(busy) > 0 {
		notes = append(notes, "Outside of the pods were used "+strings.Join(busy, ", ")+", which the server may have wanted.")
	}
	return notes
}
