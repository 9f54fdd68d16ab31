//! Each decoder and each end of a protocol, with damaged golden files: what `tools/fuzz` does with
//! coverage for as long as one likes, for a second or two in every run of the tests.
#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use acstor_fuzzing::mutations::Mutations;
use acstor_fuzzing::{
    fuse_requests, manifest, manifest_pages, moved_pack, multicast, nbd_protocol, nbd_server,
    pack_header, pack_table, peer_client, peer_frames, peer_server, rados_head, ring,
    store_records, stored_chunk,
};

/// Inputs of a decoder, and of what opens a connection or files for each.
const MANY: usize = 20_000;
const FEW: usize = 1_000;

/// The golden files whose names begin like this.
fn golden(prefixes: &[&str]) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .expect("the golden files")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            !name.ends_with(".json") && prefixes.iter().any(|prefix| name.starts_with(prefix))
        })
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no golden file begins with {prefixes:?}");
    paths.iter().map(|path| std::fs::read(path).expect("a golden file")).collect()
}

/// Has every input used; a failing one is printed, as tools/fuzz would keep it.
fn use_all(seeds: Vec<Vec<u8>>, runs: usize, run: fn(&[u8])) {
    for input in Mutations::new(seeds, 0x0ac5_7012).take(runs) {
        if let Err(panic) = std::panic::catch_unwind(|| run(&input)) {
            eprintln!("the input that failed: {input:02x?}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn fuse_requests_are_parsed_or_refused() {
    use_all(golden(&["fuse-session"]), MANY, fuse_requests::run);
}

#[test]
fn manifests_are_parsed_or_refused() {
    use_all(golden(&["manifest-v1"]), MANY / 4, manifest::run);
}

#[test]
fn manifests_by_the_page_are_read_or_refused() {
    use_all(golden(&["manifest-v2"]), MANY / 8, manifest_pages::run);
}

#[test]
fn multicast_packets_are_heard_or_refused() {
    use_all(golden(&["multicast-"]), MANY / 8, multicast::run);
}

#[test]
fn nbd_requests_are_taken_apart() {
    use_all(golden(&["nbd-messages"]), MANY, nbd_protocol::run);
}

#[test]
fn an_nbd_server_ends_every_connection() {
    let requests = golden(&["nbd-messages"]).concat();
    let seeds = (0..4).map(|opening| [vec![opening], requests.clone()].concat());
    use_all(seeds.collect(), FEW, nbd_server::run);
}

#[test]
fn pack_headers_are_parsed_or_refused() {
    use_all(golden(&["pack-"]), MANY, pack_header::run);
}

#[test]
fn lists_of_moved_chunks_are_parsed_or_refused() {
    use_all(golden(&["moved-pack-v1"]), MANY, moved_pack::run);
}

#[test]
fn pack_tables_are_parsed_or_refused() {
    use_all(golden(&["pack-v2"]), MANY / 4, pack_table::run);
}

#[test]
fn stored_chunks_are_decompressed_or_refused() {
    let pack = golden(&["pack-v2"]).concat();
    let seeds = stored_chunk::stored_chunks(&pack);
    assert_eq!(seeds.len(), 4);
    use_all(seeds, MANY / 4, stored_chunk::run);
}

#[test]
fn a_peer_client_ends_every_fetch() {
    use_all(golden(&["peer-frames"]), FEW, peer_client::run);
}

#[test]
fn peer_frames_are_taken_apart() {
    use_all(golden(&["peer-frames"]), MANY, peer_frames::run);
}

#[test]
fn a_peer_server_ends_every_connection() {
    use_all(golden(&["peer-frames"]), FEW, peer_server::run);
}

#[test]
fn heads_in_rados_are_parsed_or_refused() {
    use_all(golden(&["rados-head"]), MANY, rados_head::run);
}

#[test]
fn rings_are_parsed_or_refused() {
    use_all(golden(&["ring-v"]), MANY / 4, ring::run);
}

#[test]
fn a_store_opens_or_refuses() {
    let superblock = golden(&["chunk-store-superblock"]).concat();
    let record = golden(&["chunk-store-record"]).concat();
    let seeds = (0..4).map(|mode| [vec![mode], superblock.clone(), record.repeat(4)].concat());
    use_all(seeds.collect(), FEW, store_records::run);
}
