// Package v1alpha1 is the API of Waterline: the policy document, and every annotation, label and metric name that a user
// may write or read.
//
// +groupName=waterline.io
package v1alpha1
