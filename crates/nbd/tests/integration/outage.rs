//! An origin that is away for one export: what waits for it costs the others nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::client::Client;
use crate::support::{Fixture, pattern};
use acstor_nbd::protocol::constants::*;
use acstor_nbd::{MemoryBudget, RateLimits, ServerConfig};

const PAYLOAD: usize = 32 << 20;

/// An export whose device answers nothing has taken all memory that there is; another one of the
/// same host goes on.
#[test]
fn test_export_that_hangs_with_a_full_queue_stops_no_other_one() {
    let memory = MemoryBudget::new(PAYLOAD as u64);
    let with_memory = || {
        let memory = Arc::clone(&memory);
        Fixture::with(|config| ServerConfig { memory, ..config }, |export| export)
    };
    let (hung, healthy) = (with_memory(), with_memory());
    hung.device.set_open(false);
    let mut clients: Vec<Client> = (0..3).map(|_| hung.client().go()).collect();
    for client in &mut clients {
        client.send(CMD_READ, 0, 0, PAYLOAD as u64);
    }
    hung.until("all memory is taken", || memory.bytes_borrowed() == memory.bytes_max());
    assert_eq!(hung.server().bytes_borrowed(), PAYLOAD as u64);

    let mut client = healthy.client().go();
    for round in 0..4 {
        let data = pattern(round, 1 << 20);
        assert_eq!(client.write(round << 20, &data).errno, 0);
        assert!(client.read(round << 20, 1 << 20).data == data);
    }
    assert!(client.read(0, PAYLOAD).errno == 0, "the longest request, too");
    assert_eq!(memory.bytes_borrowed(), memory.bytes_max(), "the other one hangs still");

    hung.device.set_open(true);
    drop(clients);
    drop(client);
    healthy.until_idle();
    hung.until_idle();
}

/// Writes that are in the log and wait for the origin: reads go on, and so does a client that
/// connects again.
#[test]
fn test_writes_that_wait_for_their_answers_hold_no_memory() {
    const WRITES: u64 = 100;
    const LEN: usize = 1 << 20;
    let fixture = Fixture::new();
    fixture.device.set_answering(false);
    let mut client = fixture.client().go();
    // More than a connection, and more than all connections, may have in flight.
    let cookies: BTreeSet<u64> =
        (0..WRITES).map(|n| client.send_write(0, n % 50 * LEN as u64, &pattern(n, LEN))).collect();
    fixture.until("all have taken effect", || fixture.server().stats().requests_waiting == WRITES);
    fixture.until("their bytes are given back", || fixture.borrowed() == 0);
    assert!(client.read(0, LEN).data == pattern(50, LEN), "reads go on");

    let mut other = fixture.client().go();
    other.send_write(0, 60 << 20, &pattern(7, 512));
    fixture.until("it waits", || fixture.server().stats().requests_waiting == WRITES + 1);
    drop(other);
    // Nothing that has taken effect can overtake what a new connection sends.
    let mut again = fixture.client().go();
    assert!(again.read(60 << 20, 512).data == pattern(7, 512));

    fixture.device.set_answering(true);
    // In any order.
    let answers = (0..WRITES).map(|_| client.answer(0, 0));
    let answered: BTreeSet<u64> =
        answers.inspect(|answer| assert_eq!(answer.errno, 0)).map(|answer| answer.cookie).collect();
    assert_eq!(answered, cookies);
    assert_eq!(fixture.device.waiting.load(Ordering::Acquire), 0);
    drop(client);
    drop(again);
    fixture.until_idle();
}

/// `mkfs` discards a whole disk before it writes, and a limit of bytes per second is for bytes.
#[test]
fn test_discards_and_zeroes_of_a_limited_export_are_no_bytes() {
    let fixture = Fixture::with(
        |config| config,
        |export| {
            // One byte a second: a charge of any length would last for longer than any test.
            let limits = RateLimits { requests_per_s: None, bytes_per_s: Some(1) };
            export.set_limits(limits);
            export
        },
    );
    let mut client = fixture.client().go();
    for round in 0..64 {
        let offset = round << 20;
        assert_eq!(client.ask(CMD_TRIM, 0, offset, 1 << 20).errno, 0);
        assert_eq!(client.ask(CMD_WRITE_ZEROES, 0, offset, 1 << 20).errno, 0);
    }
    assert_eq!(fixture.server().stats().throttled, 0);
    assert_eq!(client.write(0, &pattern(1, 512)).errno, 0);
}
