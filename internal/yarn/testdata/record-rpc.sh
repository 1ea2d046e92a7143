#!/usr/bin/env bash
# Records what Hadoop's own administration client sends to a real ResourceManager, and what that answers, byte for byte,
# into testdata/rpc: NAME.sent and NAME.received. A proxy stands between them. It does not
# record sasl*.received, which a ResourceManager with Kerberos sent to this package's client. Run it with the test bed's
# cluster:
#
#   out/bin/yarn up -nodes 1
#   internal/yarn/testdata/record-rpc.sh
set -euo pipefail
cd "$(dirname "$0")/rpc"
yarn=$PWD/../../../../out/bin/yarn
proxy='
import socket, sys, threading
name, host = sys.argv[1:]
server = socket.create_server((host, 8033))
client, _ = server.accept()
rm = socket.create_connection(("rm1.bed", 8033))
def copy(a, b, file):
    with open(file, "wb") as f:
        while data := a.recv(1 << 16):
            f.write(data)
            b.sendall(data)
    b.shutdown(socket.SHUT_WR)
t = threading.Thread(target=copy, args=(rm, client, name + ".received"))
t.start()
copy(client, rm, name + ".sent")
t.join()
'
record() { # NAME ARGUMENTS...
	local name=$1
	shift
	"$yarn" exec python3 -c "$proxy" "$PWD/$name" 127.1.0.9 &
	sleep 1
	"$yarn" java org.apache.hadoop.yarn.client.cli.RMAdminCLI -Dyarn.resourcemanager.admin.address=127.1.0.9:8033 "$@" || true
	wait $!
}
record refresh-graceful -refreshNodes -g 60 -server
record refresh -refreshNodes
record resize -updateNodeResource nm1.bed:45454 1024 2 5000
record resize-unknown -updateNodeResource nope.bed:1 1024 2 5000
