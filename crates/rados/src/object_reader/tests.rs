//! Objects of a cluster in memory: heads, stripes, classes, faults.

use std::sync::Arc;

use acstor_types::ErrorKind;

use super::*;
use crate::fake::{FUNCTIONS, FakeCluster, Fault, POOL, STRIPE_POOL, stripe_name};
use crate::{Nonce, RadosSettings};

const KEY: &str = "packs/aa/x";
const STRIPE: u32 = 1000;
const OURS: Class = Class::Controllers;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn open(settings: &RadosSettings) -> Result<ObjectReader, RadosError> {
    let client = Client::new(&FUNCTIONS, settings)?;
    Ok(ObjectReader::new(Arc::new(client), &settings.namespace))
}

fn opened(cluster: &Arc<FakeCluster>) -> ObjectReader {
    open(&cluster.settings()).unwrap()
}

/// Reads a range into one buffer.
fn read(reader: &ObjectReader, key: &str, offset: u64, len: usize) -> Result<Vec<u8>, RadosError> {
    let mut buffer = BytesMut::zeroed(len);
    let count = reader.read(key, offset, &mut Destination::new([&mut buffer]))?;
    assert_eq!(buffer.len(), len);
    Ok(buffer[..count].to_vec())
}

fn kind(reader: &ObjectReader, key: &str) -> ErrorKind {
    read(reader, key, 0, 10).unwrap_err().kind()
}

/// Names of the RADOS objects that were asked for, from here on.
fn asked(cluster: &FakeCluster) -> Vec<String> {
    std::mem::take(&mut cluster.state().asked).into_iter().map(|asked| asked.name).collect()
}

#[test]
fn test_small_read_of_a_whole_object_is_one_operation() {
    let cluster = FakeCluster::new();
    cluster.put_whole(OURS, KEY, &content(5000));
    let reader = opened(&cluster);
    assert_eq!(read(&reader, KEY, 100, 50).unwrap(), content(5000)[100..150]);
    assert_eq!(read(&reader, KEY, 4990, 50).unwrap(), content(5000)[4990..]);
    let mut asked = std::mem::take(&mut cluster.state().asked);
    assert_eq!(asked[0].len, HEAD_LEN + 150, "the head comes along");
    assert_eq!((asked[1].offset, asked[1].len), (HEAD_LEN as u64 + 4990, 10), "it is known");
    // The object ends where its known head says, but another one may be in its place.
    assert_eq!(asked.split_off(2).len(), 1);
}

#[test]
fn test_large_read_of_a_whole_object_reads_the_head_first() {
    let cluster = FakeCluster::new();
    let stored = content(300 << 10);
    cluster.put_whole(OURS, KEY, &stored);
    let reader = opened(&cluster);
    assert_eq!(read(&reader, KEY, 0, 200 << 10).unwrap(), stored[..200 << 10]);
    assert_eq!(asked(&cluster).len(), 2);
    assert_eq!(read(&reader, KEY, 0, 300 << 10).unwrap(), stored);
    assert_eq!(asked(&cluster).len(), 1);
}

#[test]
fn test_striped_object_is_read_at_once_and_its_head_once() {
    let cluster = FakeCluster::new();
    let stored = content(2500);
    let head = cluster.put_striped(OURS, KEY, &stored, STRIPE, 1);
    let reader = opened(&cluster);
    assert_eq!(read(&reader, KEY, 990, 20).unwrap(), stored[990..1010]);
    let expected = [KEY.to_owned(), stripe_name(KEY, &head, 0), stripe_name(KEY, &head, 1)];
    assert_eq!(asked(&cluster), expected);
    assert_eq!(read(&reader, KEY, 0, 2500).unwrap(), stored);
    assert_eq!(asked(&cluster).len(), 3);
    assert_eq!(read(&reader, KEY, 2400, 1000).unwrap(), stored[2400..]);
    assert_eq!(read(&reader, KEY, 2500, 10).unwrap(), b"");
}

