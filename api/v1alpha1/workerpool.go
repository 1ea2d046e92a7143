package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerPool runs the workers of another engine as batch pods, which join a cluster that exists: NodeManagers of YARN,
// workers of Trino, or executors of Impala. The manager makes the pods, gives them names that stay, and drains a worker
// before it stops. NodeManagers are sized by the slack of their nodes. It works in the namespaces that the manager's
// flag --pools names.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=wpool,categories=waterline
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.status.wanted`,description="Workers that are to run now"
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.active`,description="Workers that take containers"
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.total.memory`,description="Memory that the workers offer"
// +kubebuilder:printcolumn:name="VCores",type=integer,JSONPath=`.status.total.vcores`,description="Vcores that the workers offer"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name is a part of host names: write at most 40 lower-case letters, digits and hyphens, a letter first"
type WorkerPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WorkerPoolSpec   `json:"spec"`
	Status WorkerPoolStatus `json:"status,omitempty"`
}

// WorkerPoolList is a list of worker pools.
//
// +kubebuilder:object:root=true
type WorkerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkerPool `json:"items"`
}

// WorkerPoolSpec is the specification of a [WorkerPool].
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.hostNetwork) || !self.template.spec.hostNetwork || !has(self.replicas)",message="template.spec.hostNetwork needs one worker on each node: leave replicas out"
// +kubebuilder:validation:XValidation:rule="!has(self.identity) || !has(self.identity.addresses) || has(self.replicas) && self.identity.addresses.size() >= self.replicas",message="identity.addresses needs replicas, and an address for each worker"
// +kubebuilder:validation:XValidation:rule="!has(self.windows) || self.windows.all(w, w.start == w.end || has(w.drainBefore) && duration(w.drainBefore) > duration('0s'))",message="each of windows needs drainBefore, in which its workers drain"
// +kubebuilder:validation:XValidation:rule="!has(self.yarn) || quantity(string(self.size.floor.cpu)).asApproximateFloat() * (has(self.yarn.vcoresPerCPU) ? quantity(string(self.yarn.vcoresPerCPU)).asApproximateFloat() : 1.0) >= 1.0 && quantity(string(self.size.floor.memory)).compareTo(quantity('1Mi')) >= 0",message="size.floor must be worth 1 vcore and 1Mi at least, and not be below the scheduler's minimum allocation"
// +kubebuilder:validation:XValidation:rule="[has(self.yarn), has(self.trino), has(self.impala)].filter(x, x).size() == 1",message="write exactly one of spec.yarn, spec.trino and spec.impala"
// +kubebuilder:validation:XValidation:rule="has(self.yarn) || !has(self.size.ceiling) && duration(self.size.pause) == duration('30s')",message="size.ceiling and size.pause are for yarn: a worker of trino or impala has one size, size.floor, all its life; change the number of workers instead"
// +kubebuilder:validation:XValidation:rule="has(self.yarn) || quantity(string(self.size.step.cpu)).compareTo(quantity('1')) == 0 && quantity(string(self.size.step.memory)).compareTo(quantity('2Gi')) == 0",message="size.step is for yarn: a worker of trino or impala has one size, size.floor, all its life"
// +kubebuilder:validation:XValidation:rule="has(self.yarn) || self.size.demand == 'Ignore'",message="size.demand: Follow is for yarn: leave it out"
// +kubebuilder:validation:XValidation:rule="has(self.yarn) || quantity(string(self.size.floor.cpu)).compareTo(quantity('100m')) >= 0 && quantity(string(self.size.floor.memory)).compareTo(quantity('1Gi')) >= 0",message="size.floor must be 100m CPU and 1Gi of memory at least: all of it is for the worker's process"
type WorkerPoolSpec struct {
	// YARN makes the workers NodeManagers. Write exactly one of yarn, trino and impala.
	YARN *YARNSpec `json:"yarn,omitempty"`
	// Trino makes the workers workers of Trino.
	Trino *TrinoSpec `json:"trino,omitempty"`
	// Impala makes the workers executors of Impala.
	Impala *ImpalaSpec `json:"impala,omitempty"`

	// NodeSelector selects the nodes of the workers by their labels. Default: all nodes that a policy governs.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Replicas is the number of workers, which kubectl scale changes; the scheduler chooses their nodes. Default: one
	// worker on each selected node whose slack has room for it, and kubectl scale refuses the pool.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2000
	Replicas *int32 `json:"replicas,omitempty"`
	// Size is how much a worker offers to containers. A worker of trino or impala has the size floor, with its process.
	// +kubebuilder:default={}
	Size WorkerSizeSpec `json:"size,omitempty"`
	// Windows are the times of day in which workers run; at most 16. At the end of a window its workers stop, busy or
	// not; in the time drainBefore they drain. Default: always.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Windows []WindowSpec `json:"windows,omitempty"`
	// Ramp spreads the start and the drain of many workers over time.
	// +kubebuilder:default={}
	Ramp RampSpec `json:"ramp,omitempty"`
	// Drain is how long containers may take to end.
	// +kubebuilder:default={}
	Drain DrainSpec `json:"drain,omitempty"`
	// Identity is how workers are named and addressed.
	// +kubebuilder:default={}
	Identity IdentitySpec `json:"identity,omitempty"`
	// Template is the pod of a worker. Its container worker runs the engine, from an image with the version of the
	// cluster that it joins; its command is yarn nodemanager by default, and for other engines what the image says. The
	// pool sets its resources, and adds ports, variables, configuration, and a hook that drains. Its first process must be
	// that of the engine, so that signals reach it. Other containers stay as they are, and must request cpu and memory. A
	// volume work holds what workers write, by default an emptyDir. The pods run as user 1000 unless it says otherwise,
	// never as root. Default of priorityClassName: waterline-worker, for which the cluster autoscaler adds no node. Its
	// fields are those of kubectl explain pod; fields that the pool decides or that are not safe are refused.
	// +kubebuilder:validation:XValidation:rule="self.spec.containers.exists_one(c, c.name == 'worker' && has(c.image) && c.image != '')",message="spec.containers needs one container with the name worker and an image: it runs the engine"
	// +kubebuilder:validation:XValidation:rule="self.spec.containers.all(c, c.name != 'worker' || !has(c.resources) || !has(c.resources.requests) && !has(c.resources.limits))",message="leave the resources of the container worker out: spec.size and spec.yarn.overhead say what it requests"
	// +kubebuilder:validation:XValidation:rule="self.spec.containers.all(c, c.name != 'worker' || !has(c.lifecycle) || !has(c.lifecycle.preStop) && !has(c.lifecycle.stopSignal))",message="leave preStop and stopSignal of the container worker out: the pool's own hook drains it"
	// +kubebuilder:validation:XValidation:rule="self.spec.containers.all(c, c.name == 'worker' || has(c.resources) && has(c.resources.requests) && 'cpu' in c.resources.requests && 'memory' in c.resources.requests)",message="write resources.requests with cpu and memory for each of spec.containers besides worker: the pod requests them of the slack too"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec.initContainers) || self.spec.initContainers.all(c, has(c.resources) && has(c.resources.requests) && 'cpu' in c.resources.requests && 'memory' in c.resources.requests)",message="write resources.requests with cpu and memory for each of spec.initContainers: the pod requests them of the slack too"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec.volumes) || self.spec.volumes.all(v, v.name != 'work' || has(v.emptyDir) || has(v.ephemeral) || has(v.hostPath))",message="the volume work must be an emptyDir, ephemeral or hostPath: each worker writes to one of its own"
	Template corev1.PodTemplateSpec `json:"template"`
}

// YARNSpec describes NodeManagers and the YARN cluster that they join.
// +kubebuilder:validation:XValidation:rule="!has(self.admins) || self.admins.size() == self.resourceManagers.size()",message="write one of admins for each of resourceManagers, in the same order"
// +kubebuilder:validation:XValidation:rule="!has(self.excludeFile) || self.excludeFile.matches('^[A-Za-z0-9][-A-Za-z0-9_.]*$')",message="excludeFile is the name of a file in the manager's directory of exclude files, without a path"
// +kubebuilder:validation:XValidation:rule="self.resourceManagers.all(a, a.startsWith('https:') == self.resourceManagers[0].startsWith('https:'))",message="resourceManagers must all begin with http or all with https, as yarn.http.policy says"
// +kubebuilder:validation:XValidation:rule="!has(self.containerExecutor) || self.containerExecutor != 'Linux' || !has(self.guard) || !has(self.guard.image)",message="with containerExecutor: Linux the guard runs as root, so it has the image that the manager's flag --guard-image names: leave guard.image out"
type YARNSpec struct {
	// ResourceManagers are the base addresses of the web services of the ResourceManager, such as http://rm1.example:8088.
	// Write both of a pair. Anybody who reaches that port can resize NodeManagers, unless Kerberos protects it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?/?$`
	ResourceManagers []string `json:"resourceManagers"`
	// Admins are the addresses of the administration protocol, host:port, one for each ResourceManager. By it, workers
	// are decommissioned gracefully, and many are resized in one call. Default: the hosts of resourceManagers with port
	// 8033.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?:[0-9]{1,5}$`
	Admins []string `json:"admins,omitempty"`
	// User is the user that the manager is to the ResourceManager where Hadoop's authentication is simple. It must be in
	// yarn.admin.acl, because it sets node labels. Default yarn.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z_][-a-z0-9_.]*$`
	// +kubebuilder:default=yarn
	User string `json:"user,omitempty"`
	// AuthSecret is a Secret of the pool's namespace with the keys principal, keytab and krb5.conf where
	// Hadoop's authentication is Kerberos, and ca.crt where the ResourceManager's certificate is signed by an authority
	// of your own. The key service is yarn.resourcemanager.principal; without it, any service of the realm can pose as
	// the ResourceManager's RPC. Default: none.
	AuthSecret *ObjectReference `json:"authSecret,omitempty"`
	// Label is the node label of all workers of the pool.
	Label NodeLabelSpec `json:"label"`
	// ExcludeFile is the name of the file of yarn.resourcemanager.nodes.exclude-path in the directory that the manager's
	// flag --exclude-dir names, such as a volume that both mount. With it, workers are decommissioned gracefully:
	// NodeManagers keep the output of maps until the applications that need it have ended. Without it, a worker is
	// shrunk to its floor, and stops when its containers have ended. Hosts of others in the file stay. Default: none.
	// +kubebuilder:validation:MaxLength=128
	ExcludeFile string `json:"excludeFile,omitempty"`
	// ConfigMap is a ConfigMap of the pool's namespace with Hadoop's configuration, such as core-site.xml,
	// yarn-site.xml and log4j.properties. What the pool sets itself (name, ports, size, directories) goes before its
	// yarn-site.xml. Default: none.
	ConfigMap *ObjectReference `json:"configMap,omitempty"`
	// Properties are added to yarn-site.xml, and go before those of configMap: for example the auxiliary service of a
	// remote shuffle, or yarn.nodemanager.local-dirs on volumes of the pod. At most 128.
	// +kubebuilder:validation:MaxProperties=128
	Properties map[string]string `json:"properties,omitempty"`
	// Shuffle says where the servers of a remote shuffle service are that jobs on the pool use. The pool's ConfigMap
	// NAME-workers then has the settings for their clients, with replicas: spark-shuffle.conf for spark-defaults.conf and
	// mapred-shuffle.xml for mapred-site.xml. Workers do not use them. Default: none.
	Shuffle *ShuffleSpec `json:"shuffle,omitempty"`
	// VCoresPerCPU is the number of vcores that one CPU is worth, from 0.1 to 100. Default 1.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('100m')) >= 0 && quantity(string(self)).compareTo(quantity('100')) <= 0",message="write a number from 0.1 to 100"
	// +kubebuilder:default="1"
	VCoresPerCPU *resource.Quantity `json:"vcoresPerCPU,omitempty"`
	// Overhead is what the NodeManager itself needs besides its containers: its Java process, the page cache of shuffles,
	// and the guard. Default 100m CPU and 1Gi memory.
	// +kubebuilder:default={cpu: "100m", memory: "1Gi"}
	Overhead ResourceSpec `json:"overhead,omitempty"`
	// ContainerExecutor says as whom containers run: Default, all of them as the user of the NodeManager, or Linux, as the
	// users of their applications, by Hadoop's LinuxContainerExecutor, whose program must be in the image. With Linux, the
	// worker can gain the capabilities that this program needs, and the guard runs as root with KILL, SYS_PTRACE and
	// DAC_OVERRIDE, so the namespace must admit such pods (pod-security.kubernetes.io/enforce: privileged). It must be
	// written where the Secret of authSecret has a principal: on a secure cluster, containers that run as one user can
	// read the files and the tokens of all others, and without this field no pod is made. Otherwise, the executor is that
	// of configMap and properties.
	ContainerExecutor ContainerExecutor `json:"containerExecutor,omitempty"`
	// Guard is the sidecar that ends containers when they exceed what their worker may use and nobody else does it in
	// time, or when memory is about to run out. Default: one with the image that the manager's flag --guard-image names;
	// without that flag, none.
	Guard *GuardSpec `json:"guard,omitempty"`
}

