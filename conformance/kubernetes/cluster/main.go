// Command cluster is a Kubernetes control plane in one binary: etcd, kube-apiserver and kube-controller-manager.
//
//	cluster etcd DIRECTORY CLIENT-URL
//	cluster kube-apiserver FLAG...
//	cluster kube-controller-manager FLAG...
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: cluster etcd|kube-apiserver|kube-controller-manager"))
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	switch part {
	case "etcd":
		if err := etcd(os.Args[1:]); err != nil {
			fail(err)
		}
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(manager.NewControllerManagerCommand())
	default:
		fail(fmt.Errorf("no part called %q", part))
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

// etcd runs until SIGTERM. It does not wait for the disk: the data is thrown away at the end.
func etcd(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: cluster etcd DIRECTORY CLIENT-URL")
	}
	clients, err := url.Parse(arguments[1])
	if err != nil {
		return err
	}
	peers := url.URL{Scheme: "http", Host: "127.0.0.1:2380"}
	config := embed.NewConfig()
	config.Name = "default"
	config.Dir = arguments[0]
	config.UnsafeNoFsync = true
	config.LogLevel = "error"
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-server.Err():
		return err
	case <-end:
		return nil
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "cluster:", err)
	os.Exit(1)
}