#[test]
fn test_range_of_many_stripes_is_asked_for_in_groups() {
    let cluster = FakeCluster::new();
    let stored = content(20_500);
    cluster.put_striped(OURS, KEY, &stored, STRIPE, 1);
    let reader = opened(&cluster);
    read(&reader, KEY, 0, 1).unwrap();
    cluster.hold();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&reader, KEY, 0, 20_500));
        cluster.wait_held(STRIPES_AT_ONCE);
        assert_eq!(cluster.state().open.reads, STRIPES_AT_ONCE);
        cluster.end_held(None);
        assert_eq!(reading.join().unwrap().unwrap(), stored);
    });
}

#[test]
fn test_neighbouring_buffers_are_filled() {
    let cluster = FakeCluster::new();
    let stored = content(2500);
    cluster.put_striped(OURS, KEY, &stored, STRIPE, 1);
    cluster.put_whole(OURS, "moved/aa/y", &stored);
    let reader = opened(&cluster);
    for key in [KEY, "moved/aa/y"] {
        for _ in 0..2 {
            let mut buffers: Vec<_> =
                [500, 400, 0, 300, 900].into_iter().map(BytesMut::zeroed).collect();
            let count = reader.read(key, 100, &mut Destination::new(&mut buffers)).unwrap();
            assert_eq!(count, 2100);
            assert_eq!(buffers.concat(), stored[100..2200]);
        }
    }
}

#[test]
fn test_object_that_is_not_there_is_not_found() {
    let cluster = FakeCluster::new();
    let reader = opened(&cluster);
    assert_eq!(kind(&reader, KEY), ErrorKind::NotFound);
    assert_eq!(asked(&cluster).len(), 2, "of both classes");
    assert_eq!(kind(&reader, "moved/aa/x"), ErrorKind::NotFound);
    assert_eq!(asked(&cluster).len(), 1);
    let head =
        Head { kind: HeadKind::Pending, size: 9, stripe_size: STRIPE, nonce: Nonce([1; 16]) };
    for kind_of_head in [HeadKind::Pending, HeadKind::Dead] {
        cluster.put_head(OURS, KEY, &Head { kind: kind_of_head, ..head });
        assert_eq!(kind(&reader, KEY), ErrorKind::NotFound);
    }
    // A host has it, while a controller is about to store it.
    cluster.put_whole(Class::Hosts, KEY, b"0123456789");
    assert_eq!(read(&reader, KEY, 0, 10).unwrap(), b"0123456789");
}

#[test]
fn test_classes_are_asked_in_order_and_remembered() {
    let cluster = FakeCluster::new();
    cluster.put_whole(Class::Hosts, KEY, b"of a host.");
    let reader = opened(&cluster);
    for reads in [2, 1] {
        assert_eq!(read(&reader, KEY, 0, 10).unwrap(), b"of a host.");
        assert_eq!(asked(&cluster).len(), reads);
    }
    // It is gone there, and a controller has it.
    cluster.remove(Role::Heads, Class::Hosts, KEY, KEY);
    cluster.put_whole(OURS, KEY, b"controller");
    assert_eq!(read(&reader, KEY, 0, 10).unwrap(), b"controller");
    cluster.put_whole(Class::Hosts, "volume-log/aa/1", b"0123456789");
    assert_eq!(read(&reader, "volume-log/aa/1", 0, 10).unwrap(), b"0123456789");
    cluster.put_whole(Class::Hosts, "moved/aa/1", b"0123456789");
    assert_eq!(kind(&reader, "moved/aa/1"), ErrorKind::NotFound);
}

#[test]
fn test_stale_head_is_read_anew_once() {
    let cluster = FakeCluster::new();
    let stored = content(2500);
    let before = cluster.put_striped(OURS, KEY, &stored, STRIPE, 1);
    let reader = opened(&cluster);
    read(&reader, KEY, 0, 2500).unwrap();
    for number in 0..3 {
        cluster.remove(Role::Stripes, OURS, KEY, &stripe_name(KEY, &before, number));
    }
    cluster.put_striped(OURS, KEY, &stored, 700, 2);
    asked(&cluster);
    assert_eq!(read(&reader, KEY, 0, 2500).unwrap(), stored);
    assert_eq!(asked(&cluster).len(), 3 + 1 + 4);
    assert_eq!(read(&reader, KEY, 0, 2500).unwrap(), stored);
    assert_eq!(asked(&cluster).len(), 4);
    cluster.delete_stripes(KEY);
    cluster.put_whole(OURS, KEY, &stored);
    assert_eq!(read(&reader, KEY, 0, 2500).unwrap(), stored);
    // A whole object that became a striped one: its RADOS object ends with the head.
    cluster.put_striped(OURS, KEY, &stored, STRIPE, 3);
    assert_eq!(read(&reader, KEY, 0, 2500).unwrap(), stored);
    cluster.remove(Role::Heads, OURS, KEY, KEY);
    cluster.delete_stripes(KEY);
    assert_eq!(kind(&reader, KEY), ErrorKind::NotFound);
}

