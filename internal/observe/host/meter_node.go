package host

import (
	"bytes"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
)

// nodeFiles are the kernel files about the complete machine.
type nodeFiles struct {
	stat, meminfo, zoneinfo statFile
	pressure                [3]statFile // CPU, memory, IO
}

func newNodeFiles(proc string) nodeFiles {
	at := func(name string) statFile { return statFile{path: filepath.Join(proc, name)} }
	return nodeFiles{
		stat: at("stat"), meminfo: at("meminfo"), zoneinfo: at("zoneinfo"),
		pressure: [3]statFile{at("pressure/cpu"), at("pressure/memory"), at("pressure/io")},
	}
}

func (f *nodeFiles) close(r *statReader) {
	for _, one := range []*statFile{&f.stat, &f.meminfo, &f.zoneinfo, &f.pressure[0], &f.pressure[1], &f.pressure[2]} {
		r.close(one)
	}
}

// measureNodeCPU measures the number of CPUs of the machine and their use.
func (m *Meter) measureNodeCPU() error {
	now := idleReading{reading: reading{tick: m.tick, at: m.clock(bootClock)}}
	content, _, err := m.reader.read(&m.node.stat, true)
	if err != nil {
		return m.node.stat.wrap(err)
	}
	stat, err := ParseStat(content)
	if err != nil {
		return m.node.stat.wrap(err)
	}
	now.idle, now.stolen, now.cpus = stat.Idle, stat.Stolen, stat.CPUs
	m.load.CPUMilli, m.load.Runnable = 1000*int64(stat.CPUs), stat.Runnable
	span := now.since(m.cpu.reading, m.begin)
	if span == usable {
		if u, ok := now.usage(&m.cpu); ok {
			m.load.Node.CPU, m.load.Stolen = u, min(now.stolenMilli(&m.cpu), max(m.load.CPUMilli-u.Milli, 0))
		}
	}
	if span != tooSoon {
		m.cpu = now
	}
	return nil
}

// measureNodeMemory measures the memory use of the machine. It computes the working set as the kubelet does for
// its root cgroup.
func (m *Meter) measureNodeMemory() error {
	at := m.clock(bootClock)
	content, _, err := m.reader.read(&m.node.meminfo, true)
	if err != nil {
		return m.node.meminfo.wrap(err)
	}
	info, err := ParseMeminfo(content)
	if err != nil {
		return m.node.meminfo.wrap(err)
	}
	m.load.Memory = info.Total
	m.load.Node.Memory = model.MemoryUsage{
		At: at, WorkingSet: max(info.Total-info.Free-info.InactiveFile, 0),
		Anon: info.Anon, ActiveFile: info.ActiveFile, InactiveFile: info.InactiveFile,
	}
	return nil
}

func (m *Meter) measureNodePressure() error {
	now := stallReading{reading: reading{tick: m.tick, at: m.clock(bootClock)}}
	_, found, err := m.readPressure(m.node.pressure[:], &now, true)
	m.stalls = found
	if found && err == nil {
		now.compare(&m.stall, m.begin, &m.load.Node.Pressure)
	}
	return err
}

// measureWatermark sums up the memory that the kernel keeps free. /proc/zoneinfo has about 2 KiB per NUMA node
// and 100 bytes per CPU and zone. The kernel returns it in several reads, so it is parsed piece by piece.
func (m *Meter) measureWatermark() error {
	f := &m.node.zoneinfo
	if !f.open {
		fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return f.wrap(err)
		}
		f.fd, f.open = fd, true
		m.reader.held++
	}
	var pages, offset int64
	partial := 0 // bytes of the last line, whose end is not read yet
	for buf := m.reader.buf; ; {
		n, err := unix.Pread(f.fd, buf[partial:], offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return f.wrap(err)
		}
		if n == 0 {
			m.load.Watermark = pages * int64(m.pageSize)
			return nil
		}
		offset += int64(n)
		complete := bytes.LastIndexByte(buf[:partial+n], '\n') + 1
		sum, err := SumLowWatermarks(buf[:complete])
		if err != nil {
			return f.wrap(err)
		}
		pages += sum
		partial = copy(buf, buf[complete:partial+n])
	}
}
