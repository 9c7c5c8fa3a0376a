package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// The port of the kubelet's server, from which the API server reads the logs of pods.
const kubeletPort = 10250

// node is the only node of the cluster.
type node struct {
	*options
	client kubernetes.Interface
	ca     []byte

	mu   sync.Mutex
	pods map[types.UID]*pod
	// The number of the next pod; the third and fourth number of its address come from it.
	next int
}

func newNode(config *rest.Config, o *options) (*node, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.state, 0o755); err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, err
	}
	return &node{options: o, client: client, ca: ca, pods: map[types.UID]*pod{}}, nil
}

// register creates the Node object.
func (n *node) register(ctx context.Context) error {
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   nodeName,
		Labels: map[string]string{"kubernetes.io/hostname": nodeName, "topology.kubernetes.io/zone": "a"},
	}}
	made, err := n.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = n.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	// The API server taints a new node as not ready, and a cluster's node controller removes that.
	made.Spec.Taints = nil
	if made, err = n.client.CoreV1().Nodes().Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: bridgeAddress}}
	made.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
	made.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	_, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// watchPods schedules, starts and ends pods until ctx ends.
func (n *node) watchPods(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(n.client, 30*time.Second)
	_, _ = factory.Core().V1().Pods().Informer().AddEventHandler(handlers( // an error is that it has stopped
		func(pod *corev1.Pod) { n.reconcile(ctx, pod) },
		func(pod *corev1.Pod) { n.forget(pod.UID) },
	))
	factory.Start(ctx.Done())
}

// handlers calls changed with each object that is new or may have changed, and gone with each that is deleted.
func handlers[T any](changed, gone func(T)) cache.ResourceEventHandlerFuncs {
	handle := func(object any) {
		if object, ok := object.(T); ok {
			changed(object)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    handle,
		UpdateFunc: func(_, object any) { handle(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if object, ok := object.(T); ok {
				gone(object)
			}
		},
	}
}

func (n *node) reconcile(ctx context.Context, object *corev1.Pod) {
	pods := n.client.CoreV1().Pods(object.Namespace)
	switch {
	case object.DeletionTimestamp != nil:
		go func() {
			n.forget(object.UID)
			now := int64(0)
			how := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(object.UID))}
			_ = pods.Delete(ctx, object.Name, how) // it may be gone
		}()
	case object.Spec.NodeName == "":
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: object.Name, Namespace: object.Namespace, UID: object.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
		}
		if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsConflict(err) {
			fmt.Println("bind", object.Namespace, object.Name, err)
		}
	default:
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.pods[object.UID] == nil {
			started := n.newPod(object)
			n.pods[object.UID] = started
			go started.run(ctx)
		}
	}
}

// newPod gives a pod its address and folder.
func (n *node) newPod(object *corev1.Pod) *pod {
	n.next++
	return &pod{
		node:    n,
		object:  object,
		number:  n.next,
		address: fmt.Sprintf("10.244.%d.%d", 1+n.next/250, 1+n.next%250),
		folder:  filepath.Join(n.state, "pods", string(object.UID)),
		ending:  make(chan struct{}),
		ended:   make(chan struct{}),
	}
}

// forget ends a pod and waits for it.
func (n *node) forget(uid types.UID) {
	n.mu.Lock()
	pod := n.pods[uid]
	n.mu.Unlock()
	if pod != nil {
		pod.end()
		<-pod.ended
	}
}

// end ends all pods.
func (n *node) end() {
	n.mu.Lock()
	all := make([]*pod, 0, len(n.pods))
	for _, pod := range n.pods {
		all = append(all, pod)
	}
	n.mu.Unlock()
	for _, pod := range all {
		pod.end()
	}
	for _, pod := range all {
		<-pod.ended
	}
}

// logOf is what the pod of this name wrote; nil if there is none.
func (n *node) logOf(namespace, name string) *podLog {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pod := range n.pods {
		if pod.object.Namespace == namespace && pod.object.Name == name {
			return &pod.log
		}
	}
	return nil
}