#[test]
fn test_damage_is_told_apart() {
    let cluster = FakeCluster::new();
    let reader = opened(&cluster);
    let stored = content(2500);
    let head = cluster.put_striped(OURS, KEY, &stored, STRIPE, 1);
    cluster.remove(Role::Stripes, OURS, KEY, &stripe_name(KEY, &head, 1));
    let error = read(&reader, KEY, 0, 2500).unwrap_err();
    assert!(error.to_string().contains("a stripe is missing"), "{error}");
    assert_eq!(read(&reader, KEY, 0, 1000).unwrap(), stored[..1000], "others are there");
    cluster.put(Role::Stripes, OURS, KEY, &stripe_name(KEY, &head, 1), vec![0; 900]);
    let error = read(&reader, KEY, 0, 2500).unwrap_err();
    assert_eq!(error, RadosError::CutOff { key: KEY.into(), stripe: 1 });
    cluster.put(Role::Heads, OURS, "packs/aa/y", "packs/aa/y", vec![7; 100]);
    assert_eq!(kind(&reader, "packs/aa/y"), ErrorKind::Corrupt);
    cluster.put(Role::Heads, OURS, "packs/aa/y", "packs/aa/y", b"ACSO\x02".to_vec());
    assert_eq!(kind(&reader, "packs/aa/y"), ErrorKind::Unsupported);
    // A whole object that is cut off ends early.
    let cut = [&Head { kind: HeadKind::Whole, size: 100, ..head }.encode()[..], b"123"].concat();
    cluster.put(Role::Heads, OURS, "packs/aa/y", "packs/aa/y", cut);
    assert_eq!(read(&reader, "packs/aa/y", 0, 10).unwrap(), b"123");
}

