package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ImpalaSpec describes executors of Impala and the cluster that they join.
type ImpalaSpec struct {
	// Coordinator is the base address of HiveServer2 over HTTP of a coordinator, such as http://impala.example:28000. The
	// manager shuts executors down there.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?/?$`
	Coordinator string `json:"coordinator"`
	// Web is the base address of the debug web server of the same coordinator, which lists its executors. Default: the
	// host of coordinator with port 25000, over http.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?/?$`
	Web string `json:"web,omitempty"`
	// StateStore is the host of the statestore.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	StateStore string `json:"stateStore"`
	// Catalog is the host of the catalog service.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	Catalog string `json:"catalog"`
	// User is who the manager is to HiveServer2. It needs the privilege ALL on the server, where Impala authorizes.
	// Default waterline.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][-A-Za-z0-9_.@]*$`
	// +kubebuilder:default=waterline
	User string `json:"user,omitempty"`
	// AuthSecret is a Secret of the pool's namespace with the user's LDAP password (key password) or JWT (key
	// token) where HiveServer2 authenticates, and the authority of its certificate (key ca.crt) if that is one of your
	// own. Default: none.
	AuthSecret *ObjectReference `json:"authSecret,omitempty"`
	// ConfigMap is a ConfigMap of the pool's namespace with the files of /opt/impala/conf, such as
	// hive-site.xml and core-site.xml. Default: none.
	ConfigMap *ObjectReference `json:"configMap,omitempty"`
	// Flags are further flags of impalad, such as executor_groups, without the hyphens. At most 128.
	// +kubebuilder:validation:MaxProperties=128
	Flags map[string]string `json:"flags,omitempty"`
	// GracePeriod is --shutdown_grace_period_s of the executors, in which the coordinators notice that an executor shuts
	// down. Default 30s.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms]){1,3}$')",message="write hours, minutes and seconds, such as 90s or 1h30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="write 1s or more"
	// +kubebuilder:default="30s"
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
}
