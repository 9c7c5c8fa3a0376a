//! The service of greeter.proto: its messages, its trait, and the server that calls it.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The name of the service.
pub const NAME: &str = "helloworld.v1.Greeter";

/// Whom to greet.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelloRequest {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A greeting.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelloReply {
    /// The text.
    #[prost(string, tag = "1")]
    pub message: String,
}

/// What the service does.
#[tonic::async_trait]
pub trait Greeter: Send + Sync + 'static {
    /// Answers with the name.
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status>;
}

/// A [`Greeter`] that is served.
pub struct GreeterServer<T>(Arc<T>);

impl<T> GreeterServer<T> {
    /// Serves this one.
    pub fn new(inner: T) -> Self {
        Self(Arc::new(inner))
    }
}

impl<T> Clone for GreeterServer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> NamedService for GreeterServer<T> {
    const NAME: &'static str = NAME;
}

struct SayHello<T>(Arc<T>);

impl<T: Greeter> UnaryService<HelloRequest> for SayHello<T> {
    type Response = HelloReply;
    type Future = BoxFuture<Response<HelloReply>, Status>;

    fn call(&mut self, request: Request<HelloRequest>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.say_hello(request).await })
    }
}

impl<T: Greeter> Service<http::Request<Body>> for GreeterServer<T> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/helloworld.v1.Greeter/SayHello" => {
                    Grpc::new(ProstCodec::default()).unary(SayHello(inner), request).await
                }
                _ => Status::unimplemented("there is no such method").into_http(),
            })
        })
    }
}
