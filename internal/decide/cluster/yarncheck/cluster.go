package yarncheck

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Properties that several checks read.
const (
	propertyRecovery = "yarn.resourcemanager.recovery.enabled"
	propertyExclude  = "yarn.resourcemanager.nodes.exclude-path"
	propertyHA       = "yarn.resourcemanager.ha.enabled"
)

// restart is what makes a changed yarn-site.xml count.
const restart = "Then start the ResourceManagers again."

func managers(in *Input, to *findings) {
	var away []string
	active := false
	for _, m := range in.Managers {
		if m.State == "" {
			away = append(away, m.Address)
		}
		active = active || m.State == "ACTIVE"
	}
	switch {
	case !active:
		to.add(Finding{
			Code: NoActiveRM, Severity: Error, Where: away, What: "No ResourceManager answers as the active one.",
			Why: "The pool can do nothing, and neither can this check.",
			Fix: Fix{Do: "Check the addresses, and that the ResourceManagers run and have elected one of them."},
		})
	case len(away) > 0:
		to.add(Finding{
			Code: RMUnreachable, Severity: Warning, Where: away, What: "A ResourceManager does not answer.",
			Why: "After the next failover, the pool may have no ResourceManager to ask.",
			Fix: Fix{Do: "Check that it runs, and that its web port can be reached from here."},
		})
	}
}

func unlisted(in *Input, to *findings) {
	const property = "yarn.resourcemanager.ha.rm-ids"
	ids := words(in.Settings[property])
	if in.Settings[propertyHA] != "true" || len(ids) <= len(in.Managers) {
		return
	}
	var addresses []string
	for _, id := range ids {
		addresses = append(addresses, in.Settings["yarn.resourcemanager.webapp.address."+id])
	}
	to.add(Finding{
		Code: RMNotListed, Severity: Warning, Property: property, Value: strings.Join(ids, ","),
		What: fmt.Sprintf("The cluster has %d ResourceManagers, and %d addresses were given.", len(ids), len(in.Managers)),
		Why:  "A pool that does not know all of them loses the cluster at a failover.",
		Fix:  Fix{Do: "Give the addresses of all: " + strings.Join(addresses, ", ") + "."},
	})
}

func minimum(in *Input, to *findings) {
	for _, m := range []struct {
		property, unit string
		floor          int64
	}{
		{"yarn.scheduler.minimum-allocation-mb", "MiB", in.Floor.MemoryMiB},
		{"yarn.scheduler.minimum-allocation-vcores", "vcores", in.Floor.VCores},
	} {
		least, err := strconv.ParseInt(in.Settings[m.property], 10, 64)
		if err != nil {
			to.unknown = fmt.Sprintf("the ResourceManager's settings have no number in %s", m.property)
			return
		}
		if least <= m.floor {
			continue
		}
		to.add(Finding{
			Code: MinimumAboveFloor, Severity: Error, Property: m.property, Value: strconv.FormatInt(least, 10),
			What: fmt.Sprintf("The smallest container has %d %s, and the pool's floor is %d.", least, m.unit, m.floor),
			Why:  "The ResourceManager shuts down a NodeManager that registers with less than the smallest container.",
			Fix: Fix{m.property, strconv.FormatInt(m.floor, 10),
				fmt.Sprintf("Or raise the pool's floor to %d %s. %s", least, m.unit, restart)},
		})
	}
}

func recovery(in *Input, to *findings) {
	const work = "yarn.resourcemanager.work-preserving-recovery.enabled"
	switch {
	case in.Settings[propertyRecovery] != "true":
		to.add(Finding{
			Code: RecoveryOff, Severity: Error, Property: propertyRecovery, Value: in.Settings[propertyRecovery],
			What: "The ResourceManager does not recover applications.",
			Why:  "When its process ends, every application of the cluster is lost.",
			Fix: Fix{propertyRecovery, "true", "Choose a yarn.resourcemanager.store.class whose store outlives the machine: " +
				"ZKRMStateStore, or FileSystemRMStateStore on a shared file system. " + restart},
		})
	case in.Settings[work] == "false":
		to.add(Finding{
			Code: RecoveryRestarts, Severity: Warning, Property: work, Value: "false",
			What: "A ResourceManager that starts again kills all containers and starts the applications anew.",
			Why:  "A failover costs all work of the cluster that is under way.",
			Fix:  Fix{work, "true", restart},
		})
	}
}

// maxExpiry is the longest time without heartbeats that is no finding. Two minutes outlast a ResourceManager that
// starts again, which was seen to take 30 s until its NodeManagers were back.
const maxExpiry = 2 * time.Minute

func expiry(in *Input, to *findings) {
	const property = "yarn.nm.liveness-monitor.expiry-interval-ms"
	ms, err := strconv.ParseInt(in.Settings[property], 10, 64)
	if err != nil {
		to.unknown = "the ResourceManager's settings have no number in " + property
		return
	}
	if ms <= maxExpiry.Milliseconds() {
		return
	}
	to.add(Finding{
		Code: ExpiryLong, Severity: Warning, Property: property, Value: strconv.FormatInt(ms, 10),
		What: fmt.Sprintf("A NodeManager that is gone counts as lost after %s.", time.Duration(ms)*time.Millisecond),
		Why: "Workers run on slack, so their nodes fail or are taken more often than others. Only when a worker counts as " +
			"lost are its containers started elsewhere.",
		Fix: Fix{property, strconv.FormatInt(maxExpiry.Milliseconds(), 10), restart},
	})
}

