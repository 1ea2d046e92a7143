// Package trino is how pools run workers of Trino.
package trino

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/drain/trino"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
)

// Paths and ports in a worker's pod. Trino's image has its configuration in dir.
const (
	dir      = "/etc/trino"
	catalogs = "/etc/trino-catalogs"
	work     = "/data/trino"
	port     = 8080
)

// stops is what a worker's process takes to end after its last grace period.
const stops = 10 * time.Second

// Kind returns how the workers of a pool run. grace is shutdown.grace-period.
func Kind(spec *v1alpha1.TrinoSpec, grace time.Duration) *olap.Kind {
	user := spec.User
	k := &olap.Kind{
		Engine: "Trino", Field: "spec.trino", User: user, Secret: v1alpha1.NameOf(spec.AuthSecret),
		Drainer: func(auth drain.Auth) (drain.Drainer, error) { return trino.New(spec.Coordinator, auth) },
		Least:   2*grace + stops,
		Port:    port, Dir: dir, Given: v1alpha1.NameOf(spec.ConfigMap),
		Catalogs: v1alpha1.NameOf(spec.Catalogs), CatalogsDir: catalogs, Work: work,
		Defaults: map[string]string{
			"jvm.config": jvm,
			// The access control of a worker decides about nothing but its own web services: queries are the coordinator's.
			"access-control.properties": "access-control.name=file\nsecurity.config-file=" + dir + "/waterline-rules.json\n",
		},
		Files: map[string]string{
			"waterline-rules.json": fmt.Sprintf(`{"system_information": [{"user": %q, "allow": ["read", "write"]}]}`+"\n",
				"^"+strings.NewReplacer(".", `\.`).Replace(user)+"$"),
			"node.properties": properties(map[string]string{
				"node.environment": spec.Environment, "node.data-dir": work,
			}),
		},
		Hook: hook(user),
	}
	all := map[string]string{
		"node.internal-address":       "${ENV:" + olap.HostVariable + "}",
		"access-control.config-files": dir + "/access-control.properties",
	}
	if spec.Catalogs != nil {
		all["catalog.config-dir"] = catalogs
	}
	maps.Copy(all, spec.Properties)
	maps.Copy(all, map[string]string{ // what the controller relies on
		"coordinator": "false", "discovery.uri": strings.TrimSuffix(spec.Coordinator, "/"),
		"http-server.http.enabled": "true", "http-server.http.port": strconv.Itoa(port),
		"shutdown.grace-period": strconv.FormatFloat(grace.Seconds(), 'f', -1, 64) + "s",
	})
	k.Files["config.properties"] = properties(all)
	return k
}

// jvm are the options of Java if nobody gives others. The heap follows the memory of the pod.
const jvm = `-server
-XX:InitialRAMPercentage=50
-XX:MaxRAMPercentage=75
-XX:+ExplicitGCInvokesConcurrent
-XX:+ExitOnOutOfMemoryError
-XX:-OmitStackTraceInFastThrow
-XX:ReservedCodeCacheSize=256M
-Djdk.attach.allowAttachSelf=true
-Djdk.nio.maxCachedBufferSize=2000000
`

// hook asks the worker to shut down. It needs bash, which Trino's image has, and no other program. With a password the
// worker refuses it, and then only the manager drains the worker.
func hook(user string) string {
	return fmt.Sprintf(`if exec 3<>"/dev/tcp/$%s/%d"; then
  printf '%%s\r\n' 'PUT /v1/info/state HTTP/1.1' "Host: $%[1]s" 'X-Trino-User: %[3]s' 'Connection: close' \
    'Content-Type: application/json' 'Content-Length: 15' '' >&3
  printf '"SHUTTING_DOWN"' >&3
  read -r -t 10 <&3
fi
`, olap.HostVariable, port, user)
}

// properties writes a file of properties.
func properties(all map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s=%s\n", escape.Replace(name), escape.Replace(all[name]))
	}
	return b.String()
}

// escape keeps a value in one line.
var escape = strings.NewReplacer("\\", "\\\\", "\n", "\\n", "\r", "\\r")
