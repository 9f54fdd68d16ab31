//! Clients that lie, stall, vanish and send garbage: no crash, nothing left behind, no memory beyond the
//! limits.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::client::{context_query, go_request, option};
use crate::support::{Fixture, pattern};
use acstor_nbd::protocol::ReplyShape::{Extended, Structured};
use acstor_nbd::protocol::constants::*;
use acstor_nbd::protocol::{HeaderStyle, RequestHeader};
use acstor_nbd::{CloseReason, ServerConfig};

/// A whole conversation of a client: handshake, then some requests.
fn conversation() -> Vec<u8> {
    let mut bytes = (CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES).to_be_bytes().to_vec();
    bytes.extend(option(OPT_EXTENDED_HEADERS, &[]));
    bytes.extend(option(OPT_SET_META_CONTEXT, &context_query("disk", &["base:allocation"])));
    bytes.extend(option(OPT_GO, &go_request("disk", &[INFO_BLOCK_SIZE])));
    let mut request = |command, flags, length, payload: &[u8]| {
        let header = RequestHeader { flags, command, cookie: 7, offset: 4096, length };
        bytes.extend(header.encode(HeaderStyle::Extended));
        bytes.extend_from_slice(payload);
    };
    request(CMD_WRITE, CMD_FLAG_PAYLOAD_LEN, 512, &[9; 512]);
    request(CMD_READ, 0, 4096, &[]);
    request(CMD_BLOCK_STATUS, 0, 4096, &[]);
    request(CMD_WRITE, CMD_FLAG_PAYLOAD_LEN | CMD_FLAG_DF, 512, &[9; 512]);
    request(CMD_DISC, 0, 0, &[]);
    bytes
}

#[test]
fn test_disconnect_at_every_byte_leaves_nothing_behind() {
    let fixture = Fixture::new();
    let bytes = conversation();
    for end in 0..=bytes.len() {
        let mut stream = fixture.connect();
        // The server may be the first to close: at the end of the conversation.
        let _ = stream.write_all(&bytes[..end]);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers);
        assert!(answers.len() >= 18, "the greeting");
    }
    fixture.until_idle();
    let stats = fixture.server().stats();
    assert_eq!(stats.connections_accepted, bytes.len() as u64 + 1);
    assert_eq!(stats.closed(CloseReason::Aborted), 0);
    assert_eq!(stats.closed(CloseReason::Malformed), 0);
    assert!(stats.closed(CloseReason::Disconnected) >= 1);
    assert!(stats.closed(CloseReason::Truncated) > 500);
}

#[test]
fn test_conversation_byte_by_byte_is_understood() {
    let fixture = Fixture::new();
    let mut stream = fixture.connect();
    for byte in conversation() {
        stream.write_all(&[byte]).unwrap();
    }
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    fixture.until_idle();
    assert_eq!(fixture.server().stats().closed(CloseReason::Disconnected), 1);
    assert_eq!(fixture.device.inner.content(4096, 512), [9; 512]);
}

#[test]
fn test_bad_magic_ends_the_connection() {
    let fixture = Fixture::new();
    let mut client = fixture.client().go();
    client.stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(client.until_closed().is_empty());
    let mut client = fixture.client();
    client.stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(client.until_closed().is_empty());
    fixture.until_idle();
    assert_eq!(fixture.server().stats().closed(CloseReason::Malformed), 2);
}

