// Package scheduler contains Waterline's plugins for the scheduler of Kubernetes. They are adapters: they turn objects
// of the API into values, and package place decides.
package scheduler

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	framework "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// The names of the plugins, as in a scheduler's configuration.
const (
	WeightSpreadName = "WeightSpread"
	LoadAwareName    = "LoadAware"
	BatchFitName     = "BatchFit"
	CPUSetFitName    = "CPUSetFit"
)

// Plugins returns all plugins. They share one view of the cluster, also between profiles. namespace is that of the
// agents' pods.
func Plugins(namespace string) []app.Option {
	var all []app.Option
	for name, factory := range factories(newView(namespace)) {
		all = append(all, app.WithPlugin(name, factory))
	}
	return all
}

// factories returns what makes each plugin, by its name.
func factories(v *view) map[string]framework.PluginFactory {
	return map[string]framework.PluginFactory{
		WeightSpreadName: plugin(v, newWeightSpread),
		LoadAwareName:    plugin(v, newLoadAware),
		BatchFitName:     plugin(v, newBatchFit),
		CPUSetFitName:    plugin(v, newCPUSetFit),
	}
}

// plugin returns a factory that decodes a plugin's arguments, starts the view once, and makes the plugin.
func plugin[A any](
	v *view, create func(*view, A, fwk.Handle) (fwk.Plugin, error),
) framework.PluginFactory {
	return func(ctx context.Context, object runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		var args A
		if err := decode(object, &args); err != nil {
			return nil, err
		}
		p, err := create(v, args, h)
		if err != nil {
			return nil, err
		}
		return p, v.begin(ctx, h)
	}
}
