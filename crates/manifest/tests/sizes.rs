//! Sizes of manifests: they follow the data of a disk, not the disk's size.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use acstor_manifest::{Base, Builder, Header, Pack};
use acstor_types::Digest;

use support::{NoSpool, SPAN, build_large, large_disk, large_pack};

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// Chunks of 1 GiB.
const GIB_CHUNKS: u64 = 1 << 14;

fn header(size_bytes: u64, chunks: impl IntoIterator<Item = u64>) -> Header {
    build_large(large_disk(size_bytes, None), chunks, NoSpool).header().clone()
}

#[test]
fn test_debian_of_2_gib() {
    // 1.1 GiB of data, with a hole now and then.
    let chunks = (0..4 * SPAN).filter(|index| index % 20 < 11).take(18_022);
    let header = header(2 * GIB, chunks);
    assert_eq!(header.counts().data_chunks, 18_022);
    assert_eq!(header.counts().maps, 4);
    assert_eq!(header.sections().entries.len(), 213);
    assert_eq!(header.sections().index.len(), 3);
    assert!(header.len_bytes() <= 920_000, "{}", header.len_bytes());
    // What comes before the entries is what a host fetches first.
    assert!(header.sections().entries.start <= 15, "{:?}", header.sections());
}

#[test]
fn test_gib_of_data_on_1_tib() {
    let together = header(TIB, 0..GIB_CHUNKS);
    assert_eq!(together.counts().maps, 0);
    assert!(together.len_bytes() <= 1_000_000, "{}", together.len_bytes());
    let spans = TIB >> 29;
    let scattered = (0..spans).flat_map(|span| (0..8).map(move |n| span * SPAN + n * 1000));
    let scattered = header(TIB, scattered);
    assert_eq!(u64::from(scattered.counts().maps), spans);
    assert!(scattered.len_bytes() <= 9_300_000, "{}", scattered.len_bytes());
}

#[test]
fn test_gib_of_data_on_64_tib() {
    let together = header(64 * TIB, 5 * SPAN..5 * SPAN + GIB_CHUNKS);
    assert!(together.len_bytes() <= 900_000, "{}", together.len_bytes());
    let apart = header(64 * TIB, (0..GIB_CHUNKS).map(|n| n * 8 * SPAN + n % SPAN));
    assert_eq!(apart.counts().maps, 0);
    assert!(apart.len_bytes() <= 1_900_000, "{}", apart.len_bytes());
    let worst = (0..GIB_CHUNKS / 2).flat_map(|n| [n * 16 * SPAN, n * 16 * SPAN + 2]);
    let worst = header(64 * TIB, worst);
    assert_eq!(worst.counts().maps, 8192);
    assert!(worst.len_bytes() <= 36_000_000, "{}", worst.len_bytes());
}

#[test]
fn test_empty_disk_is_one_page() {
    assert_eq!(header(64 * TIB, []).len_bytes(), 4096);
    assert_eq!(header(0, []).len_bytes(), 4096);
}

#[test]
fn test_full_and_alternating_disks() {
    // A sixteenth of 1 TiB, of which 816.5 MB are due, or 417 MB alternating.
    let full = header(TIB / 16, 0..GIB_CHUNKS * 64);
    assert_eq!(full.counts().maps, 0);
    assert!(full.len_bytes() <= 816_500_000 / 16 + 20_000, "{}", full.len_bytes());
    let summary = full.sections().summary().len() as u64 * 4096;
    assert!(summary <= 1_600_000 / 16 + 4096, "{summary}");
    let alternating = header(TIB / 16, (0..GIB_CHUNKS * 64).step_by(2));
    assert!(alternating.len_bytes() <= 417_000_000 / 16 + 20_000, "{}", alternating.len_bytes());
    let per_chunk = alternating.len_bytes() as f64 / f64::from(alternating.counts().data_chunks);
    assert!(per_chunk < 50.0, "{per_chunk} bytes a data chunk");
}

#[test]
fn test_delta_of_a_few_chunks() {
    let base = Some(Base { name: Digest::of(b"base"), depth: 1 });
    // As a fold makes it: all of a pack of its own.
    let delta = |chunks: Vec<u64>| {
        let mut builder = Builder::new(large_disk(2 * GIB, base), NoSpool).unwrap();
        let pack = Pack { stored_bytes: 30_000 * chunks.len() as u32, ..large_pack(0).0 };
        let number = builder.add_pack(pack).unwrap();
        for (ordinal, index) in chunks.into_iter().enumerate() {
            builder.push(index, number, large_pack(ordinal as u64).1).unwrap();
        }
        builder.finish().unwrap().header().len_bytes()
    };
    let many = delta((0..164).map(|n| n * 199).collect());
    assert!(many <= 45 << 10, "{many}");
    let few = delta((0..10).map(|n| n * 2400).collect());
    assert!(few <= 32 << 10, "{few}");
}

#[test]
fn test_usage_of_packs_in_part_costs_little() {
    // Each second chunk of each pack: a run of 8 bytes each.
    let mut builder = acstor_manifest::Builder::new(large_disk(TIB, None), NoSpool).unwrap();
    for index in 0..GIB_CHUNKS {
        let (pack, chunk) = large_pack(2 * index);
        let number = builder.add_pack(pack).unwrap();
        builder.push(index, number, chunk).unwrap();
    }
    let header = builder.finish().unwrap().header().clone();
    assert_eq!(u64::from(header.counts().runs), GIB_CHUNKS);
    assert_eq!(header.sections().pack_runs.len() as u64, GIB_CHUNKS * 8 / 4096);
}
