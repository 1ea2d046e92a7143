package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// latencyDevice takes the time in which a CPU that idles must be able to run, for as long as it is open
// (Documentation/power/pm_qos_interface.rst).
const latencyDevice = "/dev/cpu_dma_latency"

// Awake keeps the CPUs from sleeping until it is closed, as batch does: one that idles polls. Where there is no such
// device, or the kernel has no driver for idle CPUs, this has no effect.
//
// A virtual CPU that sleeps runs again only when the hypervisor schedules it. On a 6.18 in virtual machines, a
// real-time thread that slept for a few milliseconds was late by 1.0 to 1.3 ms, p99, on one and by 0.14 to 0.16 ms on
// another; by 0.1 and 0.07 ms on CPUs that did not sleep. That delay would be in the latency of a server alone, and not
// in its latency beside batch.
//
// Loops would keep the CPUs awake too. But an agent counts their CPU time as the system's, so that nothing is left for
// batch.
func Awake() (io.Closer, error) {
	file, err := os.OpenFile(latencyDevice, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, fmt.Errorf("keeping the CPUs awake: %w", err)
	}
	if _, err := file.Write(binary.NativeEndian.AppendUint32(nil, 0)); err != nil { // microseconds
		return nil, fmt.Errorf("keeping the CPUs awake: %w", errors.Join(err, file.Close()))
	}
	return file, nil
}
