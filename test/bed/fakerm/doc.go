// Package fakerm is a ResourceManager of YARN whose NodeManagers and containers are numbers. It serves the part of the
// web services that internal/yarn uses, in real time, and does what Hadoop 3.5.0 was seen to do:
//
//   - A NodeManager registers with the size in its configuration and with the label of its host. One that has less than
//     the scheduler's minimum allocation, and runs nothing, is refused.
//   - A resize to the same size is ignored, deadline included. Containers that do not fit at the deadline are killed,
//     newest first. Just after a resize, a node can show that nothing is used.
//   - The next ResourceManager has another start time. It knows no deadline, and hears from NodeManagers after a while,
//     with the totals that they heard of.
//   - A label is a property of a host, also of one that nobody has seen yet, or of one NodeManager of a host, which
//     goes before. A new label of the host replaces those of all its NodeManagers.
//
// It decommissions nothing gracefully, because that is a call of the administration protocol.
package fakerm
