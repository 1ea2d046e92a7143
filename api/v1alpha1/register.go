package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddToScheme makes the types of this package known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	gv := schema.GroupVersion{Group: Group, Version: Version}
	scheme.AddKnownTypes(gv, &ColocationPolicy{}, &ColocationPolicyList{}, &NodeReport{}, &NodeReportList{},
		&WorkerPool{}, &WorkerPoolList{})
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}
