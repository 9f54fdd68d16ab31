//! The origin of the read path over a cluster in memory.

use acstor_types::ErrorKind;

use super::*;
use crate::fake::{FUNCTIONS, FakeCluster, Open};
use crate::layout::Class;

fn pack() -> PackId {
    PackId(Digest::of(b"pack"))
}

fn reader(cluster: &FakeCluster) -> RadosPackReader {
    RadosPackReader::with(&FUNCTIONS, &cluster.settings()).unwrap()
}

#[test]
fn test_run_of_a_pack_fills_every_range() {
    let cluster = FakeCluster::new();
    let stored: Vec<u8> = (0..3000_u32).map(|at| at as u8).collect();
    cluster.put_striped(Class::Controllers, &key_of("packs", &pack().0), &stored, 1000, 1);
    let reader = reader(&cluster);
    for _ in 0..2 {
        let mut ranges = [OriginRange::new(900, 300), OriginRange::new(1200, 1800)];
        reader.read(&pack(), &mut ranges).unwrap();
        assert_eq!(ranges[0].buffer[..], stored[900..1200]);
        assert_eq!(ranges[1].buffer[..], stored[1200..]);
    }
    let error = reader.read(&pack(), &mut [OriginRange::new(2990, 11)]).unwrap_err();
    assert_eq!(error, OriginError::ShortRead { pack: pack().0.to_string(), end: 3001 });
    reader.read(&pack(), &mut []).unwrap();
}

#[test]
fn test_manifests_and_moved_packs_are_read_beside() {
    let cluster = FakeCluster::new();
    let reader = reader(&cluster);
    let name = Digest::of(b"manifest");
    let mut range = OriginRange::new(2, 4);
    let error = reader.read_manifest(&name, &mut range).unwrap_err();
    assert_eq!(error, OriginError::NotFound { pack: name.to_string() });
    cluster.put_whole(Class::Hosts, &key_of("manifests", &name), b"01234567");
    reader.read_manifest(&name, &mut range).unwrap();
    assert_eq!(range.buffer[..], *b"2345");
    let mut buffer = BytesMut::zeroed(3);
    let error = reader.read_moved(&pack(), 0, &mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    cluster.put_whole(Class::Controllers, &key_of("moved", &pack().0), b"moved");
    reader.read_moved(&pack(), 2, &mut buffer).unwrap();
    assert_eq!(buffer[..], *b"ved");
    let error = reader.read_moved(&pack(), 3, &mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn test_object_of_any_key_is_read_as_far_as_it_reaches() {
    let cluster = FakeCluster::new();
    cluster.put_whole(Class::Hosts, "volume-log/aa/1", b"01234567");
    let reader = reader(&cluster);
    let mut buffer = BytesMut::zeroed(5);
    assert_eq!(reader.read_object("volume-log/aa/1", 5, &mut buffer), Ok(3));
    assert_eq!(buffer[..3], *b"567");
    assert_eq!(reader.read_object("volume-log/aa/1", 9, &mut buffer), Ok(0));
}

#[test]
fn test_cluster_that_is_away_is_unavailable_and_nothing_stays_open() {
    let cluster = FakeCluster::new();
    let reader = reader(&cluster);
    cluster.state().connect_error = -libc::ETIMEDOUT;
    let error = reader.read(&pack(), &mut [OriginRange::new(0, 1)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("'ceph -s'"), "{error}");
    cluster.state().connect_error = 0;
    let error = reader.read(&pack(), &mut [OriginRange::new(0, 1)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    drop(reader);
    assert_eq!(cluster.state().open, Open::default());
}
