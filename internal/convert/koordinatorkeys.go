package convert

// The keys of Koordinator's ConfigMap slo-controller-config, which are also the parts of a NodeSLO.
const (
	colocation    = "colocation-config"
	threshold     = "resource-threshold-config"
	qos           = "resource-qos-config"
	burst         = "cpu-burst-config"
	system        = "system-config"
	hostApps      = "host-application-config"
	normalization = "cpu-normalization-config"
	amplification = "resource-amplification-config"

	profile    = "ClusterColocationProfile"
	nodeLabels = "Node"
)

// The notes that several keys have.
const (
	noteMeasure = "The agent measures each second and reports what changed; there is nothing to set."
	noteBlock   = "Waterline does not limit block I/O. See docs/comparison.md for what to use."
	noteNetwork = "Waterline does not limit networks. See docs/comparison.md for what to use."
	noteCache   = "Waterline does not partition caches or memory bandwidth. With protect.services, it gives batch less " +
		"CPU while a service's own figure is too high."
	noteSysctl = "Waterline writes no setting of the kernel as a whole. Set it where you set sysctls."
	noteEvict  = "The conditions are fixed: no memory is left for batch under the waterline, or a batch pod got less " +
		"than a fifth of its CPU for five minutes."
	noteOversell = "Waterline does not change what a Node has for online pods."
	noteTemplate = "The webhook changes only requests and the priority class of batch pods. Write it in pod templates."
	noteVendor   = "It needs a kernel of Anolis OS or Alibaba Cloud Linux, and Waterline does not set it."
)

