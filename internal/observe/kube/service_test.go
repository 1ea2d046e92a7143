package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestAddress checks which addresses of pods the agent may connect to.
func TestAddress(t *testing.T) {
	for ip, want := range map[string]string{
		"": "", "10.1.2.3": "10.1.2.3", "192.168.0.1": "192.168.0.1", "fd00::1": "fd00::1", "::ffff:10.1.2.3": "10.1.2.3",
		"127.0.0.1": "", "::1": "", "::ffff:127.0.0.1": "", "0.0.0.0": "", "::": "", "169.254.169.254": "", "fe80::1": "",
		"fe80::1%eth0": "", "fd00::1%eth0": "", "224.0.0.1": "", "255.255.255.255": "", "example.com": "",
		"10.1.2.3:80": "",
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{PodIP: ip}}
		p.UID = "0a1b"
		if pod, valid := Pod(p, ""); !valid || pod.IP != want {
			t.Errorf("%q: %q, want %q", ip, pod.IP, want)
		}
	}
}
