//! TLS: demanded over TCP, with a certificate of the cloud's CA.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::certificates;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use crate::support::client::{go_request, option};
use crate::support::memory_device::MemoryDevice;
use crate::support::{PATIENCE, SIZE, pattern};
use acstor_nbd::protocol::constants::*;
use acstor_nbd::{CloseReason, Export, MemoryBudget, NbdError, NbdServer, ServerConfig};
use acstor_net::TlsConfig;
use certificates::{Authority, Validity};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

fn start(tls: Option<TlsConfig>, address: &str) -> Result<NbdServer, NbdError> {
    let device = Arc::new(MemoryDevice::new(SIZE, SIZE));
    let export = Arc::new(Export::new("disk", device).unwrap());
    let config = ServerConfig { tls, ..ServerConfig::new(MemoryBudget::new(64 << 20)) };
    let listener = TcpListener::bind(address).unwrap();
    NbdServer::start(listener, export, config, &tokio::runtime::Handle::current())
}

fn connector(authority: &Authority, client: Option<&TlsConfig>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca_file()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        Some(files) => {
            let chain = vec![CertificateDer::from_pem_file(&files.cert_file).unwrap()];
            let key = PrivateKeyDer::from_pem_file(&files.key_file).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    TlsConnector::from(Arc::new(config))
}

async fn greeted(server: &NbdServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.tcp_address().unwrap()).await.unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).await.unwrap();
    let flags = CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES;
    stream.write_all(&flags.to_be_bytes()).await.unwrap();
    stream
}

/// Sends an option; returns the kind of the last message of its answer.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), code: u32, data: &[u8]) -> u32 {
    stream.write_all(&option(code, data)).await.unwrap();
    stream.flush().await.unwrap();
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).await.unwrap();
        let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
        let len = u32::from_be_bytes(head[16..].try_into().unwrap());
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data).await.unwrap();
        if kind == REP_ACK || kind >> 31 == 1 {
            return kind;
        }
    }
}

async fn until_closed(server: &NbdServer, reason: CloseReason) {
    let closed = async {
        while server.stats().closed(reason) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn test_tls_is_demanded_and_carries_requests() {
    let authority = Authority::new();
    let files = authority.host("host", &["127.0.0.1"], Validity::Now);
    let server = start(Some(files.clone()), "127.0.0.1:0").unwrap();
    let mut stream = greeted(&server).await;
    for code in [OPT_GO, OPT_LIST, OPT_STRUCTURED_REPLY, 99] {
        assert_eq!(ask(&mut stream, code, &go_request("disk", &[])).await, REP_ERR_TLS_REQD);
    }
    assert_eq!(ask(&mut stream, OPT_STARTTLS, b"data").await, REP_ERR_INVALID);
    assert_eq!(ask(&mut stream, OPT_STARTTLS, &[]).await, REP_ACK);
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connector = connector(&authority, Some(&files));
    let mut stream = connector.connect(name, stream).await.unwrap();
    assert_eq!(ask(&mut stream, OPT_STARTTLS, &[]).await, REP_ERR_INVALID, "TLS is up");
    assert_eq!(ask(&mut stream, OPT_GO, &go_request("disk", &[])).await, REP_ACK);
    let data = pattern(3, 3 << 20);
    let request = |command: u16, cookie: u64| {
        let header = acstor_nbd::protocol::RequestHeader {
            flags: 0,
            command,
            cookie,
            offset: 4096,
            length: data.len() as u64,
        };
        header.encode(acstor_nbd::protocol::HeaderStyle::Compact)
    };
    stream.write_all(&request(CMD_WRITE, 1)).await.unwrap();
    stream.write_all(&data).await.unwrap();
    stream.write_all(&request(CMD_READ, 2)).await.unwrap();
    stream.flush().await.unwrap();
    let mut answers = vec![0; 16 + 16 + data.len()];
    let reading = stream.read_exact(&mut answers);
    tokio::time::timeout(PATIENCE, reading).await.unwrap().unwrap();
    assert_eq!(answers[4..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(answers[32..] == data);
    assert!(server.disconnect_clients(PATIENCE).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn test_client_without_a_certificate_is_refused() {
    let authority = Authority::new();
    let files = authority.host("host", &["127.0.0.1"], Validity::Now);
    let server = start(Some(files), "127.0.0.1:0").unwrap();
    let mut stream = greeted(&server).await;
    assert_eq!(ask(&mut stream, OPT_STARTTLS, &[]).await, REP_ACK);
    let name = ServerName::try_from("127.0.0.1").unwrap();
    // TLS 1.3 tells the client with the first bytes that it wants to read.
    if let Ok(mut stream) = connector(&authority, None).connect(name, stream).await {
        assert!(stream.read_u8().await.is_err());
    }
    until_closed(&server, CloseReason::TlsFailed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_export_name_without_tls_ends_the_connection() {
    let authority = Authority::new();
    let files = authority.host("host", &["127.0.0.1"], Validity::Now);
    let server = start(Some(files), "127.0.0.1:0").unwrap();
    let mut stream = greeted(&server).await;
    stream.write_all(&option(OPT_EXPORT_NAME, b"disk")).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    until_closed(&server, CloseReason::HandshakeRefused).await;
}

#[tokio::test]
async fn test_tcp_without_tls_is_for_this_host_only() {
    let error = start(None, "0.0.0.0:0").unwrap_err();
    assert!(matches!(error, NbdError::Insecure { .. }), "{error}");
    let server = start(None, "127.0.0.1:0").unwrap();
    let mut stream = greeted(&server).await;
    assert_eq!(ask(&mut stream, OPT_GO, &go_request("disk", &[])).await, REP_ACK);
    assert!(server.stop(Duration::from_secs(10)).await);
}
