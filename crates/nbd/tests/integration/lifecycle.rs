//! Clients that come and go, and servers that do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::support::client::{Client, go_request};
use crate::support::memory_device::Noted;
use crate::support::{Fixture, PATIENCE, SIZE, SIZE_MAX, pattern};
use acstor_nbd::protocol::ReplyShape::{Extended, Structured};
use acstor_nbd::protocol::constants::*;
use acstor_nbd::{CloseReason, Export, NbdServer, RateLimits, ServerConfig};
use acstor_overlay::{BlockDevice, DeviceErrorKind};

#[test]
fn test_disconnect_clients_answers_what_is_under_way_first() {
    let fixture = Fixture::new();
    let mut client = fixture.client().with_shape(Extended).go();
    fixture.device.set_open(false);
    let cookie = client.send_write(0, 0, &pattern(1, 4096));
    fixture.until("the write waits", || fixture.device.waiting.load(Ordering::Acquire) == 1);
    let disconnected = std::thread::scope(|scope| {
        let disconnecting =
            scope.spawn(|| fixture.runtime.block_on(fixture.server().disconnect_clients(PATIENCE)));
        fixture.device.set_open(true);
        assert_eq!(client.answer_to(cookie, 0, 0).errno, 0);
        assert!(client.until_closed().is_empty());
        disconnecting.join().unwrap()
    });
    assert!(disconnected);
    assert!(fixture.server().stats().closed(CloseReason::Drained) >= 1);
    assert_eq!(fixture.device.inner.content(0, 4096), pattern(1, 4096));
}

#[test]
fn test_disconnect_clients_lets_them_see_the_new_size() {
    let fixture = Fixture::new();
    let mut client = fixture.client().go();
    assert_eq!(client.size, SIZE);
    assert_ne!(client.read(SIZE, 512).errno, 0);
    fixture.device.inner.grow(SIZE_MAX);
    assert!(fixture.runtime.block_on(fixture.server().disconnect_clients(PATIENCE)));
    assert!(client.until_closed().is_empty());
    let mut client = fixture.client().go();
    assert_eq!(client.size, SIZE_MAX);
    assert_eq!(client.read(SIZE, 512).errno, 0);
    assert_eq!(fixture.server().clients(), 1);
}

#[test]
fn test_disconnect_clients_cuts_off_who_takes_too_long() {
    let fixture = Fixture::new();
    let mut client = fixture.client().go();
    fixture.device.set_open(false);
    client.send_write(0, 0, &pattern(1, 4096));
    fixture.until("the write waits", || fixture.device.waiting.load(Ordering::Acquire) == 1);
    let soon = Duration::from_millis(20);
    assert!(!fixture.runtime.block_on(fixture.server().disconnect_clients(soon)));
    assert!(client.until_closed().is_empty());
    assert_eq!(fixture.server().stats().closed(CloseReason::Aborted), 1);
    fixture.device.set_open(true);
    fixture.until_idle();
}

#[test]
fn test_half_a_request_is_given_up_when_clients_are_disconnected() {
    let fixture = Fixture::new();
    let mut client = fixture.client().go();
    let header = client.header(CMD_WRITE, 0, 0, 1 << 20);
    let header = header.encode(client.style());
    std::io::Write::write_all(&mut client.stream, &header).unwrap();
    std::io::Write::write_all(&mut client.stream, &pattern(1, 100_000)).unwrap();
    fixture.until("it has room", || fixture.borrowed() > 0);
    assert!(fixture.runtime.block_on(fixture.server().disconnect_clients(PATIENCE)));
    assert!(client.until_closed().is_empty());
    fixture.until_idle();
    assert_eq!(fixture.device.inner.content(0, 4096), [0; 4096]);
}

