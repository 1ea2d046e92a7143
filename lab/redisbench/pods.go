package redisbench

import (
	"runtime"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// RequestMilli is the CPU request of the pod of Redis, in milli-cores: what Redis uses at its peak.
const RequestMilli = 1000

// pod is a pod of the bench.
type pod struct {
	*sandbox.Pod
	lasts bool // on a real node it stays for further runs
}

func serverPod() pod {
	return pod{&sandbox.Pod{Name: "redis", QoS: model.Burstable, RequestMilli: RequestMilli}, true}
}

// batchPods returns the pods of ffmpeg and stress-ng.
//
// In plain Kubernetes ffmpeg is a Burstable pod that requests what the server leaves of the node, save a little for the
// node's own pods, and stress-ng a pod that requests nothing. With Waterline they are batch pods that request the same:
// half of the machine each, or on a real node, which must offer as much first, a small part. Neither how they share nor
// how much they may use depends on that.
func batchPods(waterline, onNode bool) (encoder, burner pod) {
	milli := 1000 * int64(runtime.NumCPU())
	if waterline {
		each := milli / 2
		if onNode {
			each = milli / 32
		}
		return pod{&sandbox.Pod{Name: FFmpeg, QoS: model.BestEffort, BatchMilli: each}, true},
			pod{&sandbox.Pod{Name: StressNG, QoS: model.BestEffort, BatchMilli: each}, true}
	}
	rest := max(milli-RequestMilli-200, 100)
	return pod{Pod: &sandbox.Pod{Name: FFmpeg, QoS: model.Burstable, RequestMilli: rest}},
		pod{Pod: &sandbox.Pod{Name: StressNG, QoS: model.BestEffort}}
}
