//! Requests and their answers, in every shape.

use std::sync::atomic::Ordering;

use crate::support::client::Client;
use crate::support::{Fixture, SIZE, pattern};
use acstor_nbd::protocol::ReplyShape::{self, Extended, Simple, Structured};
use acstor_nbd::protocol::constants::*;
use acstor_nbd::{CloseReason, CommandKind};
use acstor_overlay::DeviceErrorKind;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ESHUTDOWN: u32 = 108;

const SHAPES: [ReplyShape; 3] = [Simple, Structured, Extended];

fn client(fixture: &Fixture, shape: ReplyShape) -> Client {
    let client = fixture.client().with_shape(shape);
    if shape == Simple { client.go() } else { client.with_contexts().go() }
}

#[test]
fn test_write_then_read_returns_the_bytes() {
    for shape in SHAPES {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        for (offset, len) in [(0, 512), (4096, 4096), (512, 9 << 20), (SIZE - 512, 512)] {
            let data = pattern(offset, len);
            assert_eq!(client.write(offset, &data).errno, 0);
            let answer = client.read(offset, len);
            assert_eq!(answer.errno, 0);
            assert!(answer.data == data, "{len} bytes at {offset} differ");
            assert!(fixture.device.inner.content(offset, len) == data);
        }
        let stats = fixture.server().stats();
        assert_eq!(stats.command(CommandKind::Write).unwrap().requests, 4);
        assert_eq!(stats.command(CommandKind::Write).unwrap().bytes, (9 << 20) + 5120);
        assert_eq!(stats.clients, 1);
        client.send(CMD_DISC, 0, 0, 0);
        assert!(client.until_closed().is_empty());
        fixture.until_idle();
        assert_eq!(fixture.server().stats().closed(CloseReason::Disconnected), 1);
    }
}

#[test]
fn test_read_tells_holes_where_it_can() {
    for shape in SHAPES {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        client.write(65536, &pattern(1, 4096));
        client.write(131_072, &pattern(2, 512));
        let answer = client.read(61440, 131_072 - 61440 + 8192);
        assert_eq!(answer.data[4096..8192], pattern(1, 4096));
        let chunks = [
            (61440, 4096, true),
            (65536, 4096, false),
            (69632, 61440, true),
            (131_072, 4096, false),
            (135_168, 4096, true),
        ];
        assert_eq!(answer.chunks, if shape == Simple { &[][..] } else { &chunks });
        if shape != Simple {
            let len = 131_072;
            let whole = client.ask(CMD_READ, CMD_FLAG_DF, 61440, len);
            assert_eq!(whole.chunks, [(61440, len as usize, false)]);
            assert_eq!(whole.data[4096..8192], pattern(1, 4096));
        }
    }
}