// KoordinatorKeys returns the table of Koordinator's keys, as of its API in July 2026 (apis/configuration, apis/slo and
// apis/config of koordinator-sh/koordinator at a7a1b76b).
func KoordinatorKeys() []Key {
	return []Key{
		{colocation, []string{"enable"}, Equal, "cpu, memory", "", boolean},
		{colocation, []string{"cpuReclaimThresholdPercent"}, Equal, "cpu.waterline", "", positive},
		{colocation, []string{"memoryReclaimThresholdPercent"}, Equal, "memory.waterline", "", positive},
		{colocation, []string{"cpuCalculatePolicy"}, Nearest, "cpu.method", "`usage` is `Realtime`. " +
			"`maxUsageRequest`, which does not sell what online pods request and leave unused, is `Predicted`: it sells what " +
			"they are not expected to use. Prefer `Predicted` for `usage` too: its offers fall less often.",
			oneOf("usage", "request", "maxUsageRequest")},
		{colocation, []string{"memoryCalculatePolicy"}, Nearest, "memory.method", "`usage` is `Realtime`. " +
			"`request` and `maxUsageRequest` are `Predicted`, which sells what online pods are not expected to use.",
			oneOf("usage", "request", "maxUsageRequest")},
		{colocation, []string{"midCPUThresholdPercent", "midMemoryThresholdPercent"}, Nearest, "cpu.mid, memory.mid",
			"Here it is a part of the room under the waterline, not of the capacity.", percent},
		{colocation, []string{"midReclaimMode", "midStaticCPUReservedPercent", "midStaticMemoryReservedPercent"}, None, "",
			"The tier mid follows the predicted peak of a day. There is no fixed amount.", anything},
		{colocation, []string{"midUnallocatedPercent"}, None, "",
			"The tier mid follows the predicted peak of a day, whatever is allocated.", percent},
		{colocation, []string{"batchCPUThresholdPercent", "batchMemoryThresholdPercent"}, None, "",
			"The waterline is the only bound of an offer. Lower it.", positive},
		{colocation, []string{"metricAggregateDurationSeconds", "metricReportIntervalSeconds",
			"metricAggregatePolicy.durations"}, None, "", noteMeasure, anything},
		{colocation, []string{"metricMemoryCollectPolicy"}, Nearest, "",
			"Waterline counts the working set: all memory but the inactive page cache.",
			oneOf("usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache")},
		{colocation, []string{"degradeTimeMinutes"}, None, "", "The manager withdraws the offer of a node whose agent is " +
			"lost for 60 s.", positive},
		{colocation, []string{"updateTimeThresholdSeconds", "resourceDiffThreshold"}, None, "",
			"An offer shrinks at once and grows in steps of at least 2.5 % of the capacity.", positive},
		{colocation, []string{"extensions"}, None, "", "Extensions of others have no counterpart.", anything},

		{threshold, []string{"enable"}, Nearest, "cpu.suppression", "Without it, batch is not suppressed: `None`. Prefer " +
			"`OnHarm`: batch uses the whole machine until an online pod waits longer for CPUs than without batch.", boolean},
		{threshold, []string{"cpuSuppressThresholdPercent"}, Nearest, "cpu.waterline",
			"One waterline bounds both what is sold and what batch uses. It is taken from `cpuReclaimThresholdPercent`.",
			percent},
		{threshold, []string{"cpuSuppressMinPercent"}, Equal, "cpu.minBatch", "", percent},
		{threshold, []string{"cpuSuppressPolicy"}, Nearest, "cpu.suppression",
			"The size of the node and its cores decide between fewer CPUs, of which batch keeps no two, and a quota of each " +
				"batch pod instead of their class.", oneOf("cpuset", "cfsQuota")},
		{threshold, []string{"memoryEvictThresholdPercent", "memoryEvictLowerPercent"}, Nearest, "protect.eviction",
			noteEvict, percent},
		{threshold, []string{"memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent"}, Nearest,
			"protect.eviction", noteEvict, positive},
		{threshold, []string{"cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent",
			"cpuEvictBEUsageThresholdPercent"}, Nearest, "protect.eviction", noteEvict, percent},
		{threshold, []string{"cpuEvictTimeWindowSeconds"}, Nearest, "protect.eviction", noteEvict, positive},
		{threshold, []string{"cpuEvictPolicy"}, Nearest, "protect.eviction", noteEvict,
			oneOf("evictByRealLimit", "evictByAllocatable")},
		{threshold, []string{"cpuEvictThresholdPercent", "cpuEvictLowerPercent"}, None, "",
			"High usage is no reason to evict: batch is suppressed.", percent},
		{threshold, []string{"cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent"}, None, "",
			"Batch beyond the offer is no reason to evict: it is suppressed, and evicted if it starves.", positive},
		{threshold, []string{"evictEnabledPriorityThreshold", "allocatableEvictPriorityThreshold"}, None, "",
			"Only batch pods are evicted. `waterline.io/evict: first` and `never` on a pod order them.", anything},

		{qos, []string{"policies.cpuPolicy"}, Nearest, "cpu.batchClass",
			"Core scheduling (`coreSched`) is not used.", oneOf("groupIdentity", "coreSched")},
		{qos, []string{"policies.netQOSPolicy"}, None, "", noteNetwork, words},
		{qos, []string{"*.cpuQOS.enable", "*.cpuQOS.groupIdentity"}, Nearest, "cpu.batchClass",
			"The values are fixed: 2 for online pods, -1 for batch pods without a weight.", anything},
		{qos, []string{"*.cpuQOS.schedIdle"}, Nearest, "cpu.batchClass",
			"It is set on pods, and only on batch pods without a weight.", number(0, 1)},
		{qos, []string{"*.cpuQOS.coreExpeller"}, None, "", "Core scheduling is not used. " +
			"`waterline.io/cpu-placement: pcpu-only` gives a pod whole cores.", boolean},
		{qos, []string{"*.memoryQOS.enable"}, Nearest, "protect.memory", "It holds for all classes.", boolean},
		{qos, []string{"*.memoryQOS.minLimitPercent", "*.memoryQOS.lowLimitPercent"}, Nearest, "protect.memory",
			"The protection is the whole memory request: `memory.min` for `LSE` and `LSR`, `memory.low` for other online " +
				"pods.", percent},
		{qos, []string{"*.memoryQOS.throttlingPercent"}, Nearest, "protect.memory",
			"`memory.high` is set on batch pods when memory runs short, and computed from what is left.", percent},
		{qos, []string{"*.memoryQOS.wmarkRatio", "*.memoryQOS.wmarkScalePermill", "*.memoryQOS.wmarkMinAdj",
			"*.memoryQOS.pageCacheEnable", "*.memoryQOS.pageCacheLimitPercent", "*.memoryQOS.pageCacheLimitSize",
			"*.memoryQOS.pageCacheReclaimSync"}, None, "", noteVendor + " With protect.memory, page cache of batch pods is " +
			"reclaimed before memory is short.", anything},
		{qos, []string{"*.memoryQOS.priorityEnable", "*.memoryQOS.priority", "*.memoryQOS.oomKillGroup"}, None, "",
			"With protect.memory, batch containers that start through NRI are killed first.", number(0, 12)},
		{qos, []string{"*.blkioQOS.enable", "*.blkioQOS.blocks[].name", "*.blkioQOS.blocks[].type",
			"*.blkioQOS.blocks[].ioCfg.*"}, None, "", noteBlock, anything},
		{qos, []string{"*.resctrlQOS.enable"}, None, "", noteCache, boolean},
		{qos, []string{"*.resctrlQOS.catRangeStartPercent", "*.resctrlQOS.catRangeEndPercent", "*.resctrlQOS.mbaPercent"},
			None, "", noteCache, percent},
		{qos, []string{"*.networkQOS.enable", "*.networkQOS.ingressRequest", "*.networkQOS.ingressLimit",
			"*.networkQOS.egressRequest", "*.networkQOS.egressLimit"}, None, "", noteNetwork, anything},

		{burst, []string{"policy"}, Nearest, "protect.burst",
			"`cpuBurstOnly`, `cfsQuotaBurstOnly` and `auto` are `true`: both ways of bursting, as far as the kernel has them.",
			oneOf("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto")},
		{burst, []string{"cpuBurstPercent", "cfsQuotaBurstPercent", "cfsQuotaBurstPeriodSeconds"}, None, "",
			"The bounds are fixed: a tenth more over five minutes, three times the limit for a moment.", anything},
		{burst, []string{"sharePoolThresholdPercent"}, None, "",
			"No pod exceeds its limit while less than 5 % of the node is left under the waterline.", percent},

		{system, []string{"minFreeKbytesFactor", "watermarkScaleFactor", "memcgReapBackGround", "schedGroupIdentityEnabled",
			"schedIdleSaverWmark", "pageCacheLimitEnabled"}, None, "", noteSysctl, positive},
		{system, []string{"schedFeatures", "totalNetworkBandwidth"}, None, "", noteSysctl, anything},

		{hostApps, []string{"applications[].name", "applications[].priority", "applications[].qos",
			"applications[].cgroupPath.base", "applications[].cgroupPath.parentDir",
			"applications[].cgroupPath.relativePath", "applications[].strategy"}, None, "",
			"What runs outside of pods counts as the system's. Run NodeManagers as pods instead: see docs/yarn.md.", anything},

		{normalization, []string{"enable", "defaultRatio", "ratioModel.*.baseRatio",
			"ratioModel.*.hyperThreadEnabledRatio", "ratioModel.*.turboEnabledRatio",
			"ratioModel.*.hyperThreadTurboEnabledRatio"}, None, "", "CPUs of all models count alike. " + noteOversell, anything},
		{amplification, []string{"enable", "resourceAmplificationRatio.*"}, None, "", noteOversell, anything},

		{profile, []string{"selector"}, Equal, "batchPods[].selector", "", selector},
		{profile, []string{"namespaceSelector"}, Equal, "batchPods[].namespaceSelector", "", selector},
		{profile, []string{"probability"}, Nearest, "batchPods[].owners",
			"It counts owners, such as Deployments, instead of drawing for each pod.",
			rule{"a percentage such as 30%", func(v any) bool {
				_, err := partOf(v)
				return err == nil
			}}},
		{profile, []string{"qosClass"}, Nearest, "batchPods, podDefaults, privileges",
			"`BE` makes pods batch. `LSE` and `LSR` give their CPUs by `podDefaults`. `LS` is the default. `SYSTEM` is a " +
				"label on the pods' templates.", oneOf("LSE", "LSR", "LS", "BE", "SYSTEM")},
		{profile, []string{"priorityClassName"}, Nearest, "batchPods[].tier",
			"`koord-mid` is tier `Mid`, all others are `Batch`. The webhook names `waterline-mid` or `waterline-batch` where " +
				"a pod has no class with a value below 0.", words},
		{profile, []string{"koordinatorPriority"}, None, "", "There is no order within a priority class.", anything},
		{profile, []string{"labels", "annotations", "labelKeysMapping", "annotationKeysMapping", "labelSuffixes",
			"schedulerName", "patch"}, None, "", noteTemplate, anything},

		{nodeLabels, []string{"node.koordinator.sh/cpu-reclaim-ratio"}, Equal, "nodeSelector, cpu.waterline", "", anything},
		{nodeLabels, []string{"node.koordinator.sh/memory-reclaim-ratio"}, Equal, "nodeSelector, memory.waterline", "",
			anything},
		{nodeLabels, []string{"node.koordinator.sh/colocation-strategy"}, None, "",
			"Annotations of Nodes are not read. Label such nodes, and write a policy that selects them.", anything},
		{nodeLabels, []string{"node.koordinator.sh/reservation"}, None, "",
			"Waterline takes what the kubelet reserves: set systemReserved and reservedSystemCPUs there.", anything},
		{nodeLabels, []string{"node.koordinator.sh/mid-static-cpu-reserved-ratio",
			"node.koordinator.sh/mid-static-memory-reserved-ratio"}, None, "",
			"The tier mid follows the predicted peak of a day. There is no fixed amount.", anything},
		{nodeLabels, []string{"node.koordinator.sh/cpu-normalization-enabled",
			"node.koordinator.sh/cpu-normalization-ratio", "node.koordinator.sh/resource-amplification-ratio"}, None, "",
			noteOversell, anything},
	}
}
