//! Certificates that are revoked, lists that cannot be used, and the change from one CA to the next.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use acstor_peer::{
    ClassWatch, CloseReason, PeerClient, PeerConfig, PeerServer, Security, TlsConfig, TlsFault,
};

use crate::support::certificates::{Authority, Validity, replace};
use crate::support::chunks::TestDisk;
use crate::support::{client, config, get, later, refusal, serve, until};

/// A configuration that reads the CA's list of revocations, and tries again at once what failed.
fn tls(authority: &Authority, files: TlsConfig) -> PeerConfig {
    let mut config =
        config(Security::Tls(TlsConfig { crl_file: Some(authority.crl_file()), ..files }));
    config.client.backoff_min = Duration::from_millis(1);
    config.client.backoff_max = Duration::from_millis(1);
    config.client.probe_after = Duration::from_millis(10);
    config
}

fn host(authority: &Authority, name: &str) -> PeerConfig {
    tls(authority, authority.host(name, &["127.0.0.1"], Validity::Now))
}

/// A host that reads no list of revocations itself.
fn trusting(authority: &Authority, name: &str) -> PeerConfig {
    let config = host(authority, name);
    let Security::Tls(files) = config.security else { panic!("TLS is on") };
    PeerConfig { security: Security::Tls(TlsConfig { crl_file: None, ..files }), ..config }
}

/// Asks until it is answered: whoever was refused is let in again with another certificate or list.
async fn fetch(client: &PeerClient, address: &str) {
    while let Err(error) = client.fetch(address, get(0), ClassWatch::DEMAND, later()).await {
        assert_eq!(error.kind(), acstor_types::ErrorKind::Unavailable, "{error}");
        tokio::task::yield_now().await;
    }
}

fn untrusted(server: &PeerServer) -> u64 {
    server.stats().closed(CloseReason::Untrusted)
}

#[tokio::test]
async fn test_client_revoked_is_refused_and_told() {
    let authority = Authority::new();
    let [revoked, good] = ["revoked", "good"].map(|name| host(&authority, name));
    authority.revoke(&["revoked"]);
    let (server, address) = serve(TestDisk, &host(&authority, "server"));
    assert_eq!(refusal(&client(&revoked), &address).await, TlsFault::OwnCertificateRevoked);
    assert_eq!(server.stats().requests, 0);
    client(&good).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
}

#[tokio::test]
async fn test_server_revoked_is_refused() {
    let authority = Authority::new();
    let [revoked, good] = ["revoked", "good"].map(|name| host(&authority, name));
    authority.revoke(&["revoked"]);
    let (server, address) = serve(TestDisk, &revoked);
    let fault = refusal(&client(&good), &address).await;
    assert_eq!(fault, TlsFault::PeerCertificateRevoked);
    assert!(fault.to_string().contains("crl_file"), "{fault}");
    assert_eq!(server.stats().requests, 0);
}

