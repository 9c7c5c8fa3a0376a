package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where Kubernetes mounts the credentials of a service account.
const accountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Longest time between SIGTERM and SIGKILL of an echo server: shorter than a cluster's, because tests wait for it.
const longestGrace = 5 * time.Second

// pod is one pod of one container.
type pod struct {
	node    *node
	object  *corev1.Pod
	number  int
	address string
	folder  string
	log     podLog
	stop    sync.Once
	ending  chan struct{}
	ended   chan struct{}
}

// spec is what the process of a pod is told: see inPod.
type spec struct {
	Root     string
	Address  string
	Programs map[string]string // by their path in the pod
	Volumes  map[string]string // folders, by their path in the pod
	Command  []string
	Env      []string
	Hostname string
	User     int
	Group    int
	Host     bool
}

func (p *pod) end() { p.stop.Do(func() { close(p.ending) }) }

func (p *pod) isEnding() bool {
	select {
	case <-p.ending:
		return true
	default:
		return false
	}
}

// run starts the container again and again until the pod ends.
func (p *pod) run(ctx context.Context) {
	defer close(p.ended)
	if file, err := os.Create(filepath.Join(p.node.state, p.object.Namespace+"_"+p.object.Name+".log")); err == nil {
		p.log.file = file
		defer file.Close()
	}
	if p.object.Spec.HostNetwork {
		p.address = bridgeAddress
	}
	spec, err := p.prepare(ctx)
	for err != nil && !p.isEnding() {
		fmt.Println("pod", p.object.Namespace, p.object.Name, err)
		p.wait(time.Second) // for a Secret or a ConfigMap that comes later
		spec, err = p.prepare(ctx)
	}
	p.report(ctx, false)
	go p.watchReadiness(ctx)
	for !p.isEnding() {
		if spec == nil { // an image without a program: it only exists
			<-p.ending
			return
		}
		if err := p.once(spec); err != nil {
			fmt.Println("pod", p.object.Namespace, p.object.Name, err)
		}
		p.wait(time.Second)
	}
}

func (p *pod) wait(duration time.Duration) {
	select {
	case <-p.ending:
	case <-time.After(duration):
	}
}

// once runs the container until it exits.
func (p *pod) once(spec *spec) error {
	told, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer tell.Close()
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(own, "pod", string(text))
	command.Stdout, command.Stderr, command.ExtraFiles = &p.log, &p.log, []*os.File{told}
	flags := uintptr(syscall.CLONE_NEWNS)
	if !spec.Host {
		flags |= syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS
	}
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := command.Start(); err != nil {
		return err
	}
	told.Close()
	if !spec.Host {
		link := fmt.Sprintf("veth%d", p.number)
		pid := strconv.Itoa(command.Process.Pid)
		for _, line := range []string{
			"link add " + link + " type veth peer name eth0 netns " + pid,
			"link set " + link + " master br0 up",
		} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				fmt.Println("ip", line, err, string(out))
			}
		}
	}
	tell.Close() // the pod goes on
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	select {
	case err := <-exited:
		return fmt.Errorf("the container exited: %w", errorOr(err))
	case <-p.ending:
	}
	_ = command.Process.Signal(syscall.SIGTERM) // it may have exited
	select {
	case <-exited:
	case <-time.After(p.grace()):
		_ = command.Process.Kill() // as above
		<-exited
	}
	return nil
}

// grace is how long the container has after SIGTERM.
func (p *pod) grace() time.Duration {
	if asked := p.object.Spec.TerminationGracePeriodSeconds; asked != nil && image(p.object) == "weir" {
		return time.Duration(*asked) * time.Second
	}
	return longestGrace
}

// image is the name of the container's image, without registry and tag.
func image(object *corev1.Pod) string {
	return strings.SplitN(filepath.Base(object.Spec.Containers[0].Image), ":", 2)[0]
}

func errorOr(err error) error {
	if err == nil {
		return fmt.Errorf("status 0")
	}
	return err
}

// prepare makes the volumes. The result is nil if the image has no program.
func (p *pod) prepare(ctx context.Context) (*spec, error) {
	container := &p.object.Spec.Containers[0]
	out := &spec{
		Root:     filepath.Join(p.folder, "root"),
		Address:  p.address,
		Programs: map[string]string{},
		Volumes:  map[string]string{},
		Host:     p.object.Spec.HostNetwork,
		Hostname: p.object.Name,
	}
	name := image(p.object)
	switch {
	case strings.HasPrefix(name, "echo"):
		out.Programs["/echo"] = p.node.echo
		out.Command = []string{"/echo"}
	case name == "weir":
		// The image has its programs in /usr/bin, which is the machine's own here, so they are in / instead.
		if len(container.Command) != 1 || container.Command[0] != "/usr/bin/weir-kube" {
			return nil, fmt.Errorf("the image has no program %v", container.Command)
		}
		out.Programs["/weir-kube"] = p.node.weir
		if p.node.tool != "" {
			out.Programs["/weir"] = p.node.tool
		}
		out.Command = append([]string{"/weir-kube"}, container.Args...)
	default:
		out = nil
	}
	if err := os.MkdirAll(filepath.Join(p.folder, "root"), 0o755); err != nil || out == nil {
		return out, err
	}
	if context := p.object.Spec.SecurityContext; context != nil {
		out.User, out.Group = number(context.RunAsUser), number(context.RunAsGroup)
	}
	for _, mount := range container.VolumeMounts {
		for _, volume := range p.object.Spec.Volumes {
			if volume.Name == mount.Name {
				folder, err := p.volume(ctx, &volume, out)
				if err != nil {
					return nil, fmt.Errorf("volume %s: %w", volume.Name, err)
				}
				out.Volumes[mount.MountPath] = folder
			}
		}
	}
	if err := p.account(ctx, out); err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	out.Env = append(out.Env, "PATH=/usr/bin:/bin:/", "HOSTNAME="+p.object.Name,
		"KUBERNETES_SERVICE_HOST="+bridgeAddress, "KUBERNETES_SERVICE_PORT=6443")
	for _, variable := range container.Env {
		value, err := p.value(ctx, &variable)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
		}
		out.Env = append(out.Env, variable.Name+"="+value)
	}
	return out, nil
}

