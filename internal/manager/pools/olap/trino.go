package olap

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
)

const (
	trinoDir      = "/etc/trino" // where Trino's image has its configuration
	trinoCatalogs = "/etc/trino-catalogs"
	trinoWork     = "/data/trino"
	trinoPort     = 8080
	// trinoStops is what a worker's process takes to end after its last grace period.
	trinoStops = 10 * time.Second
)

// trinoKind returns how workers of Trino run. grace is shutdown.grace-period.
func trinoKind(spec *v1alpha1.TrinoSpec, grace time.Duration) *Kind {
	user := spec.User
	k := &Kind{
		Engine: "Trino", Field: "spec.trino", User: user, Secret: v1alpha1.NameOf(spec.AuthSecret),
		Drainer: func(auth drain.Auth) (drain.Drainer, error) { return trino.New(spec.Coordinator, auth) },
		Least:   2*grace + trinoStops,
		Port:    trinoPort, Dir: trinoDir, Given: v1alpha1.NameOf(spec.ConfigMap),
		Catalogs: v1alpha1.NameOf(spec.Catalogs), CatalogsDir: trinoCatalogs, Work: trinoWork,
		Defaults: map[string]string{
			"jvm.config": trinoJVM,
			// The access control of a worker decides about nothing but its own web services: queries are the coordinator's.
			"access-control.properties": "access-control.name=file\nsecurity.config-file=" + trinoDir +
				"/waterline-rules.json\n",
		},
		Files: map[string]string{
			"waterline-rules.json": fmt.Sprintf(`{"system_information": [{"user": %q, "allow": ["read", "write"]}]}`+"\n",
				"^"+strings.NewReplacer(".", `\.`).Replace(user)+"$"),
			"node.properties": properties(map[string]string{
				"node.environment": spec.Environment, "node.data-dir": trinoWork,
			}),
		},
		Hook: trinoHook(user),
	}
	all := map[string]string{
		"node.internal-address":       "${ENV:" + HostVariable + "}",
		"access-control.config-files": trinoDir + "/access-control.properties",
	}
	if spec.Catalogs != nil {
		all["catalog.config-dir"] = trinoCatalogs
	}
	maps.Copy(all, spec.Properties)
	maps.Copy(all, map[string]string{ // what the controller relies on
		"coordinator": "false", "discovery.uri": strings.TrimSuffix(spec.Coordinator, "/"),
		"http-server.http.enabled": "true", "http-server.http.port": strconv.Itoa(trinoPort),
		"shutdown.grace-period": strconv.FormatFloat(grace.Seconds(), 'f', -1, 64) + "s",
	})
	k.Files["config.properties"] = properties(all)
	return k
}

// trinoJVM are the options of Java if nobody gives others. The heap follows the memory of the pod.
const trinoJVM = `-server
-XX:InitialRAMPercentage=50
-XX:MaxRAMPercentage=75
-XX:+ExplicitGCInvokesConcurrent
-XX:+ExitOnOutOfMemoryError
-XX:-OmitStackTraceInFastThrow
-XX:ReservedCodeCacheSize=256M
-Djdk.attach.allowAttachSelf=true
-Djdk.nio.maxCachedBufferSize=2000000
`

// trinoHook asks the worker to shut down. It needs bash, which Trino's image has, and no other program. With a password
// the worker refuses it, and then only the manager drains the worker.
func trinoHook(user string) string {
	return fmt.Sprintf(`if exec 3<>"/dev/tcp/$%s/%d"; then
  printf '%%s\r\n' 'PUT /v1/info/state HTTP/1.1' "Host: $%[1]s" 'X-Trino-User: %[3]s' 'Connection: close' \
    'Content-Type: application/json' 'Content-Length: 15' '' >&3
  printf '"SHUTTING_DOWN"' >&3
  read -r -t 10 <&3
fi
`, HostVariable, trinoPort, user)
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
