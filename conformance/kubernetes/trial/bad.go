package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"weir.example/kubernetes/objects"
)

const (
	// The statuses are complete when they have not changed for this long. Events come after 3 s, ten a second.
	settled = 15 * time.Second
	// How long that may take.
	settleFor = 90 * time.Second
)

// bad writes objects that people get wrong, and compares what becomes of each with expected.txt: the API server refuses
// it, or its status says why Weir does, or it serves. Meanwhile no request for the good route may fail.
func bad(ctx context.Context, c *cluster, folder string, bless bool) error {
	base, err := objects.Read(filepath.Join(folder, "base.yaml"))
	if err != nil {
		return err
	}
	for _, object := range base {
		if err := c.apply(ctx, object); err != nil {
			return err
		}
	}
	address, err := c.address(ctx, "bad", "web")
	if err != nil {
		return err
	}
	failed, asked := &atomic.Int64{}, &atomic.Int64{}
	if err := eventually(time.Minute, func() error { return ask(address, "good.example") }); err != nil {
		return fmt.Errorf("the good route: %w", err)
	}
	polls, stop := context.WithCancel(ctx)
	defer stop()
	go poll(polls, address, asked, failed)

	var out []string
	var written []*unstructured.Unstructured
	for _, file := range []string{"extensions.yaml", "http.yaml", "others.yaml"} {
		all, err := objects.Read(filepath.Join(folder, file))
		if err != nil {
			return err
		}
		for _, object := range all {
			err := c.Create(ctx, object)
			switch {
			case err == nil:
				written = append(written, object)
			case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
				out = append(out, title(object)+": refused by the API server")
			default:
				return fmt.Errorf("%s: %w", title(object), err)
			}
		}
	}
	became, err := c.settle(ctx, written)
	if err != nil {
		return err
	}
	out = append(out, became...)
	slices.Sort(out)
	for _, object := range slices.Backward(written) {
		resource, err := c.Of(object)
		if err != nil {
			return err
		}
		if err := resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	time.Sleep(time.Second) // what their removal does to the good route
	stop()
	fmt.Printf("bad: %d objects, %d taken by the API server; the good route: %d requests, %d failed\n",
		len(out), len(written), asked.Load(), failed.Load())
	if failed.Load() > 0 {
		return fmt.Errorf("%d requests for the good route failed", failed.Load())
	}
	return expect(filepath.Join(folder, "expected.txt"), strings.Join(out, "\n")+"\n", bless)
}

func expect(file, text string, bless bool) error {
	if bless {
		return os.WriteFile(file, []byte(text), 0o644)
	}
	expected, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if string(expected) == text {
		return nil
	}
	wrong := append(lines("  - ", string(expected), text), lines("  + ", text, string(expected))...)
	return fmt.Errorf("what becomes of bad objects is not what %s expects (--bless writes it anew)\n%s",
		file, strings.Join(wrong, "\n"))
}

func title(object *unstructured.Unstructured) string {
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return object.GetKind() + " " + name
}

// settle waits until the statuses and Events of objects change no more, and tells them.
func (c *cluster) settle(ctx context.Context, all []*unstructured.Unstructured) ([]string, error) {
	var last []string
	since, until := time.Now(), time.Now().Add(settleFor)
	for time.Since(since) < settled {
		if time.Now().After(until) {
			return nil, fmt.Errorf("statuses change without end")
		}
		events, err := c.events(ctx)
		if err != nil {
			return nil, err
		}
		var now []string
		for _, object := range all {
			resource, err := c.Of(object)
			if err != nil {
				return nil, err
			}
			told, err := tell(ctx, resource, object, events)
			if err != nil {
				return nil, err
			}
			now = append(now, told)
		}
		if !slices.Equal(now, last) {
			last, since = now, time.Now()
		}
		time.Sleep(500 * time.Millisecond)
	}
	return last, nil
}

// events are the notes of the Events of Ingresses, which have no conditions, by the object's name.
func (c *cluster) events(ctx context.Context) (map[string][]string, error) {
	list, err := c.kube.EventsV1().Events("bad").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, event := range list.Items {
		if event.Regarding.Kind == "Ingress" {
			out[event.Regarding.Name] = append(out[event.Regarding.Name], event.Reason+": "+event.Note)
		}
	}
	return out, nil
}

// tell says in what an object's status or its Events find fault.
func tell(
	ctx context.Context,
	resource dynamic.ResourceInterface,
	object *unstructured.Unstructured,
	events map[string][]string,
) (string, error) {
	now, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	status, _, _ := unstructured.NestedMap(now.Object, "status")
	faults, seen := faultsIn(status, "")
	if object.GetKind() == "Ingress" {
		faults, seen = append(faults, events[object.GetName()]...), 1
	}
	slices.Sort(faults)
	switch {
	case seen == 0:
		return title(object) + ": no status", nil
	case len(faults) == 0:
		return title(object) + ": taken", nil
	}
	return title(object) + ":\n    " + strings.Join(faults, "\n    "), nil
}

// Conditions that say something good if they are true.
var goodIfTrue = []string{"Accepted", "Programmed", "ResolvedRefs", "SupportedVersion"}

// faultsIn lists the conditions that say that something is wrong, and how many conditions there are.
func faultsIn(status map[string]any, place string) ([]string, int) {
	var faults []string
	seen := 0
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	for _, condition := range conditions {
		condition, ok := condition.(map[string]any)
		if !ok || condition["reason"] == "Pending" {
			continue // the API server's default, before a controller has looked
		}
		seen++
		holds := condition["status"] == "True"
		if holds != slices.Contains(goodIfTrue, fmt.Sprint(condition["type"])) {
			faults = append(faults, fmt.Sprintf("%s%v=%v %v: %v", place, condition["type"], condition["status"],
				condition["reason"], condition["message"]))
		}
	}
	for _, list := range []string{"parents", "listeners", "ancestors"} {
		inner, _, _ := unstructured.NestedSlice(status, list)
		for _, one := range inner {
			one, ok := one.(map[string]any)
			if !ok {
				continue
			}
			more, count := faultsIn(one, place+nameOf(one)+": ")
			faults, seen = append(faults, more...), seen+count
		}
	}
	return faults, seen
}

func nameOf(part map[string]any) string {
	for _, key := range []string{"parentRef", "ancestorRef"} {
		if reference, ok := part[key].(map[string]any); ok {
			name := fmt.Sprint(reference["name"])
			if section, ok := reference["sectionName"]; ok {
				name += "/" + fmt.Sprint(section)
			}
			return name
		}
	}
	return fmt.Sprint(part["name"])
}

// poll asks for the good route again and again.
func poll(ctx context.Context, address string, asked, failed *atomic.Int64) {
	for ctx.Err() == nil {
		asked.Add(1)
		if err := ask(address, "good.example"); err != nil {
			failed.Add(1)
			fmt.Println("the good route:", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ask sends one request over a new connection.
func ask(address, host string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequest(http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return err
	}
	request.Host = host
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}
