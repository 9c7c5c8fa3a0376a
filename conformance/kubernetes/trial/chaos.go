package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"weir.example/kubernetes/objects"
)

// trial is a chaos run.
type trial struct {
	*cluster
	all     []*unstructured.Unstructured
	load    *load
	address string
}

// phase is something that goes wrong, or changes, under load.
type phase struct {
	name string
	// How many requests may fail: those that a process had not answered when it was killed.
	mayFail int64
	run     func(context.Context, *trial) error
}

// outcome is what a phase did to the load.
type outcome struct {
	Phase    string   `json:"phase"`
	Seconds  float64  `json:"seconds"`
	Requests int64    `json:"requests"`
	Failed   int64    `json:"failed"`
	MayFail  int64    `json:"may_fail"`
	Error    string   `json:"error,omitempty"`
	Failures []string `json:"failures,omitempty"`
}

var phases = []phase{
	{"nothing", 0, func(context.Context, *trial) error { time.Sleep(2 * time.Second); return nil }},
	{"replicas", 0, twoReplicas},
	{"secret", 0, brokenSecret},
	{"rotation", 0, rotatedSecret},
	{"gateway", 0, recreateGateway},
	{"class", 0, recreateClass},
	{"namespace", 0, recreateNamespace},
	{"leader", 2 * clients, killLeader},
	{"api-server", 0, killServer},
	{"restart-without-api-server", 2 * clients, restartWithout},
	{"rollout", 0, rollOut},
}

// chaos runs all phases under one load, and fails if a request failed that should not have.
func chaos(ctx context.Context, c *cluster, file, result string) error {
	all, err := objects.Read(file)
	if err != nil {
		return err
	}
	t := &trial{cluster: c, all: all}
	for _, object := range all {
		if err := c.apply(ctx, object); err != nil {
			return err
		}
	}
	for _, name := range []string{"steady", "broken"} {
		if err := t.writeSecret(ctx, name, "*."+name+".example"); err != nil {
			return err
		}
	}
	if t.address, err = c.address(ctx, "steady", "web"); err != nil {
		return err
	}
	if err := t.ready(ctx, 2); err != nil {
		return err
	}
	client := steadyClient(t.address)
	for _, url := range []string{
		"http://one.steady.example/", "https://two.steady.example/", "https://two.broken.example/",
	} {
		if err := eventually(time.Minute, func() error { return post(ctx, client, url) }); err != nil {
			return err
		}
	}
	sending, stop := context.WithCancel(ctx)
	t.load = startLoad(sending, t.address)
	var outcomes []outcome
	wrong := 0
	for _, phase := range phases {
		t.load.take()
		began := time.Now()
		err := phase.run(ctx, t)
		time.Sleep(500 * time.Millisecond) // what it does to requests right after it
		out := outcome{Phase: phase.name, Seconds: time.Since(began).Seconds(), MayFail: phase.mayFail}
		out.Requests, out.Failed, out.Failures = t.load.take()
		if err != nil {
			out.Error = err.Error()
		}
		if err != nil || out.Failed > out.MayFail {
			wrong++
		}
		fmt.Printf("%-28s %6.1f s  %6d requests  %d failed  %s\n",
			out.Phase, out.Seconds, out.Requests, out.Failed, out.Error)
		for _, why := range out.Failures[:min(3, len(out.Failures))] {
			fmt.Println("   ", why)
		}
		outcomes = append(outcomes, out)
	}
	stop()
	t.load.done.Wait()
	if err := save(result, outcomes); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d phases went wrong", wrong, len(phases))
	}
	return nil
}

func save(result string, outcomes []outcome) error {
	if result == "" {
		return nil
	}
	text, err := json.MarshalIndent(outcomes, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(result, append(text, '\n'), 0o644)
}

// the returns the object of the file with this kind and name.
func (t *trial) the(kind, namespace, name string) *unstructured.Unstructured {
	for _, object := range t.all {
		if object.GetKind() == kind && object.GetNamespace() == namespace && object.GetName() == name {
			return object
		}
	}
	panic("no " + kind + " " + name + " in the file")
}

func (t *trial) remove(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := t.Of(object)
	if err != nil {
		return err
	}
	if err := resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil {
		return err
	}
	return t.gone(ctx, object)
}

// serves waits until the fragile Gateway serves.
func (t *trial) serves(ctx context.Context) error {
	return eventually(time.Minute, func() error {
		address, err := t.cluster.address(ctx, "fragile", "web")
		if err != nil {
			return err
		}
		return ask(address, "any.example")
	})
}

func recreateGateway(ctx context.Context, t *trial) error {
	if err := t.serves(ctx); err != nil {
		return err
	}
	gateway := t.the("Gateway", "fragile", "web")
	for range 3 {
		if err := t.remove(ctx, gateway); err != nil {
			return err
		}
		if err := t.apply(ctx, gateway); err != nil {
			return err
		}
	}
	return t.serves(ctx)
}

func recreateClass(ctx context.Context, t *trial) error {
	class := t.the("GatewayClass", "", "other")
	if err := t.remove(ctx, class); err != nil {
		return err
	}
	time.Sleep(time.Second)
	if err := t.apply(ctx, class); err != nil {
		return err
	}
	return t.serves(ctx)
}

func recreateNamespace(ctx context.Context, t *trial) error {
	if err := t.remove(ctx, t.the("Namespace", "", "fragile")); err != nil {
		return err
	}
	for _, object := range t.all {
		if object.GetNamespace() == "fragile" || object.GetName() == "fragile" {
			if err := t.apply(ctx, object); err != nil {
				return err
			}
		}
	}
	return t.serves(ctx)
}
