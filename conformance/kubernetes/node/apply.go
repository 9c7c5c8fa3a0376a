package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

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

// How long `apply` waits for a definition to be served, or a namespace to exist.
const applyFor = 30 * time.Second

// apply creates or updates the objects of YAML files, in their order. If static, our Deployment is changed for a machine
// without a load balancer: one replica in the network of the node, where the addresses of Gateways are.
func apply(ctx context.Context, config *rest.Config, static bool, files []string) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if len(object.Object) == 0 {
				continue
			}
			if static {
				onNode(object)
			}
			if err := applyOne(ctx, client, mapper, object); err != nil {
				return fmt.Errorf("%s: %s %s: %w", file, object.GetKind(), object.GetName(), err)
			}
		}
	}
	return nil
}

// onNode puts the pods of a Deployment into the network of the node.
func onNode(object *unstructured.Unstructured) {
	if object.GetKind() != "Deployment" {
		return
	}
	spec := object.Object["spec"].(map[string]any)
	spec["replicas"] = int64(1)
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	pod["hostNetwork"] = true
	delete(pod["securityContext"].(map[string]any), "sysctls") // of the node's network: run.sh sets it
}

func applyOne(
	ctx context.Context,
	client dynamic.Interface,
	mapper *restmapper.DeferredDiscoveryRESTMapper,
	object *unstructured.Unstructured,
) error {
	kind := object.GroupVersionKind()
	until := time.Now().Add(applyFor)
	for {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil {
			var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
			}
			how := metav1.ApplyOptions{FieldManager: "node", Force: true}
			_, err = resource.Apply(ctx, object.GetName(), object, how)
		}
		if err == nil || time.Now().After(until) || ctx.Err() != nil {
			return err
		}
		mapper.Reset()
		time.Sleep(200 * time.Millisecond)
	}
}