/// Whoever is connected is cut off, and nobody else.
#[tokio::test]
async fn test_reload_client_revoked_meanwhile_is_cut_off() {
    let authority = Authority::new();
    let configs = ["first", "second", "server"].map(|name| host(&authority, name));
    authority.revoke(&[]);
    let (server, address) = serve(TestDisk, &configs[2]);
    let [first, second] = [client(&configs[0]), client(&configs[1])];
    for client in [&first, &second] {
        client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    }
    authority.revoke(&["first"]);
    server.reload_certificates().unwrap();
    until("the first is cut off", || untrusted(&server) == 1).await;
    assert_eq!(refusal(&first, &address).await, TlsFault::OwnCertificateRevoked);
    second.fetch(&address, get(1), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(second.stats().peers[0].connects, 1, "on the connection that it had");
    assert_eq!(untrusted(&server), 1);
}

/// It asks nothing more of a server whose certificate was revoked meanwhile, idle or not.
#[tokio::test]
async fn test_reload_server_revoked_meanwhile_is_left() {
    let authority = Authority::new();
    let [server, ours] = ["server", "ours"].map(|name| host(&authority, name));
    authority.revoke(&[]);
    let (_server, address) = serve(TestDisk, &server);
    let client = client(&ours);
    client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    authority.revoke(&["server"]);
    client.reload_certificates().unwrap();
    let left = || {
        let closed = client.stats().connections_closed;
        closed.iter().any(|(reason, count)| *reason == CloseReason::Untrusted && *count == 1)
    };
    until("the server is left", left).await;
    assert_eq!(refusal(&client, &address).await, TlsFault::PeerCertificateRevoked);
}

/// A list that cannot be read leaves the last good one in force, and holds up no new certificate.
#[tokio::test]
async fn test_reload_list_unusable_keeps_the_last_good_one() {
    let authority = Authority::new();
    let [revoked, good] = ["revoked", "good"].map(|name| trusting(&authority, name));
    authority.revoke(&["revoked"]);
    let (server, address) = serve(TestDisk, &host(&authority, "server"));
    let before = server.tls_status().unwrap();
    assert_eq!((before.crl_usable, before.certificates_usable), (Some(true), true));
    let foreign = Authority::new().revocation_list(&[], 2100);
    for broken in
        ["", "no list", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", &foreign]
    {
        replace(&authority.crl_file(), broken);
        authority.host("server", &["127.0.0.1"], Validity::Now);
        let error = server.reload_certificates().unwrap_err();
        assert!(error.to_string().contains("crl.pem"), "{error}");
        let status = server.tls_status().unwrap();
        assert_eq!((status.crl_usable, status.certificates_usable), (Some(false), true));
        assert_eq!(status.crl_next_update, before.crl_next_update);
        assert_eq!(refusal(&client(&revoked), &address).await, TlsFault::OwnCertificateRevoked);
        client(&good).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    }
    std::fs::remove_file(authority.crl_file()).unwrap();
    server.reload_certificates().unwrap_err();
    assert_eq!(refusal(&client(&revoked), &address).await, TlsFault::OwnCertificateRevoked);
    authority.revoke(&[]);
    server.reload_certificates().unwrap();
    assert_eq!(server.tls_status().unwrap().crl_usable, Some(true));
    client(&revoked).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
}

/// Certificates that an overdue list revokes are revoked, and nobody else is kept out because of
/// it.
#[tokio::test]
async fn test_list_overdue_stays_in_force() {
    let authority = Authority::new();
    let [revoked, good] = ["revoked", "good"].map(|name| host(&authority, name));
    replace(&authority.crl_file(), &authority.revocation_list(&["revoked"], 2021));
    let (server, address) = serve(TestDisk, &host(&authority, "server"));
    assert_eq!(refusal(&client(&revoked), &address).await, TlsFault::OwnCertificateRevoked);
    client(&good).fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(server.tls_status().unwrap().crl_next_update, Some(1_609_459_200)); // 2021-01-01
}

/// A host that has never seen a list trusts nobody, rather than a certificate that may be revoked, and it
/// starts nevertheless: its guests have the origin.
#[tokio::test]
async fn test_start_without_a_usable_list_trusts_nobody_until_there_is_one() {
    let authority = Authority::new();
    let [other, ours] = ["other", "ours"].map(|name| host(&authority, name));
    let (server, address) = serve(TestDisk, &ours);
    let in_time = config(Security::Tls(authority.host("in-time", &["127.0.0.1"], Validity::Now)));
    let fault = refusal(&client(&in_time), &address).await;
    assert!(matches!(fault, TlsFault::OwnCertificateRefused(_)), "{fault}");
    assert_eq!(server.tls_status().unwrap().crl_usable, Some(false));
    let (_other, other_address) = serve(TestDisk, &in_time);
    let client_of_ours = client(&ours);
    assert_eq!(refusal(&client_of_ours, &other_address).await, TlsFault::PeerRevocationUnknown);
    authority.revoke(&[]);
    server.reload_certificates().unwrap();
    client_of_ours.reload_certificates().unwrap();
    fetch(&client(&other), &address).await;
    fetch(&client_of_ours, &other_address).await;
}

/// The steps of the guide: both CAs everywhere, new certificates one by one, the old CA goes.
#[tokio::test]
async fn test_rollover_to_another_ca_interrupts_nobody_who_follows() {
    let (old, new) = (Authority::named("first"), Authority::named("second"));
    let [server, follower, straggler] = ["server", "follower", "straggler"]
        .map(|name| old.host(name, &["127.0.0.1"], Validity::Now));
    old.revoke(&[]); // of the old CA only: the new one revokes nobody
    let (server_config, follower_config) = (tls(&old, server.clone()), tls(&old, follower.clone()));
    let (peer, address) = serve(TestDisk, &server_config);
    let [following, left] = [client(&follower_config), client(&tls(&old, straggler))];
    let reload = || {
        peer.reload_certificates().unwrap();
        following.reload_certificates().unwrap();
        left.reload_certificates().unwrap();
    };
    for client in [&following, &left] {
        client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    }
    replace(&old.ca_file(), &[old.pem(), new.pem()].concat());
    reload();
    for files in [&follower, &server] {
        let fresh = new.host("fresh", &["127.0.0.1"], Validity::Now);
        replace(&files.key_file, &std::fs::read_to_string(fresh.key_file).unwrap());
        replace(&files.cert_file, &std::fs::read_to_string(fresh.cert_file).unwrap());
        reload();
        fetch(&following, &address).await;
        client(&follower_config)
            .fetch(&address, get(0), ClassWatch::DEMAND, later())
            .await
            .unwrap();
    }
    assert_eq!(untrusted(&peer), 0, "nobody was cut off");
    replace(&old.ca_file(), new.pem());
    reload();
    until("who kept the old certificate is cut off", || left.stats().peers[0].connections == 0)
        .await;
    fetch(&following, &address).await;
    assert_eq!(refusal(&left, &address).await, TlsFault::OwnUnknownCa);
}

#[tokio::test]
async fn test_status_tells_when_the_certificate_ends() {
    let authority = Authority::new();
    let files = authority.host("host", &["127.0.0.1"], Validity::Now);
    let (server, _) = serve(TestDisk, &config(Security::Tls(files)));
    let status = server.tls_status().unwrap();
    assert_eq!(status.certificate_not_after, Some(4_102_444_800)); // 2100-01-01
    assert_eq!((status.crl_usable, status.crl_next_update), (None, None));
    let (plain, _) = serve(TestDisk, &config(Security::Plain));
    assert_eq!(plain.tls_status(), None);
}
