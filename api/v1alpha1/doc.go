// Package v1alpha1 is the API of Waterline: its custom resources, and every annotation, label, resource and metric name
// that a user may write or read. The types have validation rules, so that the API server refuses the documents that an
// agent would refuse.
//
// +groupName=waterline.io
// +kubebuilder:object:generate=true
package v1alpha1
