package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// latencyDevice takes the longest time that an idle CPU may need to run again. The bound holds while the device is open
// (Documentation/power/pm_qos_interface.rst).
const latencyDevice = "/dev/cpu_dma_latency"

// Awake keeps the CPUs from sleeping, as batch does, until it is closed: an idle CPU polls instead. It has no effect
// where that device is missing, or where the kernel has no driver for idle CPUs.
//
// A virtual CPU that sleeps runs again only when the hypervisor schedules it. On a 6.18 in virtual machines, a
// real-time thread that slept for a few milliseconds was late by 1.0 to 1.3 ms, p99, on one and by 0.14 to 0.16 ms on
// another; by 0.1 and 0.07 ms on CPUs that did not sleep. That delay would be in the latency of a server alone, and not
// in its latency beside batch.
//
// Loops would keep the CPUs awake too. But an agent would count their CPU time as the system's, and leave batch
// nothing.
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
