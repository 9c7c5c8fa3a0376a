//! Two endpoints on one core, and what they say to each other.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_local;
use weir_quic::{
    Client, Connection, Endpoint, Home, Keys, Limits, Lost, Reader, Server, StreamError, Writer, bind,
};
use weir_wire::listen::Beside;
use weir_wire::{Driver, Sockets, time};

pub(crate) const HERE: Home = Home { core: 0, generation: 0 };

/// The longest a test may take.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) sockets: Rc<Sockets>,
    pub(crate) keys: Keys,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

/// Runs a test on a core.
pub(crate) fn on_a_core<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F + 'static) {
    let driver = Driver::new().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let v13 = &[&rustls::version::TLS13];
    let server =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(v13).unwrap();
    let mut server = server.with_no_client_auth().with_single_cert(vec![certificate.clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(v13).unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    server.alpn_protocols = vec![b"talk".to_vec()];
    client.alpn_protocols = vec![b"talk".to_vec()];
    let keys = Keys::random().unwrap();
    let world = World { sockets: driver.sockets(), keys, server: Arc::new(server), client: Arc::new(client) };
    let test = test(world);
    driver.run(async { time::timeout(LIMIT, test).await.expect("the test hangs") }).unwrap();
}

impl World {
    pub(crate) fn serve(&self, limits: Limits) -> (Endpoint, SocketAddr) {
        let group = bind("127.0.0.1:0".parse().unwrap(), 1, Beside::Nobody).unwrap();
        let server = Server::new(Arc::clone(&self.server), &self.keys, limits).unwrap();
        let socket = group.sockets.into_iter().next().unwrap();
        (self.endpoint(socket, HERE, Some(server)), group.address)
    }

    pub(crate) fn endpoint(&self, socket: UdpSocket, home: Home, server: Option<Server>) -> Endpoint {
        let endpoint = Endpoint::new(&self.sockets, socket, home, &self.keys, server).unwrap();
        let runner = endpoint.clone();
        spawn_local(async move { runner.run().await.unwrap() });
        endpoint
    }

    pub(crate) fn dial(&self) -> Endpoint {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        self.endpoint(socket, Home { core: 200, generation: 0 }, None)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(Arc::clone(&self.client), &Limits::default()).unwrap()
    }

    pub(crate) async fn connect(&self, endpoint: &Endpoint, to: SocketAddr) -> Result<Connection, Lost> {
        let connection = endpoint.connect(&self.client(), to, "localhost").unwrap();
        poll_fn(|cx| connection.poll_connected(cx)).await.map(|()| connection)
    }
}

pub(crate) async fn write(writer: &mut Writer, mut data: &[u8]) -> Result<(), StreamError> {
    while !data.is_empty() {
        let count = poll_fn(|cx| writer.poll_write(cx, data)).await?;
        data = &data[count..];
    }
    Ok(())
}

pub(crate) async fn read(reader: &mut Reader) -> Result<Vec<u8>, StreamError> {
    let mut all = Vec::new();
    while poll_fn(|cx| reader.poll_read(cx, &mut all, 16 * 1024)).await? > 0 {}
    Ok(all)
}

/// Sends back every stream of every client.
pub(crate) async fn echo(endpoint: Endpoint) {
    loop {
        let connection = endpoint.accept().await;
        spawn_local(async move {
            while let Ok((mut writer, mut reader)) = poll_fn(|cx| connection.poll_accept(cx)).await {
                spawn_local(async move {
                    let all = read(&mut reader).await?;
                    write(&mut writer, &all).await?;
                    writer.finish()
                });
            }
        });
    }
}

pub(crate) async fn ask(connection: &Connection, data: &[u8]) -> Result<Vec<u8>, StreamError> {
    let opened = poll_fn(|cx| connection.poll_open(cx)).await;
    let (mut writer, mut reader) = opened.map_err(StreamError::Lost)?;
    write(&mut writer, data).await?;
    writer.finish()?;
    read(&mut reader).await
}

/// Waits until something is so, which nothing else tells.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    while !is_so() {
        ticks.tick().await;
    }
}
