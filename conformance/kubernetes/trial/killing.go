package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// How long until the other replica leads: the Lease's term and its renewals.
const takeover = time.Minute

// holder is the identity of the replica that leads, and its pod.
func (t *trial) holder(ctx context.Context) (identity, pod string, err error) {
	lease, err := t.kube.CoordinationV1().Leases("weir").Get(ctx, "weir-leader", metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", "", fmt.Errorf("nobody holds the Lease")
	}
	identity = *lease.Spec.HolderIdentity
	pod, _, _ = strings.Cut(identity, "_")
	return identity, pod, nil
}

func (t *trial) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := t.kube.CoreV1().Pods("weir").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=weir"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// process finds the process whose command line begins with these arguments, and whose environment has this variable.
func process(arguments, variable string) (int, error) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, folder := range all {
		line, err := os.ReadFile(folder + "/cmdline")
		if err != nil || !bytes.HasPrefix(line, []byte(strings.ReplaceAll(arguments, " ", "\x00"))) {
			continue
		}
		environment, err := os.ReadFile(folder + "/environ")
		if err != nil {
			continue
		}
		if variable == "" || strings.Contains("\x00"+string(environment)+"\x00", "\x00"+variable+"\x00") {
			return strconv.Atoi(filepath.Base(folder))
		}
	}
	return 0, fmt.Errorf("no process %s %s", arguments, variable)
}

func kill(arguments, variable string) error {
	pid, err := process(arguments, variable)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// port is the port of the pods that port 80 of the steady Gateway leads to.
func (t *trial) port(ctx context.Context) (string, error) {
	service, err := t.kube.CoreV1().Services("steady").Get(ctx, "weir-web", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, port := range service.Spec.Ports {
		if port.Port == 80 {
			return port.TargetPort.String(), nil
		}
	}
	return "", fmt.Errorf("the Service weir-web has no port 80")
}

// replica is a pod of Weir, and the address at which it serves port 80 of the steady Gateway.
type replica struct{ name, address string }

func (t *trial) replicas(ctx context.Context) ([]replica, error) {
	port, err := t.port(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := t.pods(ctx)
	if err != nil {
		return nil, err
	}
	var out []replica
	for _, pod := range pods {
		out = append(out, replica{pod.Name, pod.Status.PodIP + ":" + port})
	}
	return out, nil
}

// twoReplicas checks that both serve and that the same one leads all the time.
func twoReplicas(ctx context.Context, t *trial) error {
	replicas, err := t.replicas(ctx)
	if err != nil {
		return err
	}
	if len(replicas) != 2 {
		return fmt.Errorf("there are %d replicas, not 2", len(replicas))
	}
	for _, one := range replicas {
		if err := eventually(10*time.Second, func() error { return ask(one.address, "one.steady.example") }); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	before, _, err := t.holder(ctx)
	if err != nil {
		return err
	}
	for range 25 {
		now, _, err := t.holder(ctx)
		if err != nil {
			return err
		}
		if now != before {
			return fmt.Errorf("the lead went from %s to %s without need", before, now)
		}
		time.Sleep(time.Second)
	}
	return nil
}

// route writes a route of the steady Gateway and waits until its status says that it is taken.
func (t *trial) route(ctx context.Context, name string) error {
	route := t.the("HTTPRoute", "steady", "one").DeepCopy()
	route.SetName(name)
	_ = unstructured.SetNestedStringSlice(route.Object, []string{name + ".steady.example"}, "spec", "hostnames")
	if err := t.apply(ctx, route); err != nil {
		return err
	}
	if err := eventually(10*time.Second, func() error {
		return post(ctx, steadyClient(t.address), "http://"+name+".steady.example/")
	}); err != nil {
		return fmt.Errorf("a new route: %w", err)
	}
	return eventually(takeover, func() error {
		now, err := t.Dynamic.Resource(routeKind).Namespace("steady").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		parents, _, _ := unstructured.NestedSlice(now.Object, "status", "parents")
		for _, parent := range parents {
			if parent, ok := parent.(map[string]any); ok && conditionOf(parent, "Accepted") == "True" {
				return nil
			}
		}
		return fmt.Errorf("the route %s gets no status", name)
	})
}

// killLeader kills the replica that writes statuses. A new route serves at once, and gets its status from the other.
func killLeader(ctx context.Context, t *trial) error {
	before, pod, err := t.holder(ctx)
	if err != nil {
		return err
	}
	if err := kill("/weir-kube", "HOSTNAME="+pod); err != nil {
		return err
	}
	if err := t.route(ctx, "after-leader"); err != nil {
		return err
	}
	now, _, err := t.holder(ctx)
	if err == nil && now == before {
		err = fmt.Errorf("%s still leads although it was killed", now)
	}
	if err != nil {
		return err
	}
	return t.ready(ctx, 2)
}

// ready waits until this many replicas are ready and no other exists.
func (t *trial) ready(ctx context.Context, count int32) error {
	return eventually(2*time.Minute, func() error {
		deployment, err := t.kube.AppsV1().Deployments("weir").Get(ctx, "weir", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := deployment.Status
		if s.ObservedGeneration < deployment.Generation || s.UpdatedReplicas != count || s.ReadyReplicas != count ||
			s.Replicas != count {
			return fmt.Errorf("%d of %d replicas are ready", s.ReadyReplicas, s.Replicas)
		}
		pods, err := t.pods(ctx)
		if err == nil && len(pods) != int(count) {
			err = fmt.Errorf("there are %d pods", len(pods))
		}
		return err
	})
}

// away is the file that keeps run.sh from starting the API server again.
func (t *trial) away() string { return filepath.Join(t.folder, "away") }

func (t *trial) takeServer() error {
	if err := os.WriteFile(t.away(), nil, 0o644); err != nil {
		return err
	}
	return kill("cluster kube-apiserver", "")
}

func (t *trial) giveServer(ctx context.Context) error {
	if err := os.Remove(t.away()); err != nil {
		return err
	}
	return eventually(time.Minute, func() error {
		_, err := t.kube.CoreV1().Namespaces().Get(ctx, "steady", metav1.GetOptions{})
		return err
	})
}

// killServer kills the API server for 30 s, longer than the Lease lasts.
func killServer(ctx context.Context, t *trial) error {
	if err := t.takeServer(); err != nil {
		return err
	}
	time.Sleep(30 * time.Second)
	if err := t.giveServer(ctx); err != nil {
		return err
	}
	return t.route(ctx, "after-server")
}

// restartWithout kills a replica while the API server is away: it serves again from what it saved.
func restartWithout(ctx context.Context, t *trial) error {
	replicas, err := t.replicas(ctx)
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // objects are saved a second after a change
	if err := t.takeServer(); err != nil {
		return err
	}
	one := replicas[0]
	if err := kill("/weir-kube", "HOSTNAME="+one.name); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond) // its listeners are gone
	if err := eventually(30*time.Second, func() error {
		return ask(one.address, "one.steady.example")
	}); err != nil {
		return fmt.Errorf("the replica that restarted without the API server: %w", err)
	}
	if err := t.giveServer(ctx); err != nil {
		return err
	}
	if err := t.route(ctx, "after-restart"); err != nil {
		return err
	}
	return t.ready(ctx, 2)
}

// rollOut replaces all replicas, as `kubectl rollout restart` does.
func rollOut(ctx context.Context, t *trial) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, time.Now())
	_, err := t.kube.AppsV1().Deployments("weir").
		Patch(ctx, "weir", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if err := t.ready(ctx, 2); err != nil {
		return err
	}
	return t.route(ctx, "after-rollout")
}
