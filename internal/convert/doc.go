// Package convert turns the configuration of other co-location systems into ColocationPolicies. It works on values and
// does no I/O.
//
// Each system has a table of its keys ([KoordinatorKeys], [CraneKeys], [CPUShareSyncerKeys]), which says how Waterline
// covers each of them. Every key that an input has is looked up there: a value that the other system would refuse is an
// error, and a key without an equal becomes a note beside the policy. The tables stand in the documents too.
package convert