#[test]
fn test_error_of_one_stripe_gives_the_others_up() {
    let cluster = FakeCluster::new();
    let stored = content(2500);
    cluster.put_striped(OURS, KEY, &stored, STRIPE, 1);
    let reader = opened(&cluster);
    read(&reader, KEY, 0, 1).unwrap();
    cluster.state().faults.extend([None, Some(Fault::Code(-libc::ETIMEDOUT))]);
    let mut buffers = [BytesMut::zeroed(1000), BytesMut::zeroed(1000), BytesMut::zeroed(500)];
    let error = reader.read(KEY, 0, &mut Destination::new(&mut buffers)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let conf = cluster.settings().conf;
    assert!(
        error.to_string().contains(&conf) && error.to_string().contains("timed out"),
        "{error}"
    );
    assert_eq!(cluster.state().cancelled, 1, "the third");
    assert_eq!(buffers.each_ref().map(BytesMut::len), [1000, 1000, 500]);
    // What is absent is not believed where another part could not be asked for.
    cluster
        .state()
        .faults
        .extend([Some(Fault::Code(-libc::ENOENT)), Some(Fault::Code(-libc::ESHUTDOWN))]);
    let error = read(&reader, KEY, 0, 2500).unwrap_err();
    assert!(error.to_string().contains("blocklist"), "{error}");
    assert_eq!(read(&reader, KEY, 0, 2500).unwrap(), stored, "the head is still known");
}

#[test]
fn test_short_answer_is_looked_into_and_told() {
    let cluster = FakeCluster::new();
    let stored = content(2500);
    cluster.put_striped(OURS, KEY, &stored, STRIPE, 1);
    let reader = opened(&cluster);
    cluster.state().faults.extend([None, Some(Fault::Short(1))]);
    let error = read(&reader, KEY, 0, 1000).unwrap_err();
    assert_eq!(error, RadosError::CutOff { key: KEY.into(), stripe: 0 });
    read(&reader, KEY, 0, 1000).unwrap();
    cluster.state().faults.push_back(Some(Fault::Short(1)));
    assert_eq!(read(&reader, KEY, 0, 1000).unwrap(), stored[..1000], "the second attempt is well");
}

#[test]
fn test_deleted_pool_is_not_taken_for_an_empty_one() {
    for pool in [POOL, STRIPE_POOL] {
        let cluster = FakeCluster::new();
        cluster.put_striped(OURS, KEY, &content(2500), STRIPE, 1);
        let reader = opened(&cluster);
        read(&reader, KEY, 0, 2500).unwrap();
        cluster.delete_pool(pool);
        let deleted = |key| match read(&reader, key, 0, 10) {
            Err(RadosError::PoolDeleted { pool, .. }) => pool,
            other => panic!("{other:?}"),
        };
        assert_eq!(deleted(if pool == POOL { "packs/aa/other" } else { KEY }), pool);
        // One of its name is another one, also where a namespace is opened in it only now.
        cluster.make_pool(pool);
        assert_eq!(deleted("packs/aa/other"), pool);
        if pool == POOL {
            assert_eq!(deleted("moved/aa/x"), pool);
        }
    }
}

#[test]
fn test_connection_is_made_at_the_first_read_and_again_after_a_failure() {
    let cluster = FakeCluster::new();
    cluster.put_whole(OURS, KEY, b"0123456789");
    let reader = opened(&cluster);
    assert_eq!(cluster.state().connects, 0);
    for (code, expected) in [
        (libc::ETIMEDOUT, ErrorKind::Unavailable),
        (libc::EPERM, ErrorKind::Unavailable),
        (libc::EACCES, ErrorKind::Invalid),
        (libc::ENOENT, ErrorKind::Invalid),
    ] {
        cluster.state().connect_error = -code;
        let error = read(&reader, KEY, 0, 10).unwrap_err();
        assert_eq!(error.kind(), expected);
        assert!(error.to_string().contains("client.acstor"), "{error}");
    }
    cluster.state().connect_error = 0;
    cluster.state().open_error = -libc::ETIMEDOUT;
    assert_eq!(kind(&reader, KEY), ErrorKind::Unavailable);
    cluster.state().open_error = 0;
    assert_eq!(read(&reader, KEY, 0, 10).unwrap(), b"0123456789");
    assert_eq!(cluster.state().connects, 5);
    assert_eq!(cluster.state().options, cluster.settings().options);
}

#[test]
fn test_lacking_pool_configuration_and_texts_are_told() {
    let cluster = FakeCluster::new();
    let settings = RadosSettings { pool: "none".into(), ..cluster.settings() };
    let error = kind_and_text(&open(&settings).unwrap());
    assert_eq!(error.0, ErrorKind::Invalid);
    assert!(error.1.contains("pool none") && error.1.contains("make the pool"), "{}", error.1);
    let settings = RadosSettings { conf: "/none".into(), ..cluster.settings() };
    let error = kind_and_text(&open(&settings).unwrap());
    assert_eq!(error.0, ErrorKind::Invalid);
    assert!(error.1.contains("/none"), "{}", error.1);
    let settings = RadosSettings { pool: "a\0b".into(), ..cluster.settings() };
    let error = open(&settings).unwrap_err();
    assert_eq!(error, RadosError::ZeroByte { what: "name of a pool" });
}

fn kind_and_text(reader: &ObjectReader) -> (ErrorKind, String) {
    let error = read(reader, KEY, 0, 10).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn test_closed_reader_lets_reads_end_and_begins_none() {
    let cluster = FakeCluster::new();
    cluster.put_whole(OURS, KEY, b"0123456789");
    let reader = opened(&cluster);
    cluster.hold();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&reader, KEY, 0, 10));
        cluster.wait_held(1);
        reader.client.close();
        assert_eq!(cluster.state().open.connections, 1, "it is in use");
        cluster.end_held(None);
        assert_eq!(reading.join().unwrap().unwrap(), b"0123456789");
    });
    assert_eq!(cluster.state().open, crate::fake::Open::default());
    assert_eq!(read(&reader, KEY, 0, 10).unwrap_err(), RadosError::Closed);
    reader.client.close();
}
