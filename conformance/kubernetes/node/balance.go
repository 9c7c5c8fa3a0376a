package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
)

// balancer gives Services of the type LoadBalancer an address and passes their connections on to their endpoints.
type balancer struct {
	node      *node
	pool      *addresses
	slices    discoverylisters.EndpointSliceLister
	mu        sync.Mutex
	listeners map[string]net.Listener // by namespace, name, address and port
}

func (n *node) balance(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(n.client, 30*time.Second)
	b := &balancer{
		node:      n,
		pool:      &addresses{prefix: n.pool, of: map[string]string{}},
		slices:    factory.Discovery().V1().EndpointSlices().Lister(),
		listeners: map[string]net.Listener{},
	}
	_, _ = factory.Core().V1().Services().Informer().AddEventHandler(handlers( // an error is that it has stopped
		func(service *corev1.Service) { b.reconcile(ctx, service) },
		func(service *corev1.Service) { b.keep(service, nil) },
	))
	factory.Start(ctx.Done())
}

func key(service *corev1.Service, address string, port int32) string {
	return fmt.Sprintf("%s/%s/%s:%d", service.Namespace, service.Name, address, port)
}

// keep closes the listeners of a Service but those of these ports.
func (b *balancer) keep(service *corev1.Service, ports map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := service.Namespace + "/" + service.Name + "/"
	for key, listener := range b.listeners {
		if strings.HasPrefix(key, own) && !ports[key] {
			listener.Close()
			delete(b.listeners, key)
		}
	}
}

func (b *balancer) reconcile(ctx context.Context, service *corev1.Service) {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.DeletionTimestamp != nil {
		b.keep(service, nil)
		return
	}
	address := b.pool.get(service.Namespace + "/" + service.Name)
	if asked := service.Spec.LoadBalancerIP; asked != "" {
		if !strings.HasPrefix(asked, b.pool.prefix+".") {
			b.keep(service, nil) // not ours: it gets none
			return
		}
		address = asked
	}
	ports := map[string]bool{}
	for _, port := range service.Spec.Ports {
		if port.Protocol != corev1.ProtocolTCP {
			continue
		}
		key := key(service, address, port.Port)
		ports[key] = true
		if err := b.open(key, address, service, port); err != nil {
			fmt.Println("balancer", key, err)
		}
	}
	b.keep(service, ports)
	if len(service.Status.LoadBalancer.Ingress) == 1 && service.Status.LoadBalancer.Ingress[0].IP == address {
		return
	}
	changed := service.DeepCopy()
	changed.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	_, err := b.node.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		fmt.Println("status of Service", service.Namespace, service.Name, err)
	}
}

func (b *balancer) open(key, address string, service *corev1.Service, port corev1.ServicePort) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners[key] != nil {
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, port.Port))
	if err != nil {
		return err
	}
	b.listeners[key] = listener
	namespace, name, portName := service.Namespace, service.Name, port.Name
	go func() {
		for number := 0; ; number++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go b.pass(client, number, namespace, name, portName)
		}
	}()
	return nil
}

// pass connects a client to the ready endpoints in turn. If one refuses the connection, it tries the next, because a
// cloud's load balancer has health checks of its own. If none accepts, it closes the client's connection.
func (b *balancer) pass(client net.Conn, number int, namespace, service, port string) {
	defer client.Close()
	endpoints := b.endpoints(namespace, service, port)
	var server net.Conn
	for attempt := range endpoints {
		var err error
		server, err = net.DialTimeout("tcp", endpoints[(number+attempt)%len(endpoints)], time.Second)
		if err == nil {
			break
		}
	}
	if server == nil {
		return
	}
	defer server.Close()
	done := make(chan struct{}, 2)
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // its end is all that matters
		if half, ok := to.(*net.TCPConn); ok {
			_ = half.CloseWrite() // as above
		}
		done <- struct{}{}
	}
	go pipe(server, client)
	go pipe(client, server)
	<-done
	<-done
}

func (b *balancer) endpoints(namespace, service, port string) []string {
	slices, err := b.slices.EndpointSlices(namespace).List(labels.Set{discoveryv1.LabelServiceName: service}.AsSelector())
	if err != nil {
		return nil
	}
	var all []string
	for _, slice := range slices {
		for _, p := range slice.Ports {
			if p.Port == nil || (p.Name != nil && *p.Name != port) {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
					all = append(all, fmt.Sprintf("%s:%d", endpoint.Addresses[0], *p.Port))
				}
			}
		}
	}
	return all
}