// ShuffleSpec says where the servers of a remote shuffle service are.
// +kubebuilder:validation:XValidation:rule="has(self.uniffle) != has(self.celeborn)",message="write exactly one of shuffle.uniffle and shuffle.celeborn"
type ShuffleSpec struct {
	// Uniffle is Apache Uniffle. Its jobs need three servers, for three replicas of which one can be missed, and one
	// more for a server to drain.
	Uniffle *UniffleSpec `json:"uniffle,omitempty"`
	// Celeborn is Apache Celeborn. Its jobs need two workers, for two replicas, and one more for a worker to drain.
	Celeborn *CelebornSpec `json:"celeborn,omitempty"`
}

// UniffleSpec says where Apache Uniffle is.
type UniffleSpec struct {
	// Coordinators are the addresses of the coordinators' RPC, host:port.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +listType=atomic
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?:[0-9]{1,5}$`
	Coordinators []string `json:"coordinators"`
}

// CelebornSpec says where Apache Celeborn is.
type CelebornSpec struct {
	// Masters are the addresses of the masters' RPC, host:port.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +listType=atomic
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?:[0-9]{1,5}$`
	Masters []string `json:"masters"`
}

// ObjectReference names an object in the namespace of a pool.
type ObjectReference struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// NameOf returns the name in a reference; "" without one.
func NameOf(r *ObjectReference) string {
	if r == nil {
		return ""
	}
	return r.Name
}

