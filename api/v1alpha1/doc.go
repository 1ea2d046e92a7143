// Package v1alpha1 is the API of Waterline: its custom resources, and every annotation, label, resource and metric name
// that a user may write or read. What the API server can check of them stands here as validation rules; it then refuses
// what an agent would refuse.
//
// +groupName=waterline.io
// +kubebuilder:object:generate=true
package v1alpha1
