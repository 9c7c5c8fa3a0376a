// A greeter on sponge, by HTTP and by gRPC: what its generator makes of greeter.proto, written by hand with sponge's packages.
//
// Usage: sponge HTTP_ADDRESS GRPC_ADDRESS. With ETCD=http://HOST:PORT it registers there. With PLAIN=1 its REST answers are plain JSON, as those of
// the other greeters are, instead of {code, data, msg}.
package main

import (
	"context"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/zhufuyi/sponge/pkg/errcode"
	"github.com/zhufuyi/sponge/pkg/grpc/interceptor"
	"github.com/zhufuyi/sponge/pkg/servicerd/registry/etcd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Request and reply of helloworld.v1 have one string with number 1, as StringValue has: no generated code is needed.
type greeter interface {
	SayHello(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
}

type server struct{}

func (server) SayHello(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if in.GetValue() == "nobody" {
		return nil, status.Error(codes.NotFound, "there is nobody of this name")
	}
	return wrapperspb.String(in.GetValue()), nil
}

func sayHello(srv interface{}, ctx context.Context, dec func(interface{}) error, intercept grpc.UnaryServerInterceptor) (interface{}, error) {
	in := new(wrapperspb.StringValue)
	if err := dec(in); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, req interface{}) (interface{}, error) {
		return srv.(greeter).SayHello(ctx, req.(*wrapperspb.StringValue))
	}
	if intercept == nil {
		return handle(ctx, in)
	}
	return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/helloworld.v1.Greeter/SayHello"}, handle)
}

var description = grpc.ServiceDesc{
	ServiceName: "helloworld.v1.Greeter",
	HandlerType: (*greeter)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "SayHello", Handler: sayHello}},
}

type reply struct {
	Message string `json:"message"`
}

var (
	responser = errcode.NewResponser(false, nil, nil)
	nobody    = errcode.NewError(200101, "there is nobody of this name")
)

func hello(c *gin.Context) {
	name := c.Param("name")
	switch {
	case name == "nobody":
		responser.Error(c, nobody.Err())
	case os.Getenv("PLAIN") != "":
		c.Header("Content-Type", "application/json")
		c.JSON(http.StatusOK, &reply{Message: name})
	default:
		responser.Success(c, &reply{Message: name})
	}
}

func register(addresses []string) func() {
	server := os.Getenv("ETCD")
	if server == "" {
		return func() {}
	}
	endpoints := []string{"http://" + addresses[0] + "?isSecure=false", "grpc://" + addresses[1] + "?isSecure=false"}
	registry, instance, err := etcd.NewRegistry([]string{strings.TrimPrefix(server, "http://")}, "greeter-"+addresses[1], "sponge-greeter", endpoints)
	if err != nil {
		log.Fatal(err)
	}
	if err := registry.Register(context.Background(), instance); err != nil {
		log.Fatal(err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_ = registry.Deregister(ctx, instance)
	}
}

func main() {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.GET("/helloworld/:name", hello)
	web := &http.Server{Addr: os.Args[1], Handler: router}
	rpc := grpc.NewServer(grpc.UnaryInterceptor(interceptor.UnaryServerRecovery()))
	rpc.RegisterService(&description, server{})
	grpc_health_v1.RegisterHealthServer(rpc, health.NewServer())
	listener, err := net.Listen("tcp", os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Println(rpc.Serve(listener)) }()
	go func() { log.Println(web.ListenAndServe()) }()
	deregister := register(os.Args[1:])
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
	deregister()
	rpc.GracefulStop()
	_ = web.Shutdown(context.Background())
}