// GuardSpec describes the guard beside each NodeManager of a pool.
type GuardSpec struct {
	// Image of the guard. Default: the one that the manager's flag --guard-image names. With containerExecutor: Linux the
	// guard runs as root, so no other one is allowed.
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
	// KillsPerMinute is how many containers the guard may end within a minute, except while memory is about to run out.
	// Default 10.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	KillsPerMinute *int32 `json:"killsPerMinute,omitempty"`
	// HardMemoryPercent is the part of the NodeManager's memory limit at which the guard ends containers at once. Page
	// cache does not count. Default 95.
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=100
	HardMemoryPercent *int32 `json:"hardMemoryPercent,omitempty"`
}

// ContainerExecutor says as whom a NodeManager runs containers.
// +kubebuilder:validation:Enum=Default;Linux
type ContainerExecutor string

// The executors of containers.
const (
	ExecutorDefault ContainerExecutor = "Default" // all containers run as the user of the NodeManager
	ExecutorLinux   ContainerExecutor = "Linux"   // containers run as the users of their applications
)

// NodeLabelSpec is a node label of YARN.
type NodeLabelSpec struct {
	// Name of the label. The manager adds it to the ResourceManager's store if it is missing.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[0-9a-zA-Z][0-9a-zA-Z_-]*$`
	Name string `json:"name"`
	// Shared makes a label that the manager adds non-exclusive: containers that ask for no label may land on workers
	// while these are idle, application masters among them. Default false.
	Shared bool `json:"shared,omitempty"`
}