func number(written *int64) int {
	if written == nil {
		return 0
	}
	return int(*written)
}

func (p *pod) value(ctx context.Context, variable *corev1.EnvVar) (string, error) {
	from := variable.ValueFrom
	switch {
	case from == nil:
		return variable.Value, nil
	case from.SecretKeyRef != nil:
		secret, err := p.node.client.CoreV1().Secrets(p.object.Namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(secret.Data[from.SecretKeyRef.Key]), nil
	case from.FieldRef != nil:
		fields := map[string]string{
			"metadata.name":      p.object.Name,
			"metadata.namespace": p.object.Namespace,
			"status.podIP":       p.address,
			"spec.nodeName":      nodeName,
		}
		return fields[from.FieldRef.FieldPath], nil
	}
	return "", nil
}

// volume makes the folder of a volume.
func (p *pod) volume(ctx context.Context, volume *corev1.Volume, of *spec) (string, error) {
	folder := filepath.Join(p.folder, "volumes", volume.Name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	files, items := map[string][]byte{}, []corev1.KeyToPath(nil)
	switch {
	case volume.Secret != nil:
		secret, err := p.node.client.CoreV1().Secrets(p.object.Namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		files, items = secret.Data, volume.Secret.Items
	case volume.ConfigMap != nil:
		object, err := p.node.client.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for key, text := range object.Data {
			files[key] = []byte(text)
		}
		items = volume.ConfigMap.Items
	case volume.EmptyDir != nil:
		return folder, os.Chown(folder, of.User, of.Group)
	}
	if items == nil {
		for key := range files {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		if err := os.WriteFile(filepath.Join(folder, item.Path), files[item.Key], 0o644); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// account writes the token of the pod's service account, if it has one.
func (p *pod) account(ctx context.Context, of *spec) error {
	name := p.object.Spec.ServiceAccountName
	if name == "" || name == "default" {
		return nil
	}
	day := int64(24 * 3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}
	accounts := p.node.client.CoreV1().ServiceAccounts(p.object.Namespace)
	token, err := accounts.CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	folder := filepath.Join(p.folder, "account")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	of.Volumes[accountMount] = folder
	for file, text := range map[string]string{
		"token": token.Status.Token, "ca.crt": string(p.node.ca), "namespace": p.object.Namespace,
	} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// watchReadiness writes the status of the pod when its readiness changes.
func (p *pod) watchReadiness(ctx context.Context) {
	is := false
	for !p.isEnding() && ctx.Err() == nil {
		if now := p.isReady(); now != is && p.report(ctx, now) {
			is = now
		}
		p.wait(200 * time.Millisecond)
	}
}

// isReady asks the readiness probe, or else whether a port of the image's programs is open.
func (p *pod) isReady() bool {
	container := &p.object.Spec.Containers[0]
	if probe := container.ReadinessProbe; probe != nil && probe.HTTPGet != nil {
		port := probe.HTTPGet.Port.IntValue()
		for _, named := range container.Ports {
			if named.Name == probe.HTTPGet.Port.StrVal {
				port = int(named.ContainerPort)
			}
		}
		client := http.Client{Timeout: time.Second, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}}
		host := p.address
		if probe.HTTPGet.Host != "" {
			host = probe.HTTPGet.Host
		}
		answer, err := client.Get(fmt.Sprintf("http://%s:%d%s", host, port, probe.HTTPGet.Path))
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode < 400
	}
	if !strings.Contains(container.Image, "echo") {
		return true
	}
	for _, port := range []string{"3000", "8443", "9000"} {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(p.address, port), time.Second)
		if err == nil {
			connection.Close()
			return true
		}
	}
	return false
}

// report writes the status of the pod, and returns whether it could.
func (p *pod) report(ctx context.Context, ready bool) bool {
	status, now := corev1.ConditionFalse, metav1.Now()
	if ready {
		status = corev1.ConditionTrue
	}
	container := &p.object.Spec.Containers[0]
	object := p.object.DeepCopy()
	object.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: bridgeAddress, PodIP: p.address, StartTime: &now,
		HostIPs: []corev1.HostIP{{IP: bridgeAddress}}, PodIPs: []corev1.PodIP{{IP: p.address}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: container.Name, Image: container.Image, ImageID: container.Image, Ready: ready, Started: &ready,
			ContainerID: "process://" + string(p.object.UID),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized} {
		condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
		object.Status.Conditions = append(object.Status.Conditions, condition)
	}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		condition := corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: now}
		object.Status.Conditions = append(object.Status.Conditions, condition)
	}
	object.ResourceVersion = ""
	_, err := p.node.client.CoreV1().Pods(object.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if err != nil && !p.isEnding() {
		fmt.Println("status of", object.Namespace, object.Name, err)
	}
	return err == nil
}
