package pool

import "time"

// begin begins a deadline, or moves one to an earlier time.
func (m *Marks) begin(manager *Manager, until time.Time) {
	if m.Until.IsZero() {
		m.From = manager.Total
	}
	m.Until = until
}

// lift ends a deadline.
func (m *Marks) lift() { m.Until, m.Into, m.From = time.Time{}, Size{}, Size{} }

// lift ends the deadline of a shrink that is no longer needed: the usage fits into the size for which the deadline was
// set, or the node has room for it again. It also ends a deadline whose containers have ended, if the shrink reached
// the ResourceManager: containers that do not fit into a size that it has not received yet get their own deadline.
func (r *round) lift(m *Manager) {
	r.short(m)
	if m.Used.Fits(r.marks.Into) || r.labelled(m) && m.Used.Fits(r.room()) || r.heard(m) && m.Used.Fits(m.Total) {
		r.marks.lift()
	}
}

// heard reports whether a shrink has reached the ResourceManager since the deadline began. The total of a NodeManager
// that is decommissioned does not show that, because it is what is in use.
func (r *round) heard(m *Manager) bool {
	return !r.marks.Until.IsZero() && m.State != decommissioning && !r.marks.From.Fits(m.Total)
}

// ending reports whether a deadline that has reached the ResourceManager is near or has passed. A further shrink would
// then end more containers at that deadline, without notice, so the worker does not shrink until the deadline is over.
func (r *round) ending(m *Manager) bool {
	return r.heard(m) && r.marks.Until.Sub(r.in.Now) < min(minNotice, r.set.Grace/4)
}

// labelled reports whether only containers of the pool's label land on a NodeManager.
func (r *round) labelled(m *Manager) bool { return r.in.RM.Labels && m.Label == r.set.Label }

// has returns what the node has for the worker now: of CPU, only what batch may use.
func (r *round) has() Size {
	f := &r.w.Figures
	return Size{MemoryMiB: f.Now.MemoryMiB, VCores: min(f.Now.VCores, f.Spare.VCores)}.Or(r.set.Floor)
}

// short records whether the node had less memory than containers use. So deep a fall makes the margin so large that it
// would end the same containers after the fall. So they need not leave the margin free until it fits beside them.
func (r *round) short(m *Manager) {
	switch has := r.has().MemoryMiB; {
	case m.Used.MemoryMiB > has:
		r.marks.Short = true
	case m.Used.MemoryMiB <= has-r.margin(has):
		r.marks.Short = false
	}
}

// room returns what the node has for running containers. Containers that fit into it are not ended.
func (r *round) room() Size {
	room := r.has()
	if !r.marks.Short {
		room.MemoryMiB -= r.margin(room.MemoryMiB)
	}
	return room.Or(r.set.Floor)
}

// kept returns what a worker keeps at least, whatever its figures over time say: what its containers use, as far as the
// node has room for it now. What the node takes back comes from what is not in use, and nothing new fits.
func (r *round) kept(m *Manager) Size {
	room, f, c, step := r.room(), r.set.Floor, r.set.Ceiling, r.set.Step
	return Size{
		MemoryMiB: keep(m.Used.MemoryMiB, m.Total.MemoryMiB, room.MemoryMiB, f.MemoryMiB, c.MemoryMiB, step.MemoryMiB),
		VCores:    keep(m.Used.VCores, m.Total.VCores, room.VCores, f.VCores, c.VCores, step.VCores),
	}
}

func keep(used, total, room, floor, ceiling, step int64) int64 {
	if used > room {
		return whole(room, floor, ceiling, step)
	}
	step = max(step, 1)
	// In whole steps, where they fit, so that not each container that ends is a resize.
	if up := floor + (max(used-floor, 0)+step-1)/step*step; up <= min(total, room) {
		used = up
	}
	return min(used, max(ceiling, floor))
}
