package olap

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
)

const (
	impalaWork = "/waterline"
	impalaPort = 25000 // of the debug web server
	// impalaStops is what an executor's process takes to end after its grace period.
	impalaStops = 5 * time.Second
)

// impalaKind returns how executors of Impala run. grace is --shutdown_grace_period_s.
func impalaKind(spec *v1alpha1.ImpalaSpec, grace, within time.Duration, memory int64) *Kind {
	k := &Kind{
		Engine: "Impala", Field: "spec.impala", User: spec.User, Secret: v1alpha1.NameOf(spec.AuthSecret),
		Drainer: func(auth drain.Auth) (drain.Drainer, error) {
			web, err := webOf(spec)
			if err != nil {
				return nil, err
			}
			return impala.New(impala.Options{Coordinator: spec.Coordinator, Web: web, Auth: auth})
		},
		Least: grace + impalaStops,
		Port:  impalaPort, Dir: "/opt/impala/conf", Given: v1alpha1.NameOf(spec.ConfigMap), Work: impalaWork,
		// impalad shuts down in order on this signal, within --shutdown_deadline_s.
		Hook: "kill -s RTMIN 1\n",
	}
	seconds := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	flags := map[string]string{
		// The rest is for Java, which impalad runs inside itself, and for threads' stacks.
		"mem_limit": strconv.FormatInt(memory/5*4, 10), "mem_limit_includes_jvm": "true",
		"log_dir": impalaWork, "scratch_dirs": impalaWork,
	}
	maps.Copy(flags, spec.Flags)
	maps.Copy(flags, map[string]string{ // what the controller relies on
		"is_coordinator": "false", "is_executor": "true", "hostname": "$(" + HostVariable + ")",
		"state_store_host": spec.StateStore, "catalog_service_host": spec.Catalog,
		"krpc_port": "27000", "webserver_port": strconv.Itoa(impalaPort),
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
	return "http://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(impalaPort)), nil
}
