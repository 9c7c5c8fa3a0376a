// Command churn changes HTTPRoutes of a Gateway while a load runs over all of them, and measures how long each change
// takes to serve, from the moment the API server acknowledged it.
//
//	churn --kubeconfig FILE --weir FILE --result FILE [--routes 200] [--changes 2000] [--rate 1000]
//
// The objects of churn.yaml must be there. Each change gives a route another version in a response header, and sends it
// to the other of two Services.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace = "churn"
	// How many changes are under way at a time.
	workers = 4
	// How long a change may take before the run has failed.
	longest = 60 * time.Second
	// How often the gateway is asked whether a change serves.
	interval = time.Millisecond
)

var (
	routeKind   = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	gatewayKind = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
)

type result struct {
	Routes          int             `json:"routes"`
	Changes         int             `json:"changes"`
	Seconds         float64         `json:"seconds"`
	CreatedSeconds  float64         `json:"created_seconds"`
	MillisecondsP50 float64         `json:"ms_p50"`
	MillisecondsP90 float64         `json:"ms_p90"`
	MillisecondsP99 float64         `json:"ms_p99"`
	MillisecondsMax float64         `json:"ms_max"`
	AcknowledgedP50 float64         `json:"acknowledged_ms_p50"`
	FailedInPolls   int64           `json:"failed_requests_of_polls"`
	RequestsOfPolls int64           `json:"requests_of_polls"`
	LoadReport      json.RawMessage `json:"load,omitempty"`
	LoadExit        string          `json:"load_exit"`
}

type churn struct {
	routes  dynamic.ResourceInterface
	address string
	client  *http.Client
	asked   atomic.Int64
	failed  atomic.Int64
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	weir := flag.String("weir", "", "the program weir, for the load; none without it")
	file := flag.String("result", "", "where to write the result")
	first := flag.Int("first", 0, "routes that are there already")
	routes := flag.Int("routes", 200, "routes, with those that are there")
	changes := flag.Int("changes", 2000, "changes")
	rate := flag.Int("rate", 1000, "requests per second of the load")
	flag.Parse()
	if err := run(*kubeconfig, *weir, *file, *first, *routes, *changes, *rate); err != nil {
		fmt.Fprintln(os.Stderr, "churn:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, weir, file string, first, routes, changes, rate int) error {
	ctx := context.Background()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 5000, 5000
	all, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	c := &churn{
		routes: all.Resource(routeKind).Namespace(namespace),
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * workers}},
	}
	if c.address, err = address(ctx, all.Resource(gatewayKind).Namespace(namespace)); err != nil {
		return err
	}
	out := result{Routes: routes, Changes: changes}
	began := time.Now()
	if err := c.each(routes-first, func(at int) error { return c.create(ctx, first+at) }); err != nil {
		return err
	}
	serves := func(at int) error { _, err := c.waitFor(first+at, 0, time.Now()); return err }
	if err := c.each(routes-first, serves); err != nil {
		return err
	}
	out.CreatedSeconds = time.Since(began).Seconds()
	c.asked.Store(0)
	c.failed.Store(0)

	folder := filepath.Dir(kubeconfig)
	load, report, err := c.load(weir, folder, routes, rate)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var served, acknowledged []float64
	began = time.Now()
	err = c.each(changes, func(change int) error {
		ack, serve, err := c.change(ctx, change%routes, 1+change/routes)
		mu.Lock()
		defer mu.Unlock()
		acknowledged, served = append(acknowledged, ack), append(served, serve)
		return err
	})
	if err != nil {
		return err
	}
	out.Seconds = time.Since(began).Seconds()
	if load != nil {
		_ = load.Process.Signal(os.Interrupt) // it may have ended
		out.LoadExit = fmt.Sprint(load.Wait())
		if json.Valid(report.Bytes()) {
			out.LoadReport = json.RawMessage(bytes.Clone(report.Bytes()))
		}
	}
	out.MillisecondsP50, out.MillisecondsP90 = percentile(served, 50), percentile(served, 90)
	out.MillisecondsP99, out.MillisecondsMax = percentile(served, 99), percentile(served, 100)
	out.AcknowledgedP50 = percentile(acknowledged, 50)
	out.FailedInPolls, out.RequestsOfPolls = c.failed.Load(), c.asked.Load()
	text, err := json.MarshalIndent(&out, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// each runs the steps 0 to count on several workers. All steps of one route run on one worker, in their order.
func (c *churn) each(count int, step func(int) error) error {
	errs := make(chan error, workers)
	for worker := range workers {
		go func() {
			for at := worker; at < count; at += workers {
				if err := step(at); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var failed error
	for range workers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

// address waits for the address of the Gateway.
func address(ctx context.Context, gateways dynamic.ResourceInterface) (string, error) {
	for until := time.Now().Add(longest); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		gateway, err := gateways.Get(ctx, "churn", metav1.GetOptions{})
		if err != nil {
			continue
		}
		addresses, _, _ := unstructured.NestedSlice(gateway.Object, "status", "addresses")
		if len(addresses) > 0 {
			value, _, _ := unstructured.NestedString(addresses[0].(map[string]any), "value")
			return net.JoinHostPort(value, "80"), nil
		}
	}
	return "", fmt.Errorf("the Gateway churn has no address after %v", longest)
}

func host(route int) string { return fmt.Sprintf("r%d.churn.test", route) }

func rules(version int) []any {
	service := []string{"even", "odd"}[version%2]
	return []any{map[string]any{
		"filters": []any{map[string]any{
			"type": "ResponseHeaderModifier",
			"responseHeaderModifier": map[string]any{
				"set": []any{map[string]any{"name": "x-version", "value": fmt.Sprint(version)}},
			},
		}},
		"backendRefs": []any{map[string]any{"name": service, "port": int64(8080)}},
	}}
}

func (c *churn) create(ctx context.Context, route int) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
		"metadata": map[string]any{"name": fmt.Sprintf("r%d", route), "namespace": namespace},
		"spec": map[string]any{
			"parentRefs": []any{map[string]any{"name": "churn"}},
			"hostnames":  []any{host(route)},
			"rules":      rules(0),
		},
	}}
	_, err := c.routes.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// change returns the milliseconds until the acknowledgement, and from there until the change serves.
func (c *churn) change(ctx context.Context, route, version int) (float64, float64, error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"rules": rules(version)}})
	if err != nil {
		return 0, 0, err
	}
	sent := time.Now()
	how := metav1.PatchOptions{}
	if _, err := c.routes.Patch(ctx, fmt.Sprintf("r%d", route), types.MergePatchType, patch, how); err != nil {
		return 0, 0, err
	}
	acknowledged := time.Now()
	took, err := c.waitFor(route, version, acknowledged)
	return milliseconds(acknowledged.Sub(sent)), milliseconds(took), err
}

