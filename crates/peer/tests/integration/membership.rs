//! Admission by certificate: the hosts of the ring, once there is one.

use std::time::Duration;

use acstor_peer::{ClassWatch, CloseReason, PeerConfig, Security, TlsFault};

use crate::support::certificates::{Authority, Validity};
use crate::support::chunks::TestDisk;
use crate::support::{client, config, get, later, refusal, serve, until};

fn host(authority: &Authority, file: &str, names: &[&str]) -> PeerConfig {
    let mut config = config(Security::Tls(authority.host(file, names, Validity::Now)));
    config.client.backoff_min = Duration::from_millis(1);
    config.client.backoff_max = Duration::from_millis(1);
    config
}

#[tokio::test]
async fn test_client_of_no_host_of_the_ring_is_refused_and_told() {
    let authority = Authority::new();
    let (server, address) = serve(TestDisk, &host(&authority, "server", &["127.0.0.1"]));
    server.set_members([("host-a", "10.0.0.1:7420"), ("host-b", "10.0.0.2:7420")]);
    for (file, names) in [("a", ["host-a"]), ("b", ["10.0.0.2"])] {
        let member = client(&host(&authority, file, &names));
        member.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap();
    }
    let requests = server.stats().requests;
    let stranger = client(&host(&authority, "stranger", &["monitoring", "10.0.0.3"]));
    let fault = refusal(&stranger, &address).await;
    assert_eq!(fault, TlsFault::OwnNotMember);
    assert!(fault.to_string().contains("cert_file"), "{fault}");
    assert_eq!(server.stats().requests, requests, "nothing is read of a stranger");
}

/// As when it has just joined: refused until the server has the ring with it, then let in.
#[tokio::test]
async fn test_client_that_joins_is_let_in_with_the_next_ring() {
    let authority = Authority::new();
    let (server, address) = serve(TestDisk, &host(&authority, "server", &["127.0.0.1"]));
    server.set_members([("host-a", "10.0.0.1:7420")]);
    let newcomer = client(&host(&authority, "new", &["host-n"]));
    assert_eq!(refusal(&newcomer, &address).await, TlsFault::OwnNotMember);
    server.set_members([("host-a", "10.0.0.1:7420"), ("host-n", "10.0.0.9:7420")]);
    while newcomer.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// A host that leaves the ring goes on reading for a while; one that was never in it is cut off.
#[tokio::test]
async fn test_set_members_cuts_off_who_is_connected_and_no_member() {
    let authority = Authority::new();
    let (server, address) = serve(TestDisk, &host(&authority, "server", &["127.0.0.1"]));
    let [leaver, stranger] =
        ["leaver", "stranger"].map(|name| client(&host(&authority, name, &[name])));
    for client in [&leaver, &stranger] {
        client.fetch(&address, get(0), ClassWatch::DEMAND, later()).await.unwrap(); // no ring is known yet
    }
    server.set_members([("host-a", "10.0.0.1:7420"), ("leaver", "10.0.0.2:7420")]);
    server.set_members([("host-a", "10.0.0.1:7420")]);
    server.reload_certificates().unwrap();
    until("one is cut off", || server.stats().closed(CloseReason::Untrusted) == 1).await;
    assert_eq!(refusal(&stranger, &address).await, TlsFault::OwnNotMember);
    leaver.fetch(&address, get(1), ClassWatch::DEMAND, later()).await.unwrap();
    assert_eq!(leaver.stats().peers[0].connects, 1, "on the connection that it had");
}

#[tokio::test]
async fn test_members_only_off_lets_every_certificate_in() {
    let authority = Authority::new();
    let mut config = host(&authority, "server", &["127.0.0.1"]);
    config.members_only = false;
    let (server, address) = serve(TestDisk, &config);
    server.set_members([("host-a", "10.0.0.1:7420")]);
    client(&host(&authority, "other", &["other"]))
        .fetch(&address, get(0), ClassWatch::DEMAND, later())
        .await
        .unwrap();
}