#[test]
fn test_huge_lengths_end_the_connection_or_are_skipped() {
    let fixture = Fixture::new();
    // An option of 4 GiB.
    let mut client = fixture.client();
    let mut header = option(77, &[]);
    header[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    client.stream.write_all(&header).unwrap();
    assert!(client.until_closed().is_empty());
    // A write of 16 EiB.
    let mut client = fixture.client().with_shape(Extended).go();
    client.send(CMD_WRITE, CMD_FLAG_PAYLOAD_LEN, 0, u64::MAX);
    assert!(client.until_closed().is_empty());
    // A payload on a command that has none.
    let mut client = fixture.client().with_shape(Extended).go();
    client.send(CMD_TRIM, CMD_FLAG_PAYLOAD_LEN, 0, 1 << 40);
    assert!(client.until_closed().is_empty());
    // One that is too long, but can be skipped.
    let mut client = fixture.client().with_shape(Structured).go();
    let cookie = client.send_write(0, 0, &vec![0; (32 << 20) + 512]);
    assert_eq!(client.answer_to(cookie, 0, 0).errno, 22);
    assert_eq!(client.read(0, 512).errno, 0);
    // An answer is sent before its memory is given back.
    fixture.until("nothing is borrowed", || fixture.borrowed() == 0);
    drop(client);
    fixture.until_idle();
    assert_eq!(fixture.server().stats().closed(CloseReason::Malformed), 3);
}

#[test]
fn test_clients_that_announce_much_and_send_nothing_stay_within_the_budget() {
    let fixture = Fixture::new();
    let mut clients: Vec<_> = (0..10).map(|_| fixture.client().go()).collect();
    for client in &mut clients {
        client.send(CMD_WRITE, 0, 0, 32 << 20);
    }
    fixture.until("three got their 32 MiB", || fixture.borrowed() == 96 << 20);
    // Those that wait get their turn when the others are gone.
    while let Some(client) = clients.pop() {
        drop(client);
    }
    fixture.until_idle();
}

#[test]
fn test_client_that_does_not_read_stops_being_read_from() {
    let fixture = Fixture::with(
        |config| ServerConfig { connection_bytes_max: 32 << 20, ..config },
        |export| export,
    );
    let mut client = fixture.client().go();
    client.write(0, &pattern(1, 1 << 20));
    // 1000 reads of 1 MiB at once.
    let requests: Vec<u8> = (0..1000)
        .flat_map(|_| client.header(CMD_READ, 0, 0, 1 << 20).encode(HeaderStyle::Compact))
        .collect();
    client.stream.write_all(&requests).unwrap();
    fixture.until("it is full", || fixture.borrowed() >= 31 << 20);
    assert!(fixture.borrowed() <= 33 << 20);
    // Another client is not harmed.
    assert_eq!(fixture.client().go().read(0, 4096).data, pattern(1, 4096));
    // And this one gets every answer once it reads.
    for _ in 0..1000 {
        assert_eq!(client.answer(0, 1 << 20).errno, 0);
    }
    drop(client);
    fixture.until_idle();
}

#[test]
fn test_stalled_clients_are_cut_off() {
    let short = Duration::from_millis(50);
    let fixture = Fixture::with(
        |config| ServerConfig { read_timeout: short, write_timeout: short, ..config },
        |export| export,
    );
    // Doing nothing between requests is no fault: this one does while the others take their time.
    let mut idle = fixture.client().go();
    let mut half = fixture.client().go();
    half.stream.write_all(&REQUEST_MAGIC.to_be_bytes()).unwrap();
    assert!(half.until_closed().is_empty());
    let mut half = fixture.client().go();
    half.send(CMD_WRITE, 0, 0, 4096);
    assert!(half.until_closed().is_empty());
    let mut deaf = fixture.client().go();
    for _ in 0..100 {
        deaf.send(CMD_READ, 0, 0, 1 << 20);
    }
    fixture
        .until("it is cut off", || fixture.server().stats().closed(CloseReason::WriteStalled) == 1);
    assert_eq!(fixture.server().stats().closed(CloseReason::ReadStalled), 2);
    assert_eq!(idle.read(0, 512).errno, 0);
    drop(idle);
    fixture.until_idle();
}

#[test]
fn test_more_requests_than_the_limit_are_all_answered() {
    let fixture = Fixture::with(
        |config| ServerConfig { connection_requests_max: 4, ..config },
        |export| export,
    );
    let mut client = fixture.client().go();
    fixture.device.set_open(false);
    let cookies: Vec<u64> = (0..100).map(|n| client.send_write(0, n * 512, &[1; 512])).collect();
    fixture.until("four wait", || {
        fixture.device.waiting.load(std::sync::atomic::Ordering::Acquire) == 4
    });
    fixture.device.set_open(true);
    let mut answered: Vec<u64> = cookies.iter().map(|_| client.answer(0, 0).cookie).collect();
    answered.sort_unstable();
    assert_eq!(answered, cookies);
}
