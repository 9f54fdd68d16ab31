//! TLS with the clients of virtualisation: QEMU and libnbd, both on GnuTLS.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::memory_device;

use crate::certificates;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use acstor_nbd::{CloseReason, Export, MemoryBudget, NbdServer, ServerConfig};
use certificates::{Authority, Validity};
use memory_device::MemoryDevice;
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;

struct Served {
    server: NbdServer,
    address: SocketAddr,
    /// As GnuTLS' clients want their certificates: by names of files.
    credentials: TempDir,
    _authority: Authority,
}

fn serve() -> Served {
    let authority = Authority::new();
    let files = authority.host("host", &["127.0.0.1"], Validity::Now);
    let credentials = TempDir::new().unwrap();
    for (source, name) in [
        (&files.ca_file, "ca-cert.pem"),
        (&files.cert_file, "client-cert.pem"),
        (&files.key_file, "client-key.pem"),
    ] {
        std::fs::copy(source, credentials.path().join(name)).unwrap();
    }
    let export = Arc::new(Export::new("disk", Arc::new(MemoryDevice::new(SIZE, SIZE))).unwrap());
    let config =
        ServerConfig { tls: Some(files), ..ServerConfig::new(MemoryBudget::new(64 << 20)) };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server =
        NbdServer::start(listener, export, config, &tokio::runtime::Handle::current()).unwrap();
    Served { server, address, credentials, _authority: authority }
}

/// Asks libnbd for the size of the export.
fn nbdinfo(served: &Served, gnutls_policy: Option<&Path>) -> Command {
    let folder = served.credentials.path().display();
    let uri = format!("nbds://{}/disk?tls-certificates={folder}", served.address);
    let mut command = Command::new("nbdinfo");
    command.args(["--size", &uri]);
    if let Some(policy) = gnutls_policy {
        command.env("GNUTLS_SYSTEM_PRIORITY_FILE", policy);
    }
    command
}

/// Returns the output of a command; `None` where there is no such program.
async fn output(mut command: Command) -> Option<Output> {
    let finished = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    match finished {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        finished => Some(finished.unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn test_libnbd_speaks_tls() {
    let served = serve();
    let Some(told) = output(nbdinfo(&served, None)).await else { return };
    assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), SIZE.to_string(), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn test_qemu_speaks_tls() {
    let served = serve();
    let credentials = served.credentials.path().display();
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={credentials}");
    let SocketAddr::V4(address) = served.address else { unreachable!() };
    let image = format!(
        "driver=nbd,server.type=inet,server.host={},server.port={},export=disk,tls-creds=tls",
        address.ip(),
        address.port(),
    );
    let mut command = Command::new("qemu-img");
    command.args(["info", "--object", &object, "--image-opts", &image]);
    let Some(told) = output(command).await else { return };
    assert!(told.status.success(), "{told:?}");
    assert!(String::from_utf8_lossy(&told.stdout).contains("1 MiB"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn test_client_without_tls_1_3_is_refused() {
    let served = serve();
    let policy = served.credentials.path().join("policy");
    std::fs::write(&policy, "[overrides]\ndisabled-version = tls1.3\n").unwrap();
    let Some(told) = output(nbdinfo(&served, Some(&policy))).await else { return };
    assert!(!told.status.success(), "{told:?}");
    let closed = async {
        while served.server.stats().closed(CloseReason::TlsFailed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), closed).await.unwrap();
}
