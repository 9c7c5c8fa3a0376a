// Command trial tests what the official suite does not: objects that people get wrong, rights that weir-kube must not
// have, and failures under load. `compare` compares two manifests. trial.sh and chart.sh run it.
//
//	trial bad --kubeconfig FILE --folder bad [--bless]
//	trial chaos --kubeconfig FILE --objects chaos.yaml --result FILE
//	trial rights --kubeconfig FILE --account NAMESPACE/NAME --manifest FILE
//	trial compare FILE FILE
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"weir.example/kubernetes/objects"
)

// cluster is how the commands reach the API server.
type cluster struct {
	*objects.Client
	kube kubernetes.Interface
	// The folder of the kubeconfig, where run.sh keeps everything.
	folder string
}

func main() {
	var command string
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	flags := flag.NewFlagSet("trial", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server, as an administrator")
	folder := flags.String("folder", "", "folder with bad objects, and with what becomes of them")
	bless := flags.Bool("bless", false, "write what becomes of them anew")
	file := flags.String("objects", "", "the objects under load")
	result := flags.String("result", "", "where to write the result")
	account := flags.String("account", "", "namespace and name of the service account")
	manifest := flags.String("manifest", "", "manifest with its roles")
	_ = flags.Parse(os.Args[min(2, len(os.Args)):]) // it exits
	ctx := context.Background()
	run := func() error {
		if command == "compare" {
			if flags.NArg() != 2 {
				return fmt.Errorf("compare takes two files")
			}
			return compare(flags.Arg(0), flags.Arg(1))
		}
		c, err := connect(*kubeconfig)
		if err != nil {
			return err
		}
		switch command {
		case "bad":
			return bad(ctx, c, *folder, *bless)
		case "chaos":
			return chaos(ctx, c, *file, *result)
		case "rights":
			return rights(ctx, c, *account, *manifest)
		}
		return fmt.Errorf("no command called %q", command)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "trial:", err)
		os.Exit(1)
	}
}

func connect(kubeconfig string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 1000, 1000
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // of Secrets that are wrong on purpose
	client, err := objects.New(config)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &cluster{client, kube, filepath.Dir(kubeconfig)}, nil
}
