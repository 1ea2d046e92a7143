package v1alpha1

// WorkerContainer is the container of a pool's template that runs the worker. The pool sizes it and adds to it what its
// engine needs: ports, configuration, variables and the hook that drains. Other containers stay as they are.
const WorkerContainer = "worker"

// TemplateRule refuses values of a field in the template of a [WorkerPool]. The API server refuses them by the schema,
// and the manager and the command line by the same list.
type TemplateRule struct {
	// Field is the path of the field below spec.template. [] stands for each item of a list.
	Field string
	// Values are the refused values, as JSON. Without any, the field must be left out.
	Values []string
	// Fix says what to write instead. Without it, the schema lacks the field, and the API server calls it unknown.
	Fix string
}

// TemplateRules returns what a pod of a pool must not have. The manager makes pods for everybody who may make a pool,
// so a pool gives nobody more than pods of the level restricted of Pod Security have, except for hostPath and
// hostNetwork, which Pod Security refuses where the namespace does. Other fields are refused because the pool sets
// them.
func TemplateRules() []TemplateRule {
	const (
		names  = "the pool names its workers"
		places = "write spec.nodeSelector of the pool, which selects the nodes"
		sizes  = "spec.size and spec.yarn.overhead say what a worker requests"
		user   = "write another user than root, such as 1000, or leave it out"
		ends   = "spec.drain.timeout says how long a worker has to end"
		level  = "the pod may not change its SELinux label, except for the level"
	)
	rules := []TemplateRule{
		{"metadata.name", nil, names},
		{"metadata.namespace", nil, "the pods are in the namespace of the pool"},
		{"metadata.finalizers", nil, "the pool deletes its pods itself"},

		{"spec.hostPID", []string{"true"}, "leave it out: it shows the pod all processes of the node"},
		{"spec.hostIPC", []string{"true"}, "leave it out: it shows the pod the memory of other pods"},
		{"spec.automountServiceAccountToken", []string{"true"}, "leave it out: workers get no token of the API"},
		{"spec.serviceAccount", nil, "write serviceAccountName"},
		{"spec.nodeName", nil, places},
		{"spec.nodeSelector", nil, places},
		{"spec.affinity.nodeAffinity", nil, places},
		{"spec.tolerations[].operator", []string{`"Lt"`, `"Gt"`}, "write Exists or Equal"},
		{"spec.hostname", nil, names},
		{"spec.subdomain", nil, names},
		{"spec.hostnameOverride", nil, names},
		{"spec.setHostnameAsFQDN", nil, names},
		{"spec.restartPolicy", nil, "the engine decides whether a worker that has ended starts again"},
		{"spec.terminationGracePeriodSeconds", nil, ends},
		{"spec.activeDeadlineSeconds", nil, "spec.windows says when workers end"},
		{"spec.shareProcessNamespace", nil, "the engine decides it"},
		{"spec.priority", nil, "write priorityClassName"},
		{"spec.preemptionPolicy", nil, "write priorityClassName"},
		{"spec.resources", nil, sizes},
		{"spec.schedulingGates", nil, "spec.windows says when workers start"},
		{"spec.securityContext.sysctls", nil, "leave it out"},

		{"spec.containers[].name", []string{`"guard"`}, "guard is the container that the pool adds: write another name"},
		{"spec.containers[].restartPolicy", nil, "the engine decides whether a worker that has ended starts again"},
		{"spec.initContainers[].name", []string{`"guard"`, `"worker"`}, "the pool needs that name: write another one"},
		{"spec.volumes[].name", []string{`"conf"`, `"catalogs"`, `"guard"`}, "the pool has a volume of that name: " +
			"write another one"},
		{"spec.volumes[].projected.sources[].serviceAccountToken", nil, "leave it out: workers get no token of the API"},
	}
	for _, at := range []string{"spec.containers[].", "spec.initContainers[]."} {
		rules = append(rules,
			TemplateRule{at + "env[].name", []string{`"WATERLINE_HOST"`, `"WATERLINE_MEMORY_MIB"`, `"WATERLINE_VCORES"`},
				"the pool sets it"},
			TemplateRule{at + "ports[].hostPort", nil, "workers have addresses of their own, or write hostNetwork: true"},
			TemplateRule{at + "volumeMounts[].mountPropagation", []string{`"Bidirectional"`}, "leave it out"},
			TemplateRule{at + "securityContext.privileged", []string{"true"}, "leave it out"},
			TemplateRule{at + "securityContext.allowPrivilegeEscalation", []string{"true"}, "leave it out"},
			TemplateRule{at + "securityContext.capabilities.add", nil, "leave it out"},
			TemplateRule{Field: at + "resources.claims"}, TemplateRule{Field: at + "resizePolicy"},
			TemplateRule{Field: at + "restartPolicyRules"}, TemplateRule{Field: at + "volumeDevices"},
			TemplateRule{at + "securityContext.procMount", []string{`"Unmasked"`}, "leave it out"})
	}
	for _, at := range []string{"spec.containers[].", "spec.initContainers[]."} {
		for _, probe := range []string{
			"livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop",
		} {
			const own = "leave it out: the kubelet asks the pod itself, and nobody else for a tenant"
			rules = append(rules,
				TemplateRule{at + probe + ".httpGet.host", nil, own}, TemplateRule{at + probe + ".tcpSocket.host", nil, own})
		}
	}
	for _, at := range []string{"spec.", "spec.containers[].", "spec.initContainers[]."} {
		at += "securityContext."
		rules = append(rules,
			TemplateRule{at + "runAsUser", []string{"0"}, user},
			TemplateRule{at + "runAsNonRoot", []string{"false"}, user},
			TemplateRule{at + "seccompProfile.type", []string{`"Unconfined"`}, "write RuntimeDefault or Localhost"},
			TemplateRule{at + "appArmorProfile.type", []string{`"Unconfined"`}, "write RuntimeDefault or Localhost"},
			TemplateRule{at + "seLinuxOptions.type", nil, level},
			TemplateRule{at + "seLinuxOptions.user", nil, level},
			TemplateRule{at + "seLinuxOptions.role", nil, level},
			TemplateRule{at + "windowsOptions", nil, ""})
	}
	for _, field := range []string{
		"ephemeralContainers", "os", "overhead", "resourceClaims", "schedulingGroup",
		"volumes[].projected.sources[].clusterTrustBundle", "volumes[].projected.sources[].podCertificate",
	} {
		rules = append(rules, TemplateRule{Field: "spec." + field})
	}
	for _, volume := range []string{
		// A CSI driver may get a token of the ServiceAccount.
		"csi", "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker",
		"gcePersistentDisk", "gitRepo", "glusterfs", "image", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume",
		"quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
	} {
		rules = append(rules, TemplateRule{Field: "spec.volumes[]." + volume})
	}
	return rules
}