#[test]
fn test_zeroes_and_trims_read_as_zeroes() {
    for shape in SHAPES {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        client.write(0, &pattern(1, 65536));
        let zeroes = CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO | CMD_FLAG_FUA;
        assert_eq!(client.ask(CMD_WRITE_ZEROES, zeroes, 512, 8192).errno, 0);
        assert_eq!(client.ask(CMD_TRIM, CMD_FLAG_FUA, 32768, 4096).errno, 0);
        let mut expected = pattern(1, 65536);
        expected[512..8704].fill(0);
        expected[32768..36864].fill(0);
        assert!(client.read(0, 65536).data == expected);
        assert_eq!(fixture.device.inner.durable_writes.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn test_lengths_beyond_32_bits_are_for_extended_headers() {
    let fixture = Fixture::new();
    let mut client = client(&fixture, Extended);
    client.write(0, &pattern(1, 4096));
    assert_eq!(client.ask(CMD_WRITE_ZEROES, 0, 0, SIZE).errno, 0);
    assert_eq!(client.ask(CMD_TRIM, 0, 0, 1 << 40).errno, EINVAL, "beyond the end");
    assert_eq!(client.ask(CMD_CACHE, 0, 0, SIZE).errno, 0);
    assert_eq!(client.read(0, 4096).data, [0; 4096]);
}

#[test]
fn test_flush_and_fua_reach_the_device() {
    let fixture = Fixture::new();
    let mut client = client(&fixture, Structured);
    assert_eq!(client.ask(CMD_FLUSH, 0, 0, 0).errno, 0);
    let cookie = client.send_write(CMD_FLAG_FUA, 0, &[1; 512]);
    assert_eq!(client.answer_to(cookie, 0, 0).errno, 0);
    assert_eq!(fixture.device.inner.flushes.load(Ordering::Relaxed), 1);
    assert_eq!(fixture.device.inner.durable_writes.load(Ordering::Relaxed), 1);
}

#[test]
fn test_bad_requests_are_refused_and_the_next_one_is_answered() {
    for shape in SHAPES {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        let long = (32 << 20) + 512;
        let long_read = if shape == Simple { EINVAL } else { EOVERFLOW };
        let mut cases = vec![
            (CMD_READ, 0, SIZE, 512, EINVAL),
            (CMD_READ, 0, SIZE - 512, 1024, EINVAL),
            (CMD_READ, 0, u64::MAX - 511, 512, EINVAL),
            (CMD_READ, 0, 1, 512, EINVAL),
            (CMD_READ, 0, 0, 511, EINVAL),
            (CMD_READ, 0, 0, long, long_read),
            (CMD_READ, CMD_FLAG_NO_HOLE, 0, 512, EINVAL),
            (CMD_READ, 1 << 15, 0, 512, EINVAL),
            (CMD_TRIM, 0, SIZE, 512, EINVAL),
            (CMD_TRIM, 0, 7, 512, EINVAL),
            (CMD_TRIM, CMD_FLAG_FAST_ZERO, 0, 512, EINVAL),
            (CMD_WRITE_ZEROES, 0, SIZE, 512, ENOSPC),
            (CMD_WRITE_ZEROES, CMD_FLAG_DF, 0, 512, EINVAL),
            (CMD_FLUSH, 0, 512, 0, EINVAL),
            (CMD_FLUSH, 0, 0, 512, EINVAL),
            (CMD_CACHE, 0, SIZE, 512, EINVAL),
            (CMD_CACHE, CMD_FLAG_REQ_ONE, 0, 512, EINVAL),
            (CMD_RESIZE, 0, 2 * SIZE, 0, EPERM),
            (99, 0, 0, 0, EINVAL),
        ];
        if shape == Simple {
            cases.push((CMD_READ, CMD_FLAG_DF, 0, 512, EINVAL));
            cases.push((CMD_BLOCK_STATUS, 0, 0, 512, EINVAL));
        } else {
            cases.push((CMD_BLOCK_STATUS, 0, 0, 0, EINVAL));
            cases.push((CMD_BLOCK_STATUS, 0, SIZE - 512, 1024, EINVAL));
        }
        for (command, flags, offset, length, errno) in cases {
            let answer = client.ask(command, flags, offset, length);
            assert_eq!(answer.errno, errno, "{shape:?} {command} {flags} {offset} {length}");
            assert_eq!(answer.message.is_empty(), shape == Simple);
        }
        // Refused writes come with their payload, which must not be taken for a request.
        for (flags, offset, len, errno) in
            [(0, SIZE, 4096, ENOSPC), (CMD_FLAG_DF, 0, 4096, EINVAL), (0, 7, 70_000, EINVAL)]
        {
            let cookie = client.send_write(flags, offset, &vec![0x25; len]);
            assert_eq!(client.answer_to(cookie, offset, 0).errno, errno);
        }
        assert_eq!(client.read(0, 4096).data, [0; 4096]);
    }
}

#[test]
fn test_requests_of_no_bytes_do_nothing() {
    for shape in SHAPES {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        for command in [CMD_READ, CMD_TRIM, CMD_WRITE_ZEROES, CMD_CACHE] {
            assert_eq!(client.ask(command, 0, 4096, 0).errno, 0);
        }
        assert_eq!(client.write(4096, &[]).errno, 0);
        assert_eq!(client.read(4096, 512).errno, 0);
    }
}

#[test]
fn test_read_only_export_refuses_writes() {
    let fixture = Fixture::with(|config| config, acstor_nbd::Export::read_only);
    let mut client = client(&fixture, Structured);
    assert_eq!(client.write(0, &[1; 4096]).errno, EPERM);
    assert_eq!(client.ask(CMD_TRIM, 0, 0, 512).errno, EPERM);
    assert_eq!(client.ask(CMD_WRITE_ZEROES, 0, 0, 512).errno, EPERM);
    assert_eq!(client.read(0, 4096).data, [0; 4096]);
}

#[test]
fn test_status_tells_allocation_and_dirt() {
    for shape in [Structured, Extended] {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        client.write(8192, &pattern(1, 8192));
        fixture.device.inner.mark_pushed();
        client.write(12288, &pattern(2, 4096));
        let answer = client.ask(CMD_BLOCK_STATUS, 0, 4096, 32768);
        let hole = u64::from(STATE_HOLE | STATE_ZERO);
        let allocation = vec![(4096, hole), (8192, 0), (20480, hole)];
        let dirt = vec![(8192, 0), (4096, u64::from(STATE_DIRTY)), (20480, 0)];
        assert_eq!(answer.extents, [(1, allocation), (2, dirt)]);
        let one = client.ask(CMD_BLOCK_STATUS, CMD_FLAG_REQ_ONE, 8192, 4096);
        assert_eq!(one.extents, [(1, vec![(4096, 0)]), (2, vec![(4096, 0)])]);
    }
}

#[test]
fn test_status_waits_until_the_device_knows_it() {
    for shape in [Structured, Extended] {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        client.write(8192, &pattern(1, 8192));
        let known = client.ask(CMD_BLOCK_STATUS, 0, 4096, 32768).extents;
        fixture.device.set_open(false);
        let cookie = client.send(CMD_BLOCK_STATUS, 0, 4096, 32768);
        fixture.until("it waits", || fixture.server().stats().requests_waiting == 1);
        fixture.device.set_open(true);
        assert_eq!(client.answer_to(cookie, 4096, 0).extents, known);
        fixture.until("none waits", || fixture.server().stats().requests_waiting == 0);
    }
}

#[test]
fn test_status_of_some_contexts() {
    let fixture = Fixture::new();
    let mut client = client(&fixture, Extended);
    let mut ask = |length: u64, ids: &[u32]| {
        let mut payload = length.to_be_bytes().to_vec();
        ids.iter().for_each(|id| payload.extend_from_slice(&id.to_be_bytes()));
        let len = payload.len() as u64;
        let cookie = client.send(CMD_BLOCK_STATUS, CMD_FLAG_PAYLOAD_LEN, 4096, len);
        std::io::Write::write_all(&mut client.stream, &payload).unwrap();
        client.answer_to(cookie, 4096, 0)
    };
    assert_eq!(ask(8192, &[2]).extents, [(2, vec![(8192, 0)])]);
    assert_eq!(ask(8192, &[1, 2]).extents.len(), 2);
    for (length, ids) in
        [(8192, &[][..]), (8192, &[3]), (8192, &[1, 1]), (SIZE, &[1]), (0, &[1]), (512, &[7; 40])]
    {
        assert_eq!(ask(length, ids).errno, EINVAL, "{length} {ids:?}");
    }
    assert_eq!(ask(512, &[1]).errno, 0);
}

#[test]
fn test_errors_of_the_device_become_those_of_the_protocol() {
    for shape in SHAPES {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        for (kind, errno) in [
            (DeviceErrorKind::Io, EIO),
            (DeviceErrorKind::NoSpace, ENOSPC),
            (DeviceErrorKind::Invalid, EINVAL),
            (DeviceErrorKind::ReadOnly, EPERM),
            (DeviceErrorKind::Fenced, EIO),
            (DeviceErrorKind::Shutdown, ESHUTDOWN),
        ] {
            fixture.device.fail_with(Some(kind));
            let answer = client.write(0, &[1; 512]);
            assert_eq!(answer.errno, errno);
            assert_eq!(answer.message, if shape == Simple { "" } else { "told to fail" });
            assert_eq!(client.read(0, 512).errno, errno);
            assert_eq!(client.ask(CMD_FLUSH, 0, 0, 0).errno, errno);
        }
        fixture.device.fail_with(None);
        assert_eq!(client.read(0, 512).data, [0; 512]);
        let stats = fixture.server().stats();
        assert_eq!(stats.command(CommandKind::Write).unwrap().errors, 6);
        assert_eq!(stats.command(CommandKind::Write).unwrap().bytes, 0);
    }
}

#[test]
fn test_short_and_panicking_devices_are_errors_of_one_request() {
    let fixture = Fixture::new();
    let mut client = client(&fixture, Structured);
    fixture.device.is_short.store(true, Ordering::Relaxed);
    assert_eq!(client.read(0, 8192).errno, EIO);
    fixture.device.is_short.store(false, Ordering::Relaxed);
    fixture.device.is_broken.store(true, Ordering::Relaxed);
    assert_eq!(client.read(0, 8192).errno, EIO);
    assert_eq!(client.write(0, &[1; 512]).errno, EIO);
    fixture.device.is_broken.store(false, Ordering::Relaxed);
    assert_eq!(client.read(0, 8192).errno, 0);
}

#[test]
fn test_requests_that_wait_are_overtaken_and_answered_once() {
    for shape in SHAPES {
        let fixture = Fixture::new();
        let mut client = client(&fixture, shape);
        fixture.device.set_open(false);
        let writes: Vec<u64> =
            (0..20).map(|n| client.send_write(0, n * 4096, &pattern(n, 4096))).collect();
        fixture.until("all wait", || fixture.device.waiting.load(Ordering::Acquire) == 20);
        fixture.until("all count", || fixture.server().stats().requests_waiting == 20);
        assert_eq!(client.ask(99, 0, 0, 0).errno, EINVAL, "overtakes what waits");
        fixture.device.set_open(true);
        let mut answered: Vec<u64> = (0..20).map(|_| client.answer(0, 0).cookie).collect();
        answered.sort_unstable();
        assert_eq!(answered, writes);
        for n in 0..20 {
            assert_eq!(client.read(n * 4096, 4096).data, pattern(n, 4096));
        }
    }
}
