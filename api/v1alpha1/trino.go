package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrinoSpec describes workers of Trino and the cluster that they join.
type TrinoSpec struct {
	// Coordinator is the base address of the coordinator, such as http://trino.example:8080. Workers announce themselves
	// there, and the manager asks it which workers it has.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?/?$`
	Coordinator string `json:"coordinator"`
	// Environment is node.environment of the coordinator. Default production.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z0-9][_a-z0-9]*$`
	// +kubebuilder:default=production
	Environment string `json:"environment,omitempty"`
	// User is who the manager is to Trino. It lists the workers at the coordinator, and shuts workers down. The workers
	// get an access control that lets it, unless configMap has an access-control.properties. Default waterline.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][-A-Za-z0-9_.@]*$`
	// +kubebuilder:default=waterline
	User string `json:"user,omitempty"`
	// AuthSecret is a Secret of the pool's namespace with the user's password (key password) or JWT (key
	// token) where Trino authenticates, and the authority of its certificates (key ca.crt) if that is one of your own.
	// Default: none.
	AuthSecret *ObjectReference `json:"authSecret,omitempty"`
	// ConfigMap is a ConfigMap of the pool's namespace with further files of /etc/trino, such as jvm.config
	// and log.properties. The pool writes config.properties and node.properties itself. Default: none.
	ConfigMap *ObjectReference `json:"configMap,omitempty"`
	// Catalogs is a ConfigMap of the pool's namespace with the catalogs, one file NAME.properties each. Write
	// the same catalogs as at the coordinator. Default: none.
	Catalogs *ObjectReference `json:"catalogs,omitempty"`
	// Properties are added to config.properties, such as exchange.http-client.max-connections. A value can name a variable
	// of the environment as ${ENV:NAME}. At most 128.
	// +kubebuilder:validation:MaxProperties=128
	Properties map[string]string `json:"properties,omitempty"`
	// GracePeriod is shutdown.grace-period of the workers, in which the coordinator must notice that a worker shuts down.
	// It looks every 5 s, and uses what the look before brought. Trino 435 does not wait for a task that comes later than
	// that, so a query fails if this is too short. A worker without a query needs two grace periods to end. Default 30s.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms]){1,3}$')",message="write hours, minutes and seconds, such as 90s or 1h30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="write 1s or more"
	// +kubebuilder:default="30s"
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
}
