package yarn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLedger checks which containers count as killed, by lines as the daemons of Hadoop 3.5.0 write them.
func TestLedger(t *testing.T) {
	const app = "application_1_0001"
	line := func(second int, text string) string {
		return fmt.Sprintf("2026-11-24 18:34:%02d,500 INFO %s\n", second, text)
	}
	audit := func(second int, operation, result, container string) string {
		return line(second, fmt.Sprintf("nodemanager.NMAuditLogger: USER=root\tOPERATION=%s\tTARGET=ContainerImpl\t"+
			"RESULT=%s\tAPPID=%s\tCONTAINERID=%s", operation, result, app, container))
	}
	begin := func(second int, container string) string {
		return audit(second, "Start Container Request", "SUCCESS", container)
	}
	container := func(n int) string { return fmt.Sprintf("container_1_0001_01_%06d", n) }
	node := line(0, "nodemanager.NodeManager: STARTUP_MSG: ") +
		begin(1, container(1)) + audit(2, "Container Finished - Succeeded", "SUCCESS", container(1)) +
		begin(2, container(2)) + audit(3, "Container Finished - Killed", "SUCCESS", container(2)) +
		begin(3, container(3)) + audit(4, "Container Finished - Failed", "FAILURE", container(3)) +
		begin(4, container(4)) + audit(5, "Stop Container Request", "SUCCESS", container(4)) +
		audit(5, "Container Finished - Killed", "SUCCESS", container(4)) +
		begin(6, container(5)) + line(7, "anything") +
		line(20, "nodemanager.NodeManager: STARTUP_MSG: ") +
		begin(21, container(6)) + audit(41, "Container Finished - Killed", "SUCCESS", container(6))
	moved := func(second, n int, from, to string) string {
		return line(second, "rmcontainer.RMContainerImpl: "+container(n)+" Container Transitioned from "+from+" to "+to)
	}
	rm := moved(8, 7, "ACQUIRED", "KILLED") + moved(9, 8, "RESERVED", "KILLED") + moved(10, 5, "RUNNING", "KILLED") +
		line(40, "rmapp.RMAppImpl: "+app+" State change from RUNNING to FINAL_SAVING on event = ATTEMPT_UNREGISTERED") +
		moved(41, 6, "RUNNING", "KILLED") + moved(41, 9, "ALLOCATED", "KILLED")

	// A master that is killed: its application ends in the same moment, and then its NodeManager hears of it.
	const master = "container_e07_1_0002_01_000001"
	rm += line(42, "rmcontainer.RMContainerImpl: "+master+" Container Transitioned from RUNNING to KILLED") +
		line(42, "rmapp.RMAppImpl: application_1_0002 State change from RUNNING to FINAL_SAVING on event = ATTEMPT_FAILED")
	node += begin(22, master) + audit(43, "Container Finished - Killed", "SUCCESS", master)

	// Of another one, the ResourceManager asks for the end before its NodeManager is gone.
	const other = "container_e07_1_0003_01_000001"
	rm += line(44, "rmcontainer.RMContainerImpl: "+other+" Container Transitioned from RUNNING to KILLED") +
		line(44, "rmapp.RMAppImpl: application_1_0003 State change from RUNNING to FINAL_SAVING on event = ATTEMPT_FAILED")
	node += begin(23, other) + audit(45, "Stop Container Request", "SUCCESS", other)

	a := accounts{apps: map[string]time.Time{}, dropped: map[string]Killed{}, all: map[string]*account{}}
	a.readRM(rm)
	a.readNode("w", node)
	l := a.ledger()
	if on := l.On("application_1_0002"); len(on) != 1 || on["w"] != 1 {
		t.Errorf("the second application was on %v", on)
	}
	var have []string
	for _, k := range l.Killed {
		number := strings.TrimLeft(k.Container[len(k.Container)-6:], "0")
		have = append(have, strings.TrimSpace(fmt.Sprintf("%s at %d: %s %s", number, k.At.Second(), k.How, k.Node)))
	}
	want := []string{"2 at 3: Killed w", "3 at 4: Failed w", "5 at 10: gone with its NodeManager w",
		"1 at 42: Killed w", "1 at 44: gone with its NodeManager w", "7 at 8: KILLED"}
	if l.Started != 8 || !slices.Equal(have, want) {
		t.Errorf("of %d containers were killed\n%q, want\n%q", l.Started, have, want)
	}
}