// waitFor asks until the answer has this version.
func (c *churn) waitFor(route, version int, from time.Time) (time.Duration, error) {
	for time.Since(from) < longest {
		request, err := http.NewRequest(http.MethodGet, "http://"+c.address+"/", nil)
		if err != nil {
			return 0, err
		}
		request.Host = host(route)
		c.asked.Add(1)
		answer, err := c.client.Do(request)
		if err != nil {
			c.failed.Add(1)
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body) // an incomplete body counts by its status
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			c.failed.Add(1)
		}
		if answer.Header.Get("x-version") == fmt.Sprint(version) {
			return time.Since(from), nil
		}
		time.Sleep(interval)
	}
	return 0, fmt.Errorf("version %d of route %d does not serve after %v", version, route, longest)
}

// load starts a load over all routes; its report is complete when it has ended.
func (c *churn) load(weir, folder string, routes, rate int) (*exec.Cmd, *bytes.Buffer, error) {
	if weir == "" {
		return nil, nil, nil
	}
	feed := bytes.NewBufferString("host\n")
	for route := range routes {
		fmt.Fprintln(feed, host(route))
	}
	hosts := filepath.Join(folder, "hosts.csv")
	if err := os.WriteFile(hosts, feed.Bytes(), 0o644); err != nil {
		return nil, nil, err
	}
	report := &bytes.Buffer{}
	load := exec.Command(weir, "load", "http://"+c.address+"/", "--header", "host: {{data.host}}", "--feed", hosts,
		"--rate", fmt.Sprintf("%d/s", rate), "--duration", "30m", "--check", "status=200", "--format", "json")
	load.Stdout, load.Stderr = report, os.Stderr
	return load, report, load.Start()
}

func milliseconds(of time.Duration) float64 { return float64(of.Microseconds()) / 1000 }

func percentile(of []float64, percent int) float64 {
	slices.Sort(of)
	if len(of) == 0 {
		return 0
	}
	return of[max(0, (len(of)*percent+99)/100-1)]
}
