// A processor built with Envoy's Go module, for the tests of the filter `ext_proc`. It prints its address, and does
// what the request's field `x-do` says.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
)

type processor struct {
	pb.UnimplementedExternalProcessorServer
}

func get(headers *core.HeaderMap, name string) string {
	for _, header := range headers.GetHeaders() {
		if header.Key == name {
			return string(header.RawValue)
		}
	}
	return ""
}

func set(name, value string) *pb.HeaderMutation {
	option := &core.HeaderValueOption{
		Header:       &core.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
	return &pb.HeaderMutation{SetHeaders: []*core.HeaderValueOption{option}}
}

func body(data []byte) *pb.BodyMutation {
	return &pb.BodyMutation{Mutation: &pb.BodyMutation_Body{Body: data}}
}

func (processor) Process(stream pb.ExternalProcessor_ProcessServer) error {
	do := ""
	for {
		request, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		answer := &pb.ProcessingResponse{}
		switch part := request.Request.(type) {
		case *pb.ProcessingRequest_RequestHeaders:
			do = get(part.RequestHeaders.Headers, "x-do")
			common := &pb.CommonResponse{HeaderMutation: set("x-path", get(part.RequestHeaders.Headers, ":path"))}
			switch do {
			case "refuse":
				answer.Response = &pb.ProcessingResponse_ImmediateResponse{ImmediateResponse: &pb.ImmediateResponse{
					Status:  &types.HttpStatus{Code: types.StatusCode_Forbidden},
					Headers: set("x-why", "refused"),
					Body:    []byte("by the processor"),
				}}
			case "replace":
				common.Status = pb.CommonResponse_CONTINUE_AND_REPLACE
				common.BodyMutation = body([]byte("replaced"))
			case "stream":
				answer.ModeOverride = &filter.ProcessingMode{
					RequestBodyMode:    filter.ProcessingMode_STREAMED,
					ResponseBodyMode:   filter.ProcessingMode_STREAMED,
					ResponseHeaderMode: filter.ProcessingMode_SKIP,
				}
			case "buffer":
				answer.ModeOverride = &filter.ProcessingMode{
					RequestBodyMode:  filter.ProcessingMode_BUFFERED,
					ResponseBodyMode: filter.ProcessingMode_BUFFERED,
				}
			case "fail":
				return fmt.Errorf("as asked")
			case "end":
				return nil
			}
			if answer.Response == nil {
				answer.Response = &pb.ProcessingResponse_RequestHeaders{RequestHeaders: &pb.HeadersResponse{Response: common}}
			}
		case *pb.ProcessingRequest_RequestBody:
			common := &pb.CommonResponse{BodyMutation: body(bytes.ToUpper(part.RequestBody.Body))}
			answer.Response = &pb.ProcessingResponse_RequestBody{RequestBody: &pb.BodyResponse{Response: common}}
		case *pb.ProcessingRequest_RequestTrailers:
			answer.Response = &pb.ProcessingResponse_RequestTrailers{RequestTrailers: &pb.TrailersResponse{HeaderMutation: set("x-sum", "2")}}
		case *pb.ProcessingRequest_ResponseHeaders:
			common := &pb.CommonResponse{HeaderMutation: set("x-processed", get(part.ResponseHeaders.Headers, ":status"))}
			answer.Response = &pb.ProcessingResponse_ResponseHeaders{ResponseHeaders: &pb.HeadersResponse{Response: common}}
		case *pb.ProcessingRequest_ResponseBody:
			common := &pb.CommonResponse{BodyMutation: body(bytes.ToUpper(part.ResponseBody.Body))}
			answer.Response = &pb.ProcessingResponse_ResponseBody{ResponseBody: &pb.BodyResponse{Response: common}}
		case *pb.ProcessingRequest_ResponseTrailers:
			answer.Response = &pb.ProcessingResponse_ResponseTrailers{ResponseTrailers: &pb.TrailersResponse{HeaderMutation: set("x-sum", "2")}}
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	server := grpc.NewServer()
	pb.RegisterExternalProcessorServer(server, processor{})
	go func() {
		io.Copy(io.Discard, os.Stdin) // it ends with whoever started it
		os.Exit(0)
	}()
	if err := server.Serve(listener); err != nil {
		panic(err)
	}
}
