//! Authentication by TLS: peers let in, peers refused, and messages for the operator.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use acstor_peer::{
    ClassWatch, CloseReason, PeerClient, PeerConfig, PeerError, Security, TlsConfig, TlsFault,
};
use acstor_types::ErrorKind;

use crate::support::certificates::{Authority, Validity};
use crate::support::chunks::TestDisk;
use crate::support::{client, config, fault_of, get, later, serve, until};

fn tls(files: TlsConfig) -> PeerConfig {
    config(Security::Tls(files))
}

/// Fetches over TLS and returns what went wrong in TLS.
async fn fault(server: &PeerConfig, with_client: &PeerConfig) -> TlsFault {
    let (server, address) = serve(TestDisk, server);
    let error =
        client(with_client).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let fault = fault_of(&error).unwrap_or_else(|| panic!("{error}")).clone();
    assert!(error.to_string().contains(&fault.to_string()), "{error}");
    assert_eq!(server.stats().requests, 0);
    fault
}

#[tokio::test]
async fn test_server_certificate_expired_is_told() {
    let authority = Authority::new();
    let server = tls(authority.host("old", &["127.0.0.1"], Validity::Expired));
    let client = config(Security::Tls(authority.loopback()));
    assert_eq!(fault(&server, &client).await, TlsFault::PeerCertificateExpired);
}

#[tokio::test]
async fn test_server_certificate_of_the_future_is_told() {
    let authority = Authority::new();
    let server = tls(authority.host("new", &["127.0.0.1"], Validity::NotYet));
    let client = config(Security::Tls(authority.loopback()));
    assert_eq!(fault(&server, &client).await, TlsFault::PeerCertificateNotYetValid);
}

#[tokio::test]
async fn test_server_of_another_ca_is_told() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let fault =
        fault(&config(Security::Tls(theirs.loopback())), &config(Security::Tls(ours.loopback())))
            .await;
    assert_eq!(fault, TlsFault::PeerUnknownCa);
}

#[tokio::test]
async fn test_server_of_another_name_is_told() {
    let authority = Authority::new();
    let server = tls(authority.host("other", &["host-b", "10.9.9.9"], Validity::Now));
    let fault = fault(&server, &config(Security::Tls(authority.loopback()))).await;
    let TlsFault::PeerWrongName { expected, presented } = fault else { panic!("{fault}") };
    assert_eq!(expected, "127.0.0.1");
    assert!(presented.contains("host-b"), "{presented}");
}

/// The ring's name of the host is as good as its address.
#[tokio::test]
async fn test_server_with_its_ring_name_is_accepted() {
    let authority = Authority::new();
    let server = tls(authority.host("named", &["host-b"], Validity::Now));
    let (_server, address) = serve(TestDisk, &server);
    let client = client(&config(Security::Tls(authority.loopback())));
    client.set_hosts([("host-b", address.as_str())]);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
}

/// A host whose certificate is good for another host's name cannot pass for this one.
#[tokio::test]
async fn test_server_with_the_name_of_another_host_is_refused() {
    let authority = Authority::new();
    let server = tls(authority.host("named", &["host-c"], Validity::Now));
    let (_server, address) = serve(TestDisk, &server);
    let client = client(&config(Security::Tls(authority.loopback())));
    client.set_hosts([("host-b", address.as_str()), ("host-c", "127.0.0.1:1")]);
    let error = client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert!(matches!(fault_of(&error), Some(TlsFault::PeerWrongName { .. })), "{error}");
}

/// The server demands a certificate of the cloud's CA, in its time.
#[tokio::test]
async fn test_client_certificate_unfit_is_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = config(Security::Tls(ours.loopback()));
    let expired = ours.host("old", &["client"], Validity::Expired);
    assert_eq!(fault(&server, &tls(expired)).await, TlsFault::OwnCertificateExpired);
    let foreign =
        TlsConfig { ca_file: ours.ca_file(), ..theirs.host("foreign", &["client"], Validity::Now) };
    assert_eq!(fault(&server, &tls(foreign)).await, TlsFault::OwnUnknownCa);
}

#[tokio::test]
async fn test_client_refused_is_counted() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (server, address) = serve(TestDisk, &config(Security::Tls(ours.loopback())));
    let foreign =
        TlsConfig { ca_file: ours.ca_file(), ..theirs.host("foreign", &["client"], Validity::Now) };
    client(&tls(foreign)).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    until("it is counted", || server.stats().closed(CloseReason::TlsFailed) == 1).await;
}

#[tokio::test]
async fn test_plain_client_to_tls_server_is_told() {
    let (server, address) = serve(TestDisk, &config(Security::Tls(Authority::new().loopback())));
    let plain = client(&config(Security::Plain));
    let error = plain.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    assert!(error.to_string().contains("tls_enabled"), "{error}");
    until("it is counted", || server.stats().closed(CloseReason::TlsFailed) == 1).await;
}

#[tokio::test]
async fn test_tls_client_to_plain_server_is_told() {
    let server = config(Security::Plain);
    let fault = fault(&server, &config(Security::Tls(Authority::new().loopback()))).await;
    assert_eq!(fault, TlsFault::Closed);
    assert!(fault.to_string().contains("tls_enabled"), "{fault}");
}

/// Renewed files are used by the next connection, without a restart of either side.
#[tokio::test]
async fn test_reload_renewed_certificates_are_used() {
    let authority = Authority::new();
    let server_files = authority.host("server", &["127.0.0.1"], Validity::Expired);
    let (server, address) = serve(TestDisk, &tls(server_files));
    let mut config = config(Security::Tls(authority.loopback()));
    config.client.backoff_min = std::time::Duration::from_millis(1);
    config.client.backoff_max = std::time::Duration::from_millis(1);
    let client = client(&config);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap_err();
    authority.host("server", &["127.0.0.1"], Validity::Now);
    server.reload_certificates().unwrap();
    while let Err(error) = client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await {
        assert!(matches!(error, PeerError::Down { .. }), "{error}");
        tokio::task::yield_now().await;
    }
}

/// Files that do not fit together are refused and the good ones stay in use.
#[tokio::test]
async fn test_reload_unusable_files_keeps_the_last_good_ones() {
    let authority = Authority::new();
    let files = authority.host("server", &["127.0.0.1"], Validity::Now);
    let (server, address) = serve(TestDisk, &tls(files.clone()));
    let other_key = authority.host("other", &["127.0.0.1"], Validity::Now).key_file;
    std::fs::write(&files.key_file, [std::fs::read(other_key).unwrap(), b"\n".to_vec()].concat())
        .unwrap();
    let error = server.reload_certificates().unwrap_err();
    assert!(error.to_string().contains("server.pem"), "{error}");
    client(&config(Security::Tls(authority.loopback())))
        .fetch(&address, get(0), ClassWatch::DEMAND, later())
        .await
        .unwrap();
}

#[test]
fn test_files_unusable_are_named() {
    let authority = Authority::new();
    let good = authority.host("host", &["127.0.0.1"], Validity::Now);
    let missing = TlsConfig { ca_file: "/nonexistent/ca.pem".into(), ..good.clone() };
    let swapped = TlsConfig {
        cert_file: good.key_file.clone(),
        key_file: good.cert_file.clone(),
        ..good.clone()
    };
    for (files, name) in [(missing, "/nonexistent/ca.pem"), (swapped, "host.key")] {
        let error = PeerClient::new(&tls(files)).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(name), "{error}");
    }
}