func hostLists(in *Input, to *findings) {
	const include = "yarn.resourcemanager.nodes.include-path"
	path := in.Settings[propertyExclude]
	switch {
	case path == "":
		to.add(Finding{
			Code: NoExcludePath, Severity: Warning, Property: propertyExclude,
			What: "There is no list of hosts to decommission.",
			Why: "The pool cannot decommission a worker gracefully. It can only shrink it to its floor and wait, and jobs " +
				"lose the output that a worker keeps for them.",
			Fix: Fix{propertyExclude, "/etc/hadoop/exclude.xml", "Make it a file that the pool can write. " + restart},
		})
	case !strings.HasSuffix(path, ".xml"):
		to.add(Finding{
			Code: ExcludePathNotXML, Severity: Warning, Property: propertyExclude, Value: path,
			What: "The list of hosts to decommission is plain text.",
			Why:  "Only in XML can a host have a timeout of its own. Workers whose time ends differently need that.",
			Fix: Fix{propertyExclude, strings.TrimSuffix(path, ".txt") + ".xml",
				"The file's name must end in .xml: <hosts><host><name>h1</name><timeout>60</timeout></host></hosts>. " + restart},
		})
	}
	if path := in.Settings[include]; path != "" {
		to.add(Finding{
			Code: IncludePathSet, Severity: Warning, Property: include, Value: path,
			What: "Only hosts of a list may register.",
			Why:  "The ResourceManager shuts down a worker whose host is not in the list.",
			Fix:  Fix{Do: "Add the host name of every worker of the pool, and run yarn rmadmin -refreshNodes."},
		})
	}
}

func access(in *Input, to *findings) {
	const kind, admins = "hadoop.http.authentication.type", "yarn.admin.acl"
	if value := in.Settings[kind]; value == "simple" || value == "" {
		how := "The web service believes every user name"
		if in.Settings["hadoop.http.authentication.simple.anonymous.allowed"] != "false" {
			how += ", and needs none"
		}
		to.add(Finding{
			Code: WebPortOpen, Severity: Warning, Property: kind, Value: "simple",
			What: how + fmt.Sprintf(" (hadoop.security.authentication is %q).", in.Settings["hadoop.security.authentication"]),
			Why: "Whoever reaches the port can change the size of every node, which kills containers, and can submit and kill " +
				"applications. Resizing a node needs no right of an administrator.",
			Fix: Fix{kind, "kerberos", "With Kerberos in the whole cluster. Without it, let only the pool's controller, the " +
				"jobs' clients and the nodes reach the port, by a network policy or a firewall."},
		})
	}
	acl := in.Settings[admins]
	users, groups, _ := strings.Cut(acl, " ")
	if in.User != "" && acl != "" && strings.TrimSpace(acl) != "*" && !slices.Contains(words(users), in.User) {
		f := Finding{
			Code: UserNotAdmin, Severity: Warning, Where: []string{"user " + in.User}, Property: admins, Value: acl,
			What: "The pool's user is no administrator, unless the ResourceManager runs as this user",
			Why:  "Only administrators can label nodes, and refresh the list of hosts to decommission.",
			Fix:  Fix{admins, strings.TrimPrefix(users+","+in.User+" "+groups, ","), "Then run yarn rmadmin -refreshAdminAcls."},
		}
		if groups = strings.TrimSpace(groups); groups != "" {
			f.What += ", or belongs to the group " + strings.Join(words(groups), " or ")
		}
		f.What += "."
		f.Fix.Value = strings.TrimSpace(f.Fix.Value)
		to.add(f)
	}
}

func hosts(in *Input, to *findings) {
	var unknown, other, others []string
	for _, h := range in.Hosts {
		is := func(name string) bool { return strings.EqualFold(strings.TrimSuffix(name, "."), h.Name) }
		isAddress := slices.Contains(h.Addresses, h.Name)
		switch {
		case len(h.Addresses) == 0:
			unknown = append(unknown, h.Name)
		case !isAddress && !slices.ContainsFunc(h.Back, is):
			back := cmp.Or(strings.Join(h.Back, ","), "nothing")
			other, others = append(other, h.Name), append(others, strings.Join(h.Addresses, ",")+" is "+back)
		}
	}
	const why = "NodeManagers, ResourceManager and jobs find each other by these names. A worker whose name differs " +
		"from host to host registers under a name that has no label, or its containers cannot be reached."
	to.at(unknown, Finding{
		Code: HostUnknown, Severity: Warning,
		What: "The host names of NodeManagers do not resolve from here.", Why: why,
		Fix: Fix{Do: "Add the names to DNS. If they resolve inside the cluster only, run this check there."},
	})
	to.at(other, Finding{
		Code: HostOtherName, Severity: Warning, Value: strings.Join(others[:min(len(others), 5)], "; "),
		What: "The addresses of NodeManagers do not resolve back to their host names.", Why: why,
		Fix: Fix{Do: "Add the reverse records to DNS. For pods, use a headless Service and stable host names."},
	})
}

// words splits a list at commas.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