/// A client gets no answer while the device holds a write of another one, and writes after it.
fn assert_begins_after_the_write(fixture: &Fixture, second: &mut Client) {
    second.send_option(OPT_GO, &go_request("disk", &[]));
    second.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(std::io::Read::read(&mut second.stream, &mut [0]).is_err(), "no answer yet");
    second.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    fixture.device.set_open(true);
    let mut answer = [0; 52]; // info and ack
    std::io::Read::read_exact(&mut second.stream, &mut answer).unwrap();
    assert_eq!(second.write(0, &pattern(2, 4096)).errno, 0);
    assert_eq!(fixture.device.inner.content(0, 4096), pattern(2, 4096));
}

/// A write of a connection that broke is still under way: the next connection waits for it, so that
/// what the client repeats and what it writes then cannot be overtaken.
#[test]
fn test_next_connection_begins_when_the_last_ones_writes_are_over() {
    let fixture = Fixture::new();
    let mut first = fixture.client().go();
    fixture.device.set_open(false);
    first.send_write(0, 0, &pattern(1, 4096));
    fixture.until("the write waits", || fixture.device.waiting.load(Ordering::Acquire) == 1);
    drop(first);
    fixture.until("the connection is gone", || fixture.server().clients() == 0);
    assert!(fixture.borrowed() > 0, "the late response holds its memory");
    let mut second = fixture.client();
    assert_begins_after_the_write(&fixture, &mut second);
    drop(second);
    fixture.until_idle();
}

/// The same where the server was stopped by force, and another one serves the export.
#[test]
fn test_next_server_begins_when_the_last_ones_writes_are_over() {
    let mut fixture = Fixture::new();
    let mut first = fixture.client().go();
    fixture.device.set_open(false);
    first.send_write(0, 0, &pattern(1, 4096));
    fixture.until("the write waits", || fixture.device.waiting.load(Ordering::Acquire) == 1);
    let server = fixture.server.take().unwrap();
    let export = Arc::clone(server.export());
    drop(server);
    assert!(first.until_closed().is_empty());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("next.sock");
    let listener = acstor_nbd::bind_unix(&path, 0o600).unwrap();
    let config = ServerConfig::new(Arc::clone(&fixture.memory));
    let handle = fixture.runtime.handle();
    let _server = NbdServer::start(listener, export, config, handle).unwrap();
    let mut second = Client::greeted(UnixStream::connect(&path).unwrap());
    assert_begins_after_the_write(&fixture, &mut second);
}

#[test]
fn test_flush_of_one_connection_covers_the_writes_of_all() {
    let fixture = Fixture::new();
    let mut writer = fixture.client().go();
    let mut flusher = fixture.client().with_shape(Structured).go();
    assert_ne!(writer.flags & FLAG_CAN_MULTI_CONN, 0);
    assert_eq!(writer.write(0, &pattern(1, 4096)).errno, 0);
    assert_eq!(flusher.ask(CMD_FLUSH, 0, 0, 0).errno, 0);
    assert_eq!(fixture.device.inner.flushes.load(Ordering::Relaxed), 1);
    assert_eq!(flusher.read(0, 4096).data, pattern(1, 4096), "one view of the data");
}

#[test]
fn test_stop_leaves_the_socket_to_the_next_server() {
    let mut fixture = Fixture::new();
    let path = fixture.path.clone();
    let mut client = fixture.client().go();
    assert_eq!(client.write(0, &pattern(1, 4096)).errno, 0);
    // What a supervisor keeps, and the next process gets.
    let directory = tempfile::tempdir().unwrap();
    let kept_path = directory.path().join("kept.sock");
    let kept = acstor_nbd::bind_unix(&kept_path, 0o600).unwrap();
    let start = |fixture: &Fixture, listener: UnixListener| {
        let device = Arc::clone(&fixture.device) as Arc<dyn BlockDevice>;
        let export = Arc::new(Export::new("disk", device).unwrap());
        let config = ServerConfig::new(Arc::clone(&fixture.memory));
        NbdServer::start(listener, export, config, fixture.runtime.handle()).unwrap()
    };
    let first = start(&fixture, kept.try_clone().unwrap());
    let mut early = Client::greeted(UnixStream::connect(&kept_path).unwrap()).go();
    assert_eq!(early.read(0, 4096).data, pattern(1, 4096));
    assert!(fixture.runtime.block_on(first.stop(PATIENCE)));
    assert!(early.until_closed().is_empty());
    // Nobody serves now: the connection waits in the backlog.
    let waiting = UnixStream::connect(&kept_path).unwrap();
    let second = start(&fixture, kept);
    let mut late = Client::greeted(waiting).go();
    assert_eq!(late.read(0, 4096).data, pattern(1, 4096));
    drop(second);
    assert!(late.until_closed().is_empty(), "a dropped server closes at once");
    let server = fixture.server.take().unwrap();
    assert!(fixture.runtime.block_on(server.stop(PATIENCE)));
    assert!(client.until_closed().is_empty());
    assert!(UnixStream::connect(&path).is_err(), "its only descriptor is closed");
}

