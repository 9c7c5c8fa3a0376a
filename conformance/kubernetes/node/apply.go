package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"weir.example/kubernetes/objects"
)

// apply creates or updates the objects of YAML files, in their order. If static, our Deployment is changed for a
// machine without a load balancer: one replica in the network of the node, where the addresses of Gateways are. With
// dry, the API server checks the objects and nothing changes.
func apply(ctx context.Context, config *rest.Config, static, dry bool, files []string) error {
	client, err := objects.New(config)
	if err != nil {
		return err
	}
	for _, file := range files {
		all, err := objects.Read(file)
		if err != nil {
			return err
		}
		for _, object := range all {
			if static {
				onNode(object)
			}
			if err := client.Apply(ctx, object, dry); err != nil {
				return fmt.Errorf("%s: %s %s: %w", file, object.GetKind(), object.GetName(), err)
			}
		}
	}
	return nil
}

// onNode puts the pod of a Deployment into the network of the node, which has room for one.
func onNode(object *unstructured.Unstructured) {
	if object.GetKind() == "HorizontalPodAutoscaler" {
		spec := object.Object["spec"].(map[string]any)
		spec["minReplicas"], spec["maxReplicas"] = int64(1), int64(1)
	}
	if object.GetKind() != "Deployment" {
		return
	}
	spec := object.Object["spec"].(map[string]any)
	spec["replicas"] = int64(1)
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	pod["hostNetwork"] = true
	delete(pod["securityContext"].(map[string]any), "sysctls") // of the node's network: run.sh sets it
}
