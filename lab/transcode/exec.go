package transcode

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/tools/remotecommand"
)

// exec runs a shell command in the job of a pod, in its working directory, and returns its output. It needs the verb
// create on pods/exec. An annotation in a downward API volume would need none, but the kubelet was seen to update that
// only after a minute.
func (t *transcoding) exec(ctx context.Context, pod, command string) (string, error) {
	url := t.cfg.Client.Post().Namespace(t.namespace).Resource("pods").Name(pod).SubResource("exec").
		Param("container", "job").Param("stdout", "true").Param("stderr", "true").
		Param("command", "sh").Param("command", "-c").Param("command", command).URL()
	executor, err := remotecommand.NewSPDYExecutor(t.cfg.Cluster, http.MethodPost, url)
	if err != nil {
		return "", fmt.Errorf("reaching pod %s: %w", pod, err)
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		return "", fmt.Errorf("running a command in pod %s: %w %s", pod, err, stderr.String())
	}
	return stdout.String(), nil
}
