//! A greeter on tonic, by gRPC alone: Weir gives it REST.
//!
//! Usage: weir-example-tonic GRPC_ADDRESS

use tonic::{Request, Response, Status};

/// What `protoc` would make of greeter.proto, written out so that nothing but Rust is needed to build it.
mod greeter;

struct Server;

#[tonic::async_trait]
impl greeter::Greeter for Server {
    async fn say_hello(
        &self,
        request: Request<greeter::HelloRequest>,
    ) -> Result<Response<greeter::HelloReply>, Status> {
        let message = request.into_inner().name;
        if message == "nobody" {
            return Err(Status::not_found("there is nobody of this name"));
        }
        Ok(Response::new(greeter::HelloReply { message }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: weir-example-tonic GRPC_ADDRESS")?.parse()?;
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status(greeter::NAME, tonic_health::ServingStatus::Serving).await;
    let ended = async { drop(tokio::signal::ctrl_c().await) };
    tonic::transport::Server::builder()
        .add_service(health_service)
        .add_service(greeter::GreeterServer::new(Server))
        .serve_with_shutdown(address, ended)
        .await?;
    Ok(())
}
