// Package yarn runs a real ResourceManager and real NodeManagers of Hadoop on this machine for tests, each a process of
// its own that can be killed and started again.
//
// [Enter] runs the calling program once more in PID, mount, network and host name namespaces. The daemons that [Up]
// starts there have host names and a file system for their state that exist nowhere else. When the program ends, for
// whatever reason, the kernel ends every process inside, and the names and the state go too. Only logs stay.
//
//	the program               init (PID 1 inside)             the program (inside)
//	  calls Enter               mounts, host names, network     calls Enter, which returns
//	  starts init               starts the program again        calls Up
//	  returns its exit code     reaps orphaned containers       runs the tests
//
// With [Options.Kerberos], a KDC of MIT Kerberos runs there too, with a realm that is made for this cluster.
//
// Every NodeManager has a host name, nm1.bed and so on, and a loopback address of its own, so the ports are the usual
// ones.
package yarn
