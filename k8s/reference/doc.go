// Package reference holds tests of Waterline's choices against those of Kubernetes for the same requests. Its tests
// import parts of Kubernetes that have no place among the requirements of Waterline itself.
package reference