// WorkerSizeSpec is how much a worker offers to containers, and so requests as a batch pod.
// +kubebuilder:validation:XValidation:rule="!has(self.ceiling) || quantity(string(self.ceiling.cpu)).compareTo(quantity(string(self.floor.cpu))) >= 0 && quantity(string(self.ceiling.memory)).compareTo(quantity(string(self.floor.memory))) >= 0",message="ceiling must not be below floor"
type WorkerSizeSpec struct {
	// Floor is what a worker has always. Its pod requests the floor and the overhead as batch resources, and its
	// NodeManager registers with the floor, which must not be below the scheduler's minimum allocation. Default 1 CPU
	// and 2Gi.
	// +kubebuilder:default={cpu: "1", memory: "2Gi"}
	Floor ResourceSpec `json:"floor,omitempty"`
	// Ceiling is the most that a worker offers. Between floor and ceiling it follows the part of its node's offer that
	// no batch pod requests. Default: the floor.
	Ceiling *ResourceSpec `json:"ceiling,omitempty"`
	// Step is by how much a worker grows at once. It offers whole steps above the floor. Default 1 CPU and 2Gi.
	// +kubebuilder:default={cpu: "1", memory: "2Gi"}
	Step ResourceSpec `json:"step,omitempty"`
	// Pause is the time between two steps up, such as 1m. Default 30s.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms]){1,3}$')",message="write hours, minutes and seconds, such as 90s or 1h30m"
	// +kubebuilder:default="30s"
	Pause *metav1.Duration `json:"pause,omitempty"`
	// Follow is how a worker follows its node between floor and ceiling.
	// +kubebuilder:default={}
	Follow FollowSpec `json:"follow,omitempty"`
	// Demand says whether workers run only while applications wait for them or run on them. It is for yarn, with the
	// CapacityScheduler. With Follow, a worker comes when something waits for the pool's label, and leaves when for
	// follow.window nothing waited and it ran nothing. While the demand is not known, workers that run stay; after a
	// minute of that, workers run as with Ignore. Default Ignore, because YARN's clients then see the nodes: the
	// ResourceManager refuses containers that are larger than its largest node, some clients plan by what is free, and a
	// first job need not wait until workers have started. An idle worker takes only its floor of the slack.
	// +kubebuilder:default=Ignore
	Demand DemandPolicy `json:"demand,omitempty"`
}

