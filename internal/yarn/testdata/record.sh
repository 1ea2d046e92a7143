#!/usr/bin/env bash
# Records answers of a real ResourceManager and NodeManager into testdata/rm. Run it with the test bed's cluster:
#
#   out/bin/yarn up -ha -nodes 2
#   out/bin/yarn exec bash internal/yarn/testdata/record.sh
#
# The cluster is of no use afterwards. Cookies and dates are left out, and bodies are kept byte for byte.
set -euo pipefail
cd "$(dirname "$0")/rm"
id() { curl -s "http://$1.bed:8088/ws/v1/cluster/info" | grep -o '"haState":"[A-Z]*"'; }
active=rm1 standby=rm2
[ "$(id rm1)" = '"haState":"ACTIVE"' ] || active=rm2 standby=rm1

record() { # FILE URL CURL-ARGUMENTS...
	local file=$1 url=$2
	shift 2
	curl -s -i -m 10 -H "Accept: ${accept-application/json}" -H 'Content-Type: application/json' "$@" "$url" |
		grep -avE '^(Set-Cookie|Date|Expires|Transfer-Encoding): ' >"$file.http"
}
ask() { # FILE PATH CURL-ARGUMENTS...
	local file=$1 path=$2
	shift 2
	record "$file" "http://$active.bed:8088/ws/v1/cluster$path" "$@"
}
# Of the settings, only those are kept that concern labels, sizes, failures and access. The others are many, and have
# directories of the machine. conf-forbidden.http was recorded by hand, with hadoop.security.authorization and
# hadoop.security.instrumentation.requires.admin set.
settings() { # FILE CURL-ARGUMENTS...
	record "$1" "http://$active.bed:8088/conf" "${@:2}"
	python3 - "$1.http" "$HADOOP_CONF_DIR" <<-'END'
		import os, re, sys
		text = open(sys.argv[1], newline="").read().replace(os.path.dirname(sys.argv[2]), "/bed")
		keep = re.compile(r"(yarn\.(node-labels|nm\.liveness|admin\.acl|resourcemanager\.(node-labels|nodes\.|recovery|"
			r"work-preserving|ha\.|scheduler\.class|store\.class|webapp\.address|decommissioning|nodemanager-graceful)|"
			r"scheduler\.m..imum-allocation)|hadoop\.(security\.auth|http\.authentication\.(type|simple)))")
		json = re.compile(r'\{"key":"([^"]*)"(?:[^"}]|"(?:[^"\\]|\\.)*")*\},?')
		text = json.sub(lambda m: m[0] if keep.match(m[1]) else "", text).replace("},]", "}]")
		xml = re.compile(r"<property><name>([^<]*)</name>(?s:.*?)</property>\n?")
		text = xml.sub(lambda m: m[0] if keep.match(m[1]) else "", text)
		open(sys.argv[1], "w", newline="").write(text)
	END
}
node=nm1.bed:45454
as='?user.name=root'

# What a standby ResourceManager answers to a call that Hadoop's client made of another.
python3 -c '
import socket, sys
rm = socket.create_connection((sys.argv[1], 8033))
rm.sendall(sys.stdin.buffer.read())
stream = rm.makefile("rb") # the connection must stay open until the answer is there
length = stream.read(4)
sys.stdout.buffer.write(length + stream.read(int.from_bytes(length, "big")))
' "$standby.bed" <../rpc/refresh.sent >../rpc/standby.received
record info-standby "http://$standby.bed:8088/ws/v1/cluster/info"
record redirect "http://$standby.bed:8088/ws/v1/cluster/nodes"
ask info /info
ask labels-none /get-node-labels
ask node-labels-none /get-node-to-labels
ask apps-none /apps
ask nodes-none '/nodes?states=LOST'
ask label-added "/add-node-labels$as" -d '{"nodeLabelInfo":[{"name":"elastic","exclusivity":true}]}'
ask loose-added "/add-node-labels$as" -d '{"nodeLabelInfo":[{"name":"loose","exclusivity":false}]}'
ask label-changed "/add-node-labels$as" -d '{"nodeLabelInfo":[{"name":"elastic","exclusivity":false}]}'
ask labels /get-node-labels
ask node-labelled "/replace-node-to-labels$as" \
	-d '{"nodeToLabels":[{"nodeId":"nm2.bed:0","labels":["elastic"]},{"nodeId":"nm3.bed:0","labels":["loose"]}]}'
ask node-labels /get-node-to-labels
ask label-unknown "/replace-node-to-labels$as" -d '{"nodeToLabels":[{"nodeId":"nm2.bed:0","labels":["unknown"]}]}'
ask new-app "/apps/new-application$as" -X POST
app=$(grep -ao 'application_[0-9_]*' new-app.http)
ask submitted "/apps$as" -d '{"application-id":"'"$app"'","application-name":"sleep","application-type":"TEST",
	"queue":"default","max-app-attempts":1,"am-container-spec":{"commands":{"command":"exec sleep 300"}},
	"resource":{"memory":256,"vCores":1}}'
sleep 5
ask apps /apps
ask app "/apps/$app"
ask nodes /nodes
ask node "/nodes/$node"
ask scheduler /scheduler
settings conf
accept=text/xml settings conf-xml
record node-info http://nm1.bed:8042/ws/v1/node
record containers http://nm1.bed:8042/ws/v1/node/containers
record containers-none http://nm2.bed:8042/ws/v1/node/containers
ask resized "/nodes/$node/resource$as" -d '{"resource":{"memory":128,"vCores":1},"overCommitTimeout":600000}'
sleep 1
ask node-overcommitted "/nodes/$node"
ask node-unknown /nodes/nope.bed:1
ask node-no-port /nodes/nm1.bed
ask killing "/apps/$app/state$as" -X PUT -d '{"state":"KILLED"}'
sleep 2
ask app-killed "/apps/$app"
# Without ZooKeeper no ResourceManager is active.
kill -9 "$(pgrep -of org.apache.zookeeper.server.ZooKeeperServerMain)"
for _ in $(seq 60); do
	[ "$(id "$active")" != '"haState":"ACTIVE"' ] && break
	sleep 1
done
ask none-active /nodes
