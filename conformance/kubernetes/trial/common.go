package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	gatewayKind = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	routeKind   = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
)

// eventually tries something every 100 ms, and returns its last error when the time is over.
func eventually(within time.Duration, try func() error) error {
	until := time.Now().Add(within)
	for {
		err := try()
		if err == nil || time.Now().After(until) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// apply creates or updates an object; an error names it.
func (c *cluster) apply(ctx context.Context, object *unstructured.Unstructured) error {
	if err := c.Apply(ctx, object, false); err != nil {
		return fmt.Errorf("%s: %w", title(object), err)
	}
	return nil
}

// gone waits until an object does not exist.
func (c *cluster) gone(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := c.Of(object)
	if err != nil {
		return err
	}
	return eventually(time.Minute, func() error {
		_, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s is still there: %v", title(object), err)
	})
}

// address waits until a Gateway is programmed, and returns its first address.
func (c *cluster) address(ctx context.Context, namespace, name string) (string, error) {
	var address string
	err := eventually(time.Minute, func() error {
		gateway, err := c.Dynamic.Resource(gatewayKind).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _, _ := unstructured.NestedMap(gateway.Object, "status")
		addresses, _, _ := unstructured.NestedSlice(status, "addresses")
		if conditionOf(status, "Programmed") != "True" || len(addresses) == 0 {
			return fmt.Errorf("Gateway %s/%s is not programmed", namespace, name)
		}
		first, _ := addresses[0].(map[string]any)
		address = fmt.Sprint(first["value"])
		return nil
	})
	return address, err
}

// conditionOf is the status of a condition; empty without it.
func conditionOf(status map[string]any, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	for _, condition := range conditions {
		if condition, ok := condition.(map[string]any); ok && condition["type"] == kind {
			return fmt.Sprint(condition["status"])
		}
	}
	return ""
}
