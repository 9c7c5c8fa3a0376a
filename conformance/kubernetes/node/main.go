// Command node plays what a cluster has besides its control plane, for tests on one machine: the scheduler and the
// kubelet of one node, the load balancer of a cloud, and `kubectl apply`.
//
//	node run  --kubeconfig FILE --echo FILE --weir FILE [--tool FILE] --state DIRECTORY [--static]
//	node apply --kubeconfig FILE [--static] [--dry] FILE...
//
// A pod is a process in its own network and mount namespace, with an address on the bridge br0. It runs as root of the
// machine's user namespace unless its securityContext says otherwise, so run all of it in `unshare --net --mount`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Name of the only node.
const nodeName = "node"

// Where pods reach the API server, and the node itself.
const bridgeAddress = "10.244.0.1"

type options struct {
	kubeconfig, echo, weir, tool, state, certificate, key, pool string
	static, dry                                                 bool
}

func main() {
	var command string
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	var o options
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server, as an administrator")
	flags.StringVar(&o.echo, "echo", "", "the program of the image echo-basic")
	flags.StringVar(&o.weir, "weir", "", "the program of the image weir")
	flags.StringVar(&o.tool, "tool", "", "the program weir of that image; none without it")
	flags.StringVar(&o.state, "state", "", "folder for logs and volumes")
	flags.StringVar(&o.certificate, "certificate", "", "certificate of the node's servers")
	flags.StringVar(&o.key, "key", "", "its key")
	flags.StringVar(&o.pool, "pool", "10.245.0", "first three numbers of the addresses for clients")
	flags.BoolVar(&o.static, "static", false, "give Gateways static addresses instead of balancing Services")
	flags.BoolVar(&o.dry, "dry", false, "with apply: let the API server check the objects, and change nothing")
	if command == "pod" {
		fail(inPod(os.Args[2]))
	}
	_ = flags.Parse(os.Args[2:]) // it exits
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		fail(err)
	}
	config.QPS, config.Burst = 1000, 1000
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch command {
	case "apply":
		err = apply(ctx, config, o.static, o.dry, flags.Args())
	case "run":
		err = run(ctx, config, &o)
	default:
		err = fmt.Errorf("no command called %q", command)
	}
	if err != nil {
		fail(err)
	}
}

func run(ctx context.Context, config *rest.Config, o *options) error {
	node, err := newNode(config, o)
	if err != nil {
		return err
	}
	defer node.end()
	if err := node.register(ctx); err != nil {
		return err
	}
	node.serve()
	if o.static {
		if err := node.installHook(ctx); err != nil {
			return err
		}
	} else {
		node.balance(ctx)
	}
	node.watchPods(ctx)
	<-ctx.Done()
	return nil
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}
