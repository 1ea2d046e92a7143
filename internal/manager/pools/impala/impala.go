// Package impala is how pools run executors of Impala.
package impala

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/drain/impala"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
)

// Paths and ports in an executor's pod. Impala's image has its configuration in dir.
const (
	dir  = "/opt/impala/conf"
	work = "/waterline"
	port = 25000 // of the debug web server
)

// stops is what an executor's process takes to end after its grace period.
const stops = 5 * time.Second

// Kind returns how the executors of a pool run. grace is --shutdown_grace_period_s, drain the time that a pod has to
// drain, and memory that of a pod in bytes.
func Kind(spec *v1alpha1.ImpalaSpec, grace, within time.Duration, memory int64) *olap.Kind {
	k := &olap.Kind{
		Engine: "Impala", Field: "spec.impala", User: spec.User, Secret: v1alpha1.NameOf(spec.AuthSecret),
		Drainer: func(auth drain.Auth) (drain.Drainer, error) {
			web, err := webOf(spec)
			if err != nil {
				return nil, err
			}
			return impala.New(impala.Options{Coordinator: spec.Coordinator, Web: web, Auth: auth})
		},
		Least: grace + stops,
		Port:  port, Dir: dir, Given: v1alpha1.NameOf(spec.ConfigMap), Work: work,
		// impalad shuts down in order on this signal, within --shutdown_deadline_s.
		Hook: "kill -s RTMIN 1\n",
	}
	seconds := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	flags := map[string]string{
		// The rest is for Java, which impalad runs inside itself, and for threads' stacks.
		"mem_limit": strconv.FormatInt(memory/5*4, 10), "mem_limit_includes_jvm": "true",
		"log_dir": work, "scratch_dirs": work,
	}
	maps.Copy(flags, spec.Flags)
	maps.Copy(flags, map[string]string{ // what the controller relies on
		"is_coordinator": "false", "is_executor": "true", "hostname": "$(" + olap.HostVariable + ")",
		"state_store_host": spec.StateStore, "catalog_service_host": spec.Catalog,
		"krpc_port": "27000", "webserver_port": strconv.Itoa(port),
		"shutdown_grace_period_s": seconds(grace), "shutdown_deadline_s": seconds(within),
	})
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		k.Args = append(k.Args, "--"+name+"="+flags[name])
	}
	return k
}

// webOf returns the address of the coordinator's debug web server.
func webOf(spec *v1alpha1.ImpalaSpec) (string, error) {
	if spec.Web != "" {
		return spec.Web, nil
	}
	u, err := url.Parse(spec.Coordinator)
	if err != nil {
		return "", fmt.Errorf("spec.impala.coordinator: %w", err)
	}
	return "http://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(port)), nil
}
