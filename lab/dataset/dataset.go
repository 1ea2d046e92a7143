// Package dataset reads published traces of the resource use of real machines.
//
// It reads a trace once, row by row, into values of five minutes, or of another step, and keeps only those values.
// Errors contain the file, the line and the value.
package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/sim/trace"
)

// maxValues is the most values of a file that are kept. Five-minute values of 200 machines over a month are a
// tenth of it.
const maxValues = 20_000_000

// Dataset is a data set of traces in one format.
type Dataset struct {
	Name  string // as used in the names of figures
	Dir   string // below the directory of all traces
	About string // description of its machines and their limits
	Every int    // number of values between two scored predictions
	Minor bool   // reported, but predictors have no goal on it
	Mixed bool   // its machines' limits are in different units, and do not compare
	file  func(rows *rows) ([]Machine, error)
}

// All lists the data sets that can be read.
func All() []Dataset {
	return []Dataset{
		{Name: "alibaba2018", Dir: "alibaba2018-machines", Every: 3, file: alibaba,
			About: "co-located machines, those with a mean above 15 %; limit 100 %"},
		{Name: "bitbrains", Dir: "bitbrains-rnd", Every: 6, file: bitbrains,
			About: "hosts of ten business VMs each; limit: the sum of the VMs' capacities"},
		{Name: "cloudcluster", Dir: "cloudcluster-pools", Every: 6, Minor: true, file: cloudcluster,
			About: "pools of a cloud; limit: the most that was ever used"},
		{Name: "nab", Dir: "nab-aws", Every: 6, Minor: true, Mixed: true, file: nab,
			About: "single EC2 instances, load balancers and counters; limit: the most that was ever used"},
		{Name: "planetlab", Dir: "planetlab", Every: 6, Minor: true, file: planetlab,
			About: "VMs of PlanetLab, a file for each day, such as 20110303.csv; limit 100 %"},
		{Name: "datacenter", Dir: "datacenter-aggregates", Every: 6, Minor: true, Mixed: true,
			file:  aggregate,
			About: "whole clusters of Alibaba and Google, a region of Azure; limit 100 %, or the most that was ever used"},
	}
}

// Find returns the data set with this name.
func Find(name string) (Dataset, bool) {
	for _, d := range All() {
		if d.Name == name {
			return d, true
		}
	}
	return Dataset{}, false
}

// Names returns the names of the data sets.
func Names() []string {
	var names []string
	for _, d := range All() {
		names = append(names, d.Name)
	}
	return names
}

// Describe explains, for the help of a command, what the directory of all traces contains.
func Describe() string {
	var b strings.Builder
	b.WriteString("The directory has one for each data set, with files of comma-separated values, packed by gzip or\n" +
		"not, of any name:\n")
	for _, d := range All() {
		fmt.Fprintf(&b, "  %-13s %s/*.csv[.gz]: %s\n", d.Name, d.Dir, d.About)
	}
	return b.String()
}

// Files returns the sorted files of the data set below the directory of all traces. The error is fs.ErrNotExist
// if there is none.
func (d Dataset) Files(root string) ([]string, error) {
	dir := filepath.Join(root, d.Dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for traces of %s: %w", d.Name, err)
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".csv") || strings.HasSuffix(e.Name(), ".csv.gz") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("looking for traces of %s: no .csv or .csv.gz in %s: %w", d.Name, dir, fs.ErrNotExist)
	}
	slices.Sort(files)
	return files, nil
}

// Read reads one file of the data set.
func (d Dataset) Read(file string) ([]Machine, error) { return d.ReadEvery(file, trace.Step) }

// ReadEvery reads one file of the data set into values that each cover step seconds.
func (d Dataset) ReadEvery(file string, step int64) ([]Machine, error) {
	machines, _, err := d.read(file, step, false)
	return machines, err
}

// Skipped are the rows of a file that could not be used.
type Skipped struct {
	File  string
	Rows  int
	Of    int
	First error // why the first of them could not be used, with its line
}

// ReadUsable is like [Dataset.ReadEvery], but skips rows that cannot be used, up to one in a hundred.
func (d Dataset) ReadUsable(file string, step int64) ([]Machine, Skipped, error) {
	return d.read(file, step, true)
}

func (d Dataset) read(file string, step int64, lenient bool) ([]Machine, Skipped, error) {
	r, err := openRows(file)
	if err != nil {
		return nil, Skipped{}, err
	}
	defer r.close()
	r.step, r.lenient = step, lenient
	machines, err := d.file(r)
	return machines, Skipped{File: file, Rows: r.skipped, Of: r.read, First: r.first}, err
}

// ReadAll reads all machines of a data set, in values of a minute where the trace has these. It skips rows that
// cannot be used, and returns notes about them.
func ReadAll(root, dataset string) (all []Machine, notes []string, err error) {
	d, _ := Find(dataset)
	files, err := d.Files(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("no traces of %s in %s: %w", dataset, root, err)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		machines, skipped, err := d.ReadUsable(file, 60)
		if err != nil {
			return nil, nil, err
		}
		if skipped.Rows > 0 {
			notes = append(notes, fmt.Sprintf("%d of %d rows were skipped, the first because of this: %v", skipped.Rows,
				skipped.Of, skipped.First))
		}
		all = append(all, machines...)
	}
	return Join(all), notes, nil
}
