package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names of the API server's files, in the cluster's directory.
const (
	authorization = "waterline-authorization.yaml"
	noServer      = "waterline-no-server.kubeconfig"
	admission     = "admission.yaml"
	webhookUsers  = "webhooks.kubeconfig"
)

// WebhookUser is the common name of the certificate that the API server presents to webhooks that ask for one. The
// cluster's authority signed it.
const WebhookUser = "bed-webhooks"

// admissionConfig is what a cluster with tenants has. Pods of the system's priority classes need a ResourceQuota in
// their namespace, as on GKE. Namespaces without a label of Pod Security are held to the level baseline.
const admissionConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-node-critical, system-cluster-critical]}
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: latest}
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: WEBHOOKS
`

// writeAPIServerConfig writes the files that the API server's flags name. Those for authorization are the files that
// deploy/apiserver has for operators; bin has copies.
func writeAPIServerConfig(p paths, bin string) error {
	for _, name := range []string{authorization, noServer} {
		content, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return fmt.Errorf("configuring the API server: %w", err)
		}
		here := strings.ReplaceAll(string(content), "/etc/kubernetes/waterline/", p.in()+"/")
		if err := writeFile(p.in(name), here, 0o644); err != nil {
			return fmt.Errorf("configuring the API server: %w", err)
		}
	}
	users := fmt.Sprintf("apiVersion: v1\nkind: Config\n"+
		"users: [{name: '*', user: {client-certificate: %s, client-key: %s}}]\n",
		p.pki("webhooks.crt"), p.pki("webhooks.key"))
	err := writeFile(p.in(webhookUsers), users, 0o600)
	if err == nil {
		err = writeFile(p.in(admission), strings.ReplaceAll(admissionConfig, "WEBHOOKS", p.in(webhookUsers)), 0o644)
	}
	if err != nil {
		return fmt.Errorf("configuring the API server: %w", err)
	}
	return nil
}
