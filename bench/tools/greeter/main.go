// A gRPC server for benchmarks: every unary method returns the message that it received.
package main

import (
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// raw passes messages as bytes: no schema is needed to echo them.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) { return *v.(*mem.BufferSlice), nil }

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	*v.(*mem.BufferSlice) = data
	return nil
}

func echo(_ any, stream grpc.ServerStream) error {
	var message mem.BufferSlice
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	return stream.SendMsg(&message)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	encoding.RegisterCodecV2(raw{})
	server := grpc.NewServer(grpc.UnknownServiceHandler(echo), grpc.MaxConcurrentStreams(1000))
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
