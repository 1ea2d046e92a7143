// Command waterline-scheduler is the scheduler of Kubernetes with Waterline's plugins. Its flags and its configuration
// are those of kube-scheduler. A profile that enables no plugin of Waterline is the stock scheduler.
package main

import (
	"cmp"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/k8s/scheduler"
)

func main() {
	// The agents run in the namespace of the release, as this program does.
	namespace := cmp.Or(os.Getenv("POD_NAMESPACE"), v1alpha1.Namespace)
	os.Exit(cli.Run(app.NewSchedulerCommand(scheduler.Plugins(namespace)...)))
}