/// The guest must not see ESHUTDOWN of a data plane that restarts.
#[test]
fn test_device_that_closes_during_a_stop_gets_no_error_to_the_client() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client().with_shape(Structured).go();
    fixture.device.set_open(false);
    fixture.device.fail_with(Some(DeviceErrorKind::Shutdown));
    client.send_write(0, 0, &pattern(1, 4096));
    fixture.until("the write waits", || fixture.device.waiting.load(Ordering::Acquire) == 1);
    let server = fixture.server.take().unwrap();
    let (device, runtime) = (Arc::clone(&fixture.device), &fixture.runtime);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| runtime.block_on(server.stop(PATIENCE)));
        // No new connection is taken any more: the server drains.
        while UnixStream::connect(&fixture.path).is_ok() {
            std::thread::yield_now();
        }
        device.set_open(true);
        assert!(client.until_closed().is_empty(), "closed without an answer");
        assert!(stopping.join().unwrap());
    });
}

#[test]
fn test_limits_are_kept_and_can_be_changed() {
    let fixture = Fixture::new();
    let mut client = fixture.client().go();
    let export = Arc::clone(fixture.server().export());
    export.set_limits(RateLimits { requests_per_s: Some(100), bytes_per_s: None });
    let start = Instant::now();
    for _ in 0..40 {
        assert_eq!(client.read(0, 4096).errno, 0);
    }
    // A burst of 100 ms is free: 10 requests.
    assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    assert!(fixture.server().stats().throttled > 0);
    export.set_limits(RateLimits { requests_per_s: None, bytes_per_s: Some(10 << 20) });
    let start = Instant::now();
    for _ in 0..4 {
        assert_eq!(client.write(0, &pattern(1, 1 << 20)).errno, 0);
    }
    assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
    export.set_limits(RateLimits::default());
    let throttled = fixture.server().stats().throttled;
    for _ in 0..100 {
        assert_eq!(client.read(0, 1 << 20).errno, 0);
    }
    assert_eq!(fixture.server().stats().throttled, throttled);
}

#[test]
fn test_device_is_told_of_each_client_and_of_its_reads_as_they_arrive() {
    let fixture = Fixture::new();
    let uses = || fixture.device.inner.uses.lock().clone();
    let opened = |number: usize| {
        fixture.until("it is told", || uses().len() > number);
        let Noted::Opened(client) = uses()[number] else { panic!("{:?}", uses()) };
        client
    };
    let mut first = fixture.client().go();
    let one = opened(0);
    let mut second = fixture.client().with_shape(Extended).go();
    let two = opened(1);
    assert_ne!(one, two);
    assert_eq!(second.read(4096, 512).errno, 0);
    assert_eq!(first.read(0, 1024).errno, 0);
    assert_eq!(uses()[2..], [Noted::Arrived(two, 4096, 512), Noted::Arrived(one, 0, 1024)]);
    drop(first);
    fixture.until("its end is told", || uses().last() == Some(&Noted::Closed(one)));
    assert_eq!(second.read(0, 512).errno, 0);
    drop(second);
    fixture.until("and so is the other's", || uses().last() == Some(&Noted::Closed(two)));
}
