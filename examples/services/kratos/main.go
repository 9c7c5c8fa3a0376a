// A greeter on kratos, by HTTP and by gRPC, as its template makes it: recovery on, everything else off.
//
// Usage: kratos HTTP_ADDRESS GRPC_ADDRESS. With ETCD=http://HOST:PORT it registers there. With PLAIN=1 it sets no deadline for a call either: the other
// greeters set none.
package main

import (
	"context"
	"os"
	"time"

	"github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/errors"
	"github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/middleware/recovery"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Request and reply of helloworld.v1 have one string with number 1, as StringValue has: no generated code is needed.
type greeter interface {
	SayHello(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
}

type server struct{}

var errNobody = errors.NotFound("NOBODY", "there is nobody of this name")

func (server) SayHello(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if in.GetValue() == "nobody" {
		return nil, errNobody
	}
	return wrapperspb.String(in.GetValue()), nil
}

func sayHello(srv interface{}, ctx context.Context, dec func(interface{}) error, interceptor grpc.UnaryServerInterceptor) (interface{}, error) {
	in := new(wrapperspb.StringValue)
	if err := dec(in); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, req interface{}) (interface{}, error) {
		return srv.(greeter).SayHello(ctx, req.(*wrapperspb.StringValue))
	}
	if interceptor == nil {
		return handle(ctx, in)
	}
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/helloworld.v1.Greeter/SayHello"}, handle)
}

var description = grpc.ServiceDesc{
	ServiceName: "helloworld.v1.Greeter",
	HandlerType: (*greeter)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "SayHello", Handler: sayHello}},
}

type reply struct {
	Message string `json:"message"`
}

func main() {
	log.SetLogger(log.NewFilter(log.DefaultLogger, log.FilterLevel(log.LevelError)))
	timeout := time.Second // the default of kratos
	if os.Getenv("PLAIN") != "" {
		timeout = 0
	}
	web := khttp.NewServer(khttp.Address(os.Args[1]), khttp.Timeout(timeout), khttp.Middleware(recovery.Recovery()))
	web.Route("/").GET("/helloworld/{name}", func(ctx khttp.Context) error {
		name := ctx.Vars().Get("name")
		handle := ctx.Middleware(func(ctx context.Context, _ interface{}) (interface{}, error) {
			if name == "nobody" {
				return nil, errNobody
			}
			return &reply{Message: name}, nil
		})
		out, err := handle(ctx, nil)
		if err != nil {
			return err
		}
		return ctx.Result(200, out)
	})
	rpc := kgrpc.NewServer(kgrpc.Address(os.Args[2]), kgrpc.Timeout(timeout), kgrpc.Middleware(recovery.Recovery()))
	rpc.RegisterService(&description, server{})
	options := []kratos.Option{kratos.ID("greeter-" + os.Args[2]), kratos.Name("kratos-greeter"), kratos.Version("v1"), kratos.Server(web, rpc)}
	if etcd := os.Getenv("ETCD"); etcd != "" {
		options = append(options, kratos.Registrar(&registrar{etcd: etcd}))
	}
	if err := kratos.New(options...).Run(); err != nil {
		log.Fatal(err)
	}
}