// DemandPolicy says whether the workers of a pool follow the demand of applications.
// +kubebuilder:validation:Enum=Follow;Ignore
type DemandPolicy string

// The policies about demand.
const (
	DemandFollow DemandPolicy = "Follow" // workers run only while applications wait for them or run on them
	DemandIgnore DemandPolicy = "Ignore" // workers run whatever applications want
)

// FollowSpec is how the size of a worker follows its node.
type FollowSpec struct {
	// Window is the time for which the unrequested rest of the node's offer must last for a worker to grow, up to 1h. A
	// worker grows into the lowest of the averages over all, half and a tenth of that time, and of memory into the lowest
	// amount. It gives CPU back for the average of a tenth, and memory at once. With 0s it follows every change. Default
	// 10m.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms]){1,3}$')",message="write hours, minutes and seconds, such as 90s or 1h30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="write a time from 0s to 1h, such as 10m"
	// +kubebuilder:default="10m"
	Window *metav1.Duration `json:"window,omitempty"`
}

// ResourceSpec is an amount of CPU and memory.
type ResourceSpec struct {
	// CPU in CPUs, such as 1500m.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('10k')) <= 0",message="write a number of CPUs from 0 to 10k"
	CPU resource.Quantity `json:"cpu"`
	// Memory in bytes, such as 8Gi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="write an amount of memory from 0 to 1Pi"
	Memory resource.Quantity `json:"memory"`
}

