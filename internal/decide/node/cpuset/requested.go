package cpuset

import "github.com/waterline-io/waterline/internal/model"

// Requested returns how many CPUs a pod requests as its own, one number per container or one for the pod as a whole,
// and of which kind. There are no numbers if it requests none, or cannot have any on a kubelet whose CPU manager has
// the policy none.
func Requested(pod *model.Pod, p *model.Policy) (model.CPUMode, model.CPUPlacement, []int) {
	mode, how := requested(pod, p)
	if mode == model.CPUNone || mode == "" {
		return model.CPUNone, how, nil
	}
	all, _ := wants(pod, mode, &model.Kubelet{})
	var numbers []int
	for _, w := range all {
		numbers = append(numbers, w.cpus)
	}
	if numbers == nil {
		return model.CPUNone, how, nil
	}
	return mode, how, numbers
}
