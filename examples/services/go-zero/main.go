// A greeter on go-zero, by HTTP and by gRPC, with the defaults of its framework (breaker, shedder, tracing, metrics), logs at error level.
//
// Usage: go-zero HTTP_PORT GRPC_ADDRESS. With ETCD=http://HOST:PORT it registers there. With PLAIN=1 recovery is on and everything else off, and its
// REST answers have the media type that those of the other greeters have: `application/json`, without a charset.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/zeromicro/go-zero/core/conf"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/service"
	"github.com/zeromicro/go-zero/rest"
	"github.com/zeromicro/go-zero/rest/httpx"
	"github.com/zeromicro/go-zero/zrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Request and reply of helloworld.v1 have one string with number 1, as StringValue has: no generated code is needed.
type greeter interface {
	SayHello(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
}

type server struct{}

var errNobody = status.Error(codes.NotFound, "there is nobody of this name")

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

type request struct {
	Name string `path:"name"`
}

type reply struct {
	Message string `json:"message"`
}

func hello(w http.ResponseWriter, r *http.Request) {
	var req request
	if err := httpx.Parse(r, &req); err != nil {
		httpx.ErrorCtx(r.Context(), w, err)
		return
	}
	if req.Name == "nobody" {
		httpx.ErrorCtx(r.Context(), w, errNobody)
		return
	}
	if plain {
		w = withoutCharset{w}
	}
	httpx.OkJsonCtx(r.Context(), w, &reply{Message: req.Name})
}

var plain = os.Getenv("PLAIN") != ""

type withoutCharset struct{ http.ResponseWriter }

func (w withoutCharset) WriteHeader(status int) {
	w.Header().Set("Content-Type", "application/json")
	w.ResponseWriter.WriteHeader(status)
}

// The middlewares of zrpc have other names; its deadline and its shedder are switched off by zero.
const rpcPlain = `,"Timeout":0,"CpuThreshold":0,"Middlewares":{"Trace":false,"Stat":false,"Prometheus":false,"Breaker":false}`

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var web rest.RestConf
	var rpc zrpc.RpcServerConf
	webOff, rpcOff, registry := "", "", ""
	if plain {
		rpcOff = rpcPlain
		webOff = `,"Middlewares":{"Trace":false,"Log":false,"Prometheus":false,"MaxConns":false,"Breaker":false,"Shedding":false,"Timeout":false,"Metrics":false,"MaxBytes":false,"Gunzip":false}`
	}
	if etcd := os.Getenv("ETCD"); etcd != "" {
		registry = `,"Etcd":{"Hosts":["` + strings.TrimPrefix(etcd, "http://") + `"],"Key":"greeter.rpc"}`
	}
	settings := `{"Name":"greeter","Host":"127.0.0.1","Port":` + strconv.Itoa(port) + `,"Log":{"Level":"error","Stat":false}` + webOff + `}`
	if err := conf.LoadFromJsonBytes([]byte(settings), &web); err != nil {
		log.Fatal(err)
	}
	settings = `{"Name":"greeter","ListenOn":"` + os.Args[2] + `","Log":{"Level":"error","Stat":false}` + rpcOff + registry + `}`
	if err := conf.LoadFromJsonBytes([]byte(settings), &rpc); err != nil {
		log.Fatal(err)
	}
	group := service.NewServiceGroup()
	defer group.Stop()
	api := rest.MustNewServer(web)
	api.AddRoute(rest.Route{Method: http.MethodGet, Path: "/helloworld/:name", Handler: hello})
	group.Add(api)
	group.Add(zrpc.MustNewServer(rpc, func(s *grpc.Server) { s.RegisterService(&description, server{}) }))
	logx.DisableStat()
	group.Start()
}
