package main

// The peers' figures for the cost and the speed of an agent.
const (
	peerSpeed = "10 s iQIYI; 1–10 s koordlet; ≤ 5 s Crane"
	peerTail  = "1.25 at 49 % CPU plugsched; 1.03–1.05 at 65 % with a vendor kernel"
)

// sections returns the page's tables. A new figure is a new line here.
func sections() []section {
	const (
		percent      = 100 // for metrics from 0 to 1
		mostNode     = 5   // writes a second, of 5,000 nodes
		mostReport   = 15
		mostNodeRamp = 10 // in two hours in which free CPU falls from 60 to 20 %
	)
	return []section{
		{"Weights", "", []figure{
			{"CPU of two pods annotated 1:2, 30 s", "weights", "ratio", "%.3f", 0, about(2, 2), "about 2:1"},
			{"the same, beside a pod of 262144 that burns all CPUs", "weights-hog", "ratio", "%.3f", 0, about(2, 3), ""},
			{"the same on a real node, 10 min", "node-weights", "ratio", "%.3f", 0, about(2, 2), ""},
			{
				"share of a pod of 262144 that arrives among three of 10240", "preempt", "share", "%.2f %%", percent,
				theory("theory", 3), "",
			},
			{"the same, beside the burning pod", "preempt-hog", "share", "%.2f %%", percent, theory("theory", 3), ""},
			{"share of a pod weighted in its container only → in its pod and its QoS class", "hierarchy",
				"container_share class_share", "%.1f %%", percent, goal{}, ""},
			{"seconds per second of media, weighted transcodes → those beside them without a weight", "transcode",
				"time_per_media_second_weighted time_per_media_second_plain", "%.2f s", 0, goal{}, ""},
			{
				"another value than the plan's, of 29,585 reads on a real node", "node-weights", "wrong_reads", "%.0f", 0, zero(),
				"",
			},
			{"wrong values after 1,000 SIGKILLs of the agent", "kills", "wrong_values", "%.0f", 0, zero(), ""},
			{
				"bad ones of 10,000 annotations not reported exactly once", "annotations", "not_reported_once", "%.0f", 0, zero(),
				"",
			},
		}},
		{"The agent", "110 or 250 pods of two containers, one measurement a second. Busy: six pods work. Latencies\n" +
			"are those that an outside reader sees.", []figure{
			{
				"CPU, 110 pods, idle", "agent", "cpu_millicores_110", "%.2f mCPU", 0, atMost(2, "mCPU"),
				"83–123 mCPU koordlet, measured",
			},
			{
				"CPU, 110 pods, idle, everything switched on", "protect", "cpu_millicores_110", "%.1f mCPU", 0, atMost(2, "mCPU"),
				"",
			},
			{
				"CPU, 110 pods, busy, everything switched on", "protect", "cpu_millicores_110_busy", "%.1f mCPU", 0,
				atMost(4, "mCPU"), "",
			},
			{
				"download of the agent's image, amd64 → arm64", "release", "agent_amd64_download_mb agent_arm64_download_mb",
				"%.1f MB", 0, atMost(20, "MB"), "",
			},
			{"CPU, 250 pods, idle", "agent", "cpu_millicores_250", "%.2f mCPU", 0, goal{}, ""},
			{
				"resident memory, 110 pods", "agent", "rss_mib_110", "%.1f MiB", 0, atMost(20, "MiB"),
				"107–112 MB koordlet, measured",
			},
			{"the same, busy, everything switched on", "protect", "rss_mib_110_busy", "%.1f MiB", 0, atMost(20, "MiB"), ""},
			{
				"heap allocations of a measurement and of an audit that finds nothing", "agent", "allocs_per_tick", "%.0f", 0,
				zero(), "",
			},
			{
				"garbage of a whole round of decisions, 250 pods", "go", "round_garbage_kib", "%.0f KiB", 0, atMost(128, "KiB"), "",
			},
			{"the weight rule for 250 weighted pods, at most", "go-weight", "rule_us_max", "%.0f µs", 0, atMost(100, "µs"), ""},
			{
				"annotation patched → weight in the kernel, p99", "agent", "event_to_kernel_p99_ms", "%.1f ms", 0, atMost(50, "ms"),
				peerSpeed,
			},
			{"foreign overwrite → repaired, p99", "agent", "repair_p99_ms", "%.1f ms", 0, atMost(20, "ms"), "10–60 s"},
			{"cgroup made → weight in it, p99", "agent", "create_to_weight_p99_ms", "%.1f ms", 0, atMost(20, "ms"), ""},
			{"foreign overwrite → repaired, `drift`, p99", "drift", "repair_p99_ms", "%.2f ms", 0, atMost(20, "ms"), "10–60 s"},
			{"the same, beside a pod that burns all CPUs", "drift-hog", "repair_p99_ms", "%.2f ms", 0, atMost(20, "ms"), ""},
		}},
		{"CPU sets and bursts", "", []figure{
			{
				"CPU of the agent while a pod of 110 has a CPU alone, more", "cpuset", "cpu_millicores_110_more", "%.2f mCPU", 0,
				atMost(0.5, "mCPU"), "",
			},
			{
				"annotation changed → all of 20 containers moved, p99", "cpuset", "switch_p99_ms", "%.1f ms", 0, atMost(100, "ms"),
				"",
			},
			{
				"container's cgroup made → its list of CPUs, without NRI, p99", "cpuset", "pin_p99_ms", "%.1f ms", 0,
				atMost(20, "ms"), "",
			},
			{"one allocation, 512 CPUs, 200 pods", "cpuset", "allocate_us_512cpu_200pods", "%.0f µs", 0, atMost(300, "µs"), ""},
			{"p99 of a server beside batch → on an exclusive CPU → alone on the machine", "experiment-cpuset",
				"none_p99_ms exclusive_p99_ms alone_p99_ms", "%.2f ms", 0, goal{}, ""},
			{"threads of other pods on the exclusive CPU", "experiment-cpuset", "exclusive_intruders", "%.0f", 0, zero(), ""},
			{"p99 of a limited server with bursts, change", "burst", "p99_change_percent", "%.0f %%", 0, atMost(-35, "%"), ""},
			{"CFS periods in which it is throttled, without bursts → with bursts", "burst",
				"throttled_percent_without throttled_percent_with", "%.1f %%", 0, atMost(2, "%"), ""},
		}},
		{"Selling", "", []figure{
			{
				"online pod starts → the Node's free batch CPU is gone", "sell", "shrink_seconds", "%.1f s", 0, atMost(2, "s"),
				"5–20 min",
			},
			{
				"batch pod's cgroup made → weight, quota and memory limit, at most", "batch-pods", "pod_to_limits_max_ms",
				"%.0f ms", 0, goal{}, "",
			},
			{
				"agent killed and kept away → the manager withdraws the offer", "sell-faults", "withdrawn_after_seconds", "%.0f s",
				0, atMost(90, "s"), "",
			},
			{"pods that fail in all faults of a node that sells", "sell-faults", "pods_failed", "%.0f", 0, zero(), ""},
			{"predicted peak exceeded, co-located machines, 1 h", "predict", "alibaba2018_1h_violations", "%.1f %%", percent,
				atMost(2.5, "%"), "3.3 % Google; 9.8 % Koordinator"},
			{"CPU that it saves there", "predict", "alibaba2018_1h_savings", "%.1f %%", percent, atLeast(34, "%"),
				"22.2 % Google; 33.5 % Koordinator"},
			{"predicted peak exceeded, VM hosts, 1 h", "predict", "bitbrains_1h_violations", "%.1f %%", percent, atMost(1, "%"),
				"0.9 % Google; 5.9 % Koordinator"},
			{"CPU that it saves there", "predict", "bitbrains_1h_savings", "%.1f %%", percent, atLeast(56, "%"),
				"51.5 % Google; 62.5 % Koordinator"},
			{"predicted peak exceeded, co-located machines, 24 h", "predict", "alibaba2018_24h_violations", "%.1f %%", percent,
				atMost(5, "%"), "70 % Google; 100 % Koordinator"},
			{"CPU that it saves there", "predict", "alibaba2018_24h_savings", "%.1f %%", percent, atLeast(12, "%"),
				"22.7 % Google; 33.7 % Koordinator"},
		}},
		{"Online services beside batch",
			"p99 of Redis beside ffmpeg and stress-ng, × p99 alone. At 90 % of a CPU a queue shrinks slowly.",
			[]figure{
				{"p99, Redis in pods at 30 % of a CPU: plain Kubernetes → with Waterline", "colocate-pods",
					"plain_30_p99_ratio waterline_30_p99_ratio", "%.2f ×", 0, atMost(1.03, "×"), peerTail},
				{"the same, at 60 %", "colocate-pods", "plain_60_p99_ratio waterline_60_p99_ratio", "%.2f ×", 0,
					atMost(1.03, "×"), ""},
				{"CPU used there, the least", "colocate-pods", "cpu_total_percent", "%.0f %%", 0, atLeast(97, "%"), ""},
				{"of what was free there, batch has", "colocate-pods", "batch_share_of_free_cpu", "%.2f", 0, atLeast(0.95, ""), ""},
				{"p99 in cgroups, the worst of 30, 60 and 90 %: plain Kubernetes → with Waterline", "colocate-harm",
					"p99_ratio_plain p99_ratio_waterline", "%.2f ×", 0, atMost(1.03, "×"), ""},
				{"CPU used there, the least", "colocate-harm", "cpu_total_percent", "%.0f %%", 0, atLeast(97, "%"), ""},
				{"wait that batch adds to a request there, at 60 %", "colocate-harm", "waterline_60_added_wait_ms_per_request",
					"%.3f ms", 0, atMost(0.1, "ms"), ""},
				{"p99 of the first seconds after a step to 60 %", "colocate-steps", "waterline_60_rise_p99_ratio", "%.2f ×", 0,
					atMost(1.2, "×"), ""},
				{"a real day on a real node, CPU used: without batch → with it", "headline",
					"alone_cpu_total_percent cpu_total_percent", "%.1f %%", 0, atLeast(90, "%"), "9 → 40 %"},
				{"that day: p99", "headline", "p99_ratio", "%.2f ×", 0, atMost(1.05, "×"), ""},
				{"that day: pods lost", "headline", "pods_lost", "%.0f", 0, zero(), ""},
				{
					"online demand rises → batch is limited to the rest, p99 of 60 steps", "suppress", "suppress_p99_ms", "%.0f ms", 0,
					atMost(300, "ms"), "1 s loop, at least 2 CPUs for batch",
				},
				{"interfering pod named, of 2 runs with one", "interference", "named_rightly_runs", "%.0f", 0, atLeast(2, ""), ""},
				{"the same: time to name it, at most", "interference", "seconds_to_name_max", "%.0f s", 0, goal{}, ""},
				{"false alarms, of 4 runs without one", "interference", "false_alarm_runs", "%.0f", 0, zero(), ""},
				{"requests answered from the page cache beside batch, unprotected → with `protect.memory`", "memory",
					"plain_requests_from_memory_percent waterline_requests_from_memory_percent", "%.1f %%", 0, atLeast(95, "%"), ""},
				{"refaults of the server with it, × without it", "memory", "refaults_ratio", "%.2f", 0, atMost(0.1, ""), ""},
			}},
		{"A large cluster", "5,000 nodes do not fit the machine: Leases are late. By morning free CPU falls from " +
			"60 to 20 %.", []figure{
			{
				"`waterline simulate cluster`, a day of 5,000 nodes", "simulate", "seconds_5000_nodes", "%.0f s", 0,
				atMost(300, "s"), "",
			},
			{
				"CPU of a simulated pool: none → a worker at night → all day → whose CPU follows → and memory", "simulate-pool",
				"alone_cpu_percent night_cpu_percent oversubscribed_cpu_percent 24h_cpu_percent memory_cpu_percent", "%.1f %%", 0,
				atLeast(60, "%"), "9 → 40 % iQIYI, by these stages",
			},
			{
				"core-hours of batch that day: of a worker that follows each moment → at night → of the last stage",
				"simulate-pool", "naive_goodput_core_hours night_goodput_core_hours memory_goodput_core_hours", "%.0f", 0, goal{},
				"",
			},
			{
				"the same: killed containers in a core-hour", "simulate-pool",
				"naive_killed_per_core_hour night_killed_per_core_hour memory_killed_per_core_hour", "%.3f", 0, goal{}, "",
			},
			{
				"the same: resizes of a NodeManager in an hour", "simulate-pool",
				"naive_resizes_per_manager_hour night_resizes_per_manager_hour memory_resizes_per_manager_hour", "%.1f", 0, goal{},
				"",
			},
			{
				"the same: seconds in an hour of a node in which online services use CPU promised to containers", "simulate-pool",
				"naive_short_seconds_per_node_hour night_short_seconds_per_node_hour memory_short_seconds_per_node_hour", "%.1f",
				0, goal{}, "",
			},
			{
				"pushbacks of that day without a killed container, of the last stage", "simulate-pool",
				"memory_pushbacks_without_kill_percent", "%.1f %%", 0, atLeast(99, "%"), "",
			},
			{
				"CPU of batch on the simulated node, off a real one's: limited by arithmetic → not limited", "simulated-node",
				"arithmetic_batch_percent_off unlimited_batch_percent_off", "%+.1f %%", 0, goal{}, "not published",
			},
			{
				"Node status writes a second, 5,000 nodes, simulated time", "writes", "node_status_writes_per_second", "%.1f", 0,
				atMost(mostNode, ""), "83–100",
			},
			{
				"NodeReport writes a second, the same", "writes", "node_report_writes_per_second", "%.1f", 0,
				atMost(mostReport, ""), "",
			},
			{
				"Node status writes a second in the morning, the same", "writes", "ramp_node_status_writes_per_second", "%.1f", 0,
				atMost(mostNodeRamp, ""), "",
			},
			{
				"Node status writes a second, real API server, 1,000 nodes", "scale-1000", "node_status_writes_per_second", "%.2f",
				0, atMost(mostNode/5., ""), "",
			},
			{
				"NodeReport writes a second, the same", "scale-1000", "node_report_writes_per_second", "%.2f", 0,
				atMost(mostReport/5., ""), "",
			},
			{
				"Node status writes a second, real API server, 5,000 nodes", "scale", "node_status_writes_per_second", "%.1f", 0,
				atMost(mostNode, ""), "83–100",
			},
			{
				"NodeReport writes a second, the same", "scale", "node_report_writes_per_second", "%.1f", 0, atMost(mostReport, ""),
				"",
			},
			{
				"manager, share of a core, the same", "scale", "manager_cpu_percent", "%.1f %%", 0, atMost(5, "%"), "not published",
			},
			{
				"manager, resident memory, the same", "scale", "manager_rss_mib", "%.0f MiB", 0, atMost(190, "MiB"),
				"not published",
			},
			{
				"a policy is paused → the last of 5,000 nodes follows, real API server", "pause", "fleet_last_ms", "%.0f ms", 0,
				atMost(5000, "ms"), "not published",
			},
		}},
		{"Scheduler and YARN", "", []figure{
			{
				"scheduler throughput with our plugins, × without", "scheduler", "throughput_ratio", "%.2f", 0, atLeast(0.97, ""),
				"45.6 pods/s at 100 nodes",
			},
			{"the same: p99 of a pod's latency", "scheduler", "latency_p99_ratio", "%.2f ×", 0, atMost(1.1, "×"), ""},
			{
				"weights of a node's pods, the fullest node × the mean", "scheduler", "spread_max_over_mean", "%.2f", 0,
				atMost(1.15, ""), "",
			},
			{"the same, stock scheduler", "scheduler", "spread_max_over_mean_stock", "%.2f", 0, goal{}, ""},
			{
				"two ffmpeg jobs with a weight among four on two nodes, × time by the stock scheduler", "scheduler-jobs",
				"jobs_weighted_ratio", "%.2f", 0, atMost(0.95, ""), "",
			},
			{"failed YARN jobs while NodeManagers are resized", "yarn", "failed_jobs", "%.0f", 0, zero(), ""},
			{
				"from a node's report to the resize of its NodeManager, p99, heartbeats of 1 s", "yarn", "resize_heartbeats",
				"%.1f", 0, atMost(2, ""), "",
			},
			{
				"requests a second to the ResourceManager, 500 NodeManagers", "yarn", "rm_requests_per_second_500", "%.0f", 0,
				atMost(25, ""), "",
			},
			{"Spark jobs an hour beside Redis on one node", "yarn", "spark_waterline_jobs_per_hour", "%.0f", 0, goal{}, ""},
			{
				"guard beside 40 containers, idle: resident memory", "guard", "rss_mb_40", "%.1f MB", 0, atMost(10, "MB"), "",
			},
			{"failed jobs while nodes lose CPU, with restarts", "yarn-pressure", "failed_jobs", "%.0f", 0, zero(), ""},
			{
				"containers killed in a core-hour there, of those with whole pods evicted", "yarn-pressure", "kill_ratio", "%.2f",
				0, atMost(0.2, ""), "",
			},
		}},
	}
}
