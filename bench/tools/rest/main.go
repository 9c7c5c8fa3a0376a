// grpc-gateway in front of a gRPC server, as its generator would write it for one unary method: POST /v1/hello with a
// JSON body.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/health/grpc_health_v1"
)

const method = "/helloworld.v1.Greeter/SayHello"

func main() {
	connection, err := grpc.NewClient("127.0.0.1:"+os.Args[2], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fail(err)
	}
	mux := runtime.NewServeMux()
	err = mux.HandlePath(http.MethodPost, "/v1/hello", func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		inbound, outbound := runtime.MarshalerForRequest(mux, r)
		ctx, err := runtime.AnnotateContext(ctx, mux, r, method, runtime.WithHTTPPathPattern("/v1/hello"))
		if err != nil {
			runtime.HTTPError(ctx, mux, outbound, w, r, err)
			return
		}
		// Any generated message with one text in field 1.
		var request, reply pb.HealthCheckRequest
		if err := inbound.NewDecoder(r.Body).Decode(&request); err != nil && !errors.Is(err, io.EOF) {
			runtime.HTTPError(ctx, mux, outbound, w, r, err)
			return
		}
		var metadata runtime.ServerMetadata
		err = connection.Invoke(ctx, method, &request, &reply, grpc.Header(&metadata.HeaderMD), grpc.Trailer(&metadata.TrailerMD))
		ctx = runtime.NewServerMetadataContext(ctx, metadata)
		if err != nil {
			runtime.HTTPError(ctx, mux, outbound, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, mux, outbound, w, r, &reply, mux.GetForwardResponseOptions()...)
	})
	if err != nil {
		fail(err)
	}
	fail(http.ListenAndServe("127.0.0.1:"+os.Args[1], mux))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
