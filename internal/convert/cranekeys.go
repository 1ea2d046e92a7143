package convert

// The kinds of Crane, and the flags of its agent.
const (
	nodeQOS    = "NodeQOS"
	podQOS     = "PodQOS"
	avoidance  = "AvoidanceAction"
	craneFlags = "crane-agent"
)

// The notes that several of Crane's keys have.
const (
	noteBuiltIn = "When a node is short, and when no longer, is built in: batch is pushed back within 300 ms, and " +
		"evicted after some seconds without memory."
	noteRUE = "It needs a kernel of TencentOS, and Waterline does not set it."
)

// CraneKeys returns the table of Crane's keys, as of its API in November 2024 (ensurance/v1alpha1 of gocrane/api at
// fef1b667) and the flags of its agent (gocrane/crane at 2b0ddae8).
func CraneKeys() []Key {
	return []Key{
		{nodeQOS, []string{"selector"}, Equal, "nodeSelector", "", selector},
		{nodeQOS, []string{"rules[].name", "rules[].avoidanceThreshold", "rules[].restoreThreshold"}, None, "", noteBuiltIn,
			anything},
		{nodeQOS, []string{"rules[].metricRule.name", "rules[].metricRule.value"}, Nearest, "cpu.waterline, memory.waterline",
			"`cpu_total_utilization` and `memory_total_utilization` become waterlines, the lowest of each, the first with " +
				"`suppression: Arithmetic`. `container_sched_run_queue_time` is `suppression: OnHarm` with " +
				"`protect.interference`. Other metrics have no counterpart: write an amount as a percentage of the capacity.",
			anything},
		{nodeQOS, []string{"rules[].metricRule.selector"}, None, "", "The waiting of each online pod counts.", selector},
		{nodeQOS, []string{"rules[].actionName"}, Nearest, "cpu.suppression, protect.eviction", "An action with `throttle` " +
			"is `cpu.suppression`, one with `eviction` is `protect.eviction`. An action with neither keeps new pods away: " +
			"the offer shrinks by itself.", words},
		{nodeQOS, []string{"rules[].strategy"}, Nearest, "mode", "`Preview` is mode `Observe`, which counts for the whole " +
			"policy.", oneOf("None", "Preview")},
		{nodeQOS, []string{"elasticCpuLimit.elasticNodeCpuLimit.percent"}, Equal, "cpu.waterline, cpu.suppression", "",
			percent},
		{nodeQOS, []string{"elasticCpuLimit.elasticCoreCpuLimit[].coreNum", "elasticCpuLimit.elasticCoreCpuLimit[].percent",
			"elasticCpuLimit.elasticCoreCpuLimitPeriod[].offlineCpuLimit",
			"elasticCpuLimit.elasticCoreCpuLimitPeriod[].coreNum", "elasticCpuLimit.elasticCoreCpuLimitPeriod[].percent"}, None,
			"", "Batch is not limited core by core. Times of day are `windows` of a policy.", anything},
		{nodeQOS, []string{"elasticCpuLimit.elasticCpuAvoidance.enable"}, Nearest, "cpu.suppression",
			"Without a limit of use, `OnHarm` takes CPU from batch where online pods wait, not core by core.", boolean},
		{nodeQOS, []string{"nodeQualityProbe.httpGet", "nodeQualityProbe.timeoutSeconds",
			"nodeQualityProbe.nodeLocalGet.localCacheTTLSeconds"}, None, "", noteMeasure, anything},
		{nodeQOS, []string{"memLimit.pageCacheLimitGlobal", "memLimit.pageCacheLimitRetryTimes", "memoryCompression.enable"},
			None, "", noteRUE, anything},
		{nodeQOS, []string{"netLimits.*"}, None, "", noteNetwork, anything},

		{podQOS, []string{"labelSelector"}, Equal, "batchPods[].selector", "", selector},
		{podQOS, []string{"scopeSelector.matchExpressions[].scopeName", "scopeSelector.matchExpressions[].operator",
			"scopeSelector.matchExpressions[].values"}, Nearest, "batchPods[].namespaceSelector",
			"The scope `Namespace` becomes a selector. Rules do not select by `QOSClass` or `Priority`: label or " +
				"annotate such pods, as the head of the output says.", anything},
		{podQOS, []string{"allowedActions"}, Nearest, "batchPods", "Pods that may be throttled or evicted are batch pods. " +
			"`waterline.io/evict: never` on a pod keeps it.", anything},
		{podQOS, []string{"podQualityProbe.httpGet", "podQualityProbe.timeoutSeconds"}, None, "",
			"`protect.services` reads a figure of a service, such as the 99th percentile, and takes CPU from batch by it.",
			anything},
		{podQOS, []string{"resourceQOS.cpuQOS.cpuSet.cpuSet"}, Equal, "podDefaults[].cpuManager", "",
			oneOf("none", "exclusive", "share")},
		{podQOS, []string{"resourceQOS.cpuQOS.cpuPriority", "resourceQOS.cpuQOS.containerPriority.*"}, None, "",
			"There are two levels, online and batch, and weights: `podDefaults[].cpuShare`.", number(0, 7)},
		{podQOS, []string{"resourceQOS.cpuQOS.cpuBurst.burstQuota"}, Nearest, "protect.burst",
			"It holds for all online pods, and its bounds are fixed.", anything},
		{podQOS, []string{"resourceQOS.cpuQOS.htIsolation.enable"}, None, "",
			"`cpuPlacement: PhysicalCores` gives pods with CPUs of their own whole cores.", boolean},
		{podQOS, []string{"resourceQOS.cpuQOS.rdt.*.*", "resourceQOS.cpuQOS.containerRdt.*.*.*"}, None, "", noteCache,
			anything},
		{podQOS, []string{"resourceQOS.memoryQOS.memPriority"}, Nearest, "protect.memory",
			"There are two levels: batch is reclaimed and killed first.", number(0, 7)},
		{podQOS, []string{"resourceQOS.memoryQOS.memAsyncReclaim.asyncRatio",
			"resourceQOS.memoryQOS.memAsyncReclaim.asyncDistanceFactor", "resourceQOS.memoryQOS.memWatermark.watermarkRatio",
			"resourceQOS.memoryQOS.memPageCacheLimit.pageCacheMaxRatio",
			"resourceQOS.memoryQOS.memPageCacheLimit.pageCacheReclaimRatio",
			"resourceQOS.memoryQOS.memoryCompression.*"}, None, "", noteRUE, anything},
		{podQOS, []string{"resourceQOS.netIOQOS.netIOPriority", "resourceQOS.netIOQOS.containersPriority.*",
			"resourceQOS.netIOQOS.netIOLimits.*", "resourceQOS.netIOQOS.devNetIOLimits.*.*",
			"resourceQOS.netIOQOS.whitelistPorts.*"}, None, "", noteNetwork, anything},
		{podQOS, []string{"resourceQOS.diskIOQOS.diskIOWeight.weight", "resourceQOS.diskIOQOS.diskIOLimit.*"}, None, "",
			noteBlock, anything},

		{avoidance, []string{"coolDownSeconds"}, None, "", noteBuiltIn, positive},
		{avoidance, []string{"throttle.cpuThrottle.minCPURatio"}, Nearest, "cpu.minBatch",
			"Here it is a part of the node that batch keeps as a whole. It is left out: choose one.", percent},
		{avoidance, []string{"throttle.cpuThrottle.stepCPURatio"}, None, "", noteBuiltIn, percent},
		{avoidance, []string{"throttle.memoryThrottle.forceGC"}, Nearest, "protect.memory",
			"Page cache of batch pods is reclaimed before memory is short. It needs cgroup v2.", boolean},
		{avoidance, []string{"eviction.terminationGracePeriodSeconds"}, None, "",
			"Pods keep their own terminationGracePeriodSeconds.", positive},
		{avoidance, []string{"description"}, None, "", "It is a remark.", words},

		{craneFlags, []string{"node-resource-reserved"}, Equal, "cpu.waterline, memory.waterline", "", words},
		{craneFlags, []string{"execute-excess", "collect-interval", "max-inactivity", "cpu-manager-reconcile-period"}, None,
			"", noteBuiltIn, words},
		{craneFlags, []string{"default-cpu-policy"}, None, "",
			"Pods without an annotation run on all CPUs that no pod has exclusively. Rules of podDefaults choose for others.",
			oneOf("none", "exclusive", "numa", "immovable")},
		{craneFlags, []string{"hostname-override", "runtime-endpoint", "cgroup-driver", "sys-path", "kubelet-root-path",
			"enable-profiling", "bind-address", "ifaces", "v", "logtostderr", "feature-gates"}, None, "",
			"The agent finds it by itself, or has a value of the chart.", words},
		{nodeLabels, []string{"reserve.node.gocrane.io/cpu", "reserve.node.gocrane.io/memory"}, None, "",
			"Annotations of Nodes are not read. Label such nodes, and write a policy that selects them: waterline is 100 % " +
				"less this part.", anything},
	}
}