// RampSpec spreads the start and the drain of workers over time, so that ResourceManager and registry are not asked by
// all at once.
type RampSpec struct {
	// Waves is the number of groups of workers of about the same size, from 1 to 100. Default 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=1
	Waves int32 `json:"waves,omitempty"`
	// Interval is the time between the starts of two waves, such as 2m. Before the end of a window, the waves begin to
	// drain over the first half of drainBefore. Default 0s.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms]){1,3}$')",message="write hours, minutes and seconds, such as 90s or 1h30m"
	// +kubebuilder:default="0s"
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// DrainSpec is how long containers, or queries, may take to end.
type DrainSpec struct {
	// Grace is the time that containers have to end when their worker shrinks, or when its node asks for the pod's
	// eviction: 60 times that if they only get less CPU, and half of it before an eviction. Then the ResourceManager
	// kills the newest, masters last. Default 60s.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms]){1,3}$')",message="write hours, minutes and seconds, such as 90s or 1h30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="write 1s or more"
	// +kubebuilder:default="60s"
	Grace *metav1.Duration `json:"grace,omitempty"`
	// Timeout is the time that containers have to end when their worker is to stop, and no window ends before: its pod
	// is deleted, its node is drained, or the pool is. Default 30m.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms]){1,3}$')",message="write hours, minutes and seconds, such as 90s or 1h30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="write 1s or more"
	// +kubebuilder:default="30m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// IdentitySpec is how workers are named and addressed. The name of a worker stays over all of its pods. It is
// WORKER.POOL.NAMESPACE.svc.CLUSTERDOMAIN, which the cluster that it joins and all who use its containers must resolve.
// With hostNetwork in the template, it is the name of its node.
type IdentitySpec struct {
	// Addresses are fixed IP addresses, one for each of replicas, where the CNI can assign them.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F.:]+$`
	Addresses []string `json:"addresses,omitempty"`
	// AddressAnnotations are the annotations by which the CNI assigns an address. The text {address} stands for it. For
	// Calico: {"cni.projectcalico.org/ipAddrs": "[\"{address}\"]"}. For Kube-OVN: {"ovn.kubernetes.io/ip_address":
	// "{address}"}.
	// +kubebuilder:validation:MaxProperties=8
	AddressAnnotations map[string]string `json:"addressAnnotations,omitempty"`
	// CoolDown is the time before a worker's name and address are used again. The ResourceManager and applications
	// remember both for a while. Default 1m.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms]){1,3}$')",message="write hours, minutes and seconds, such as 90s or 1h30m"
	// +kubebuilder:default="1m"
	CoolDown *metav1.Duration `json:"coolDown,omitempty"`
}

// AnnotationPoolMarks is what the manager keeps on the pod of a worker, as JSON.
const AnnotationPoolMarks = "waterline.io/pool-marks"

// AnnotationPoolTemplate says which spec the pod of a worker was made from. When the pool's spec has become another
// one, the pod is replaced after it has drained, a few of a pool at a time.
const AnnotationPoolTemplate = "waterline.io/pool-template"

// AnnotationPoolHeld is on the pod of a worker the memory in bytes that its containers use beyond what the slack of the
// node allows. They have a deadline to release it; until then, the node offers so much less. At most the difference
// between the pod's limit and request counts.
const AnnotationPoolHeld = "waterline.io/pool-held"

// AnnotationPoolAllowance is on the pod of a worker what its containers may use together, as JSON:
//
//	{"memoryMiB": 4096, "vcores": 4, "until": "2026-11-25T09:00:00Z"}
//
// until is the deadline, in RFC 3339, that the ResourceManager was told for what does not fit. It is absent when
// everything fits. The manager writes it, and the guard in the pod reads it from a file that the kubelet makes of it.
const AnnotationPoolAllowance = "waterline.io/pool-allowance"

// LabelPoolReport is on the ConfigMaps that have the state of each worker of a pool of more than 20, with the name of
// the pool. PoolReportKey is their key.
const (
	LabelPoolReport = "waterline.io/pool-report"
	PoolReportKey   = "workers.json"
)

// PoolGoneKey is the key of the ConfigMaps NAME-gone-0 to NAME-gone-15 of a pool. They have the pods of its workers
// that are gone, and the containers that left them by the word of their guards.
const PoolGoneKey = "gone.json"

// FinalizerPool keeps a deleted pool until its workers have drained.
const FinalizerPool = "waterline.io/workers"
