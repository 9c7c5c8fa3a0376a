// Package objects reads objects from YAML and writes them to an API server.
package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// How long `Apply` waits for a definition to be served, or a namespace to exist.
const applyFor = 30 * time.Second

// Client knows the resources of an API server.
type Client struct {
	Dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// New connects to an API server.
func New(config *rest.Config) (*Client, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	return &Client{client, mapper}, nil
}

// Of returns the resource of an object, in its namespace.
func (c *Client) Of(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.Dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
	}
	return c.Dynamic.Resource(mapping.Resource), nil
}

// Apply creates or updates an object, and waits for its definition and its namespace. With dry, the API server only
// checks it.
func (c *Client) Apply(ctx context.Context, object *unstructured.Unstructured, dry bool) error {
	until := time.Now().Add(applyFor)
	for {
		err := c.applyOnce(ctx, object, dry)
		if err == nil || apierrors.IsInvalid(err) || time.Now().After(until) || ctx.Err() != nil {
			return err
		}
		c.mapper.Reset() // the definition may be served by now
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *Client) applyOnce(ctx context.Context, object *unstructured.Unstructured, dry bool) error {
	resource, err := c.Of(object)
	if err != nil {
		return err
	}
	how := metav1.ApplyOptions{FieldManager: "node", Force: true}
	if dry {
		how.DryRun = []string{metav1.DryRunAll}
	}
	_, err = resource.Apply(ctx, object.GetName(), object, how)
	return err
}

// Create creates an object, and refuses unknown fields as kubectl does.
func (c *Client) Create(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := c.Of(object)
	if err != nil {
		return err
	}
	how := metav1.CreateOptions{FieldManager: "node", FieldValidation: metav1.FieldValidationStrict}
	_, err = resource.Create(ctx, object, how)
	return err
}

// Read returns the objects of a YAML file, in their order.
func Read(file string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}
