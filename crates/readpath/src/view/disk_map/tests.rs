//! One suite over both formats: the same disk has the same answers, whichever manifest says so.

use std::collections::BTreeMap;
use std::io::Cursor;

use acstor_manifest::{Base, Builder, Header, Pack};
use acstor_types::{
    ChunkLocation, ChunkSize, DiskId, ManifestBuilder, PACK_DATA_OFFSET, PackId, StoredChunk,
};
use proptest::prelude::*;

use super::*;
use crate::scenarios::paged_image::{TestPages, content, disk, stored};
use crate::view::disk_manifest::LocalPages;
use crate::view::extents::ExtentMap;

const CHUNK: u64 = 4096;
const NUMBER: u8 = 7;

fn pack(index: u64) -> PackId {
    PackId(Digest::of(&index.to_le_bytes()))
}

fn whole(model: &BTreeMap<u64, u64>, size: u64) -> Manifest {
    let chunk_size = ChunkSize::new(CHUNK as u32).unwrap();
    let disk = DiskId::from_bytes([NUMBER; 16]);
    let mut builder = ManifestBuilder::new(disk, chunk_size, size);
    for index in 0..chunk_size.count_for(size) {
        match model.get(&index) {
            None => builder.push_zero(),
            Some(seed) => {
                let location = ChunkLocation { pack: pack(index), offset: PACK_DATA_OFFSET as u32 };
                builder.push_chunk(&Digest::of(&content(NUMBER, *seed)), location);
            }
        }
    }
    builder.finish().unwrap()
}

/// A manifest of format 2 with these chunks, `None`: zeros that hide the base.
fn level(changes: &BTreeMap<u64, Option<u64>>, size: u64, base: Option<Base>) -> Vec<u8> {
    let disk = disk(NUMBER, size, base);
    let mut builder = Builder::new(disk, Cursor::new(Vec::new())).unwrap();
    for (index, seed) in changes {
        let Some(seed) = seed else {
            builder.push_zeros(*index..index + 1).unwrap();
            continue;
        };
        let (chunk, _) = stored(&content(NUMBER, *seed));
        let stored_bytes = chunk.stored_len;
        let number = builder.add_pack(Pack { id: pack(*index), stored_bytes, class: 0 }).unwrap();
        builder.push(*index, number, chunk).unwrap();
    }
    builder.finish().unwrap().to_bytes().unwrap()
}

fn paged(levels: &[Vec<u8>]) -> (PagedManifest, Vec<Arc<TestPages>>) {
    let pages: Vec<_> = levels.iter().map(|bytes| Arc::new(TestPages::of(bytes))).collect();
    let header = |bytes: &Vec<u8>| Arc::new(Header::parse(bytes, bytes.len() as u64).unwrap());
    let raw = pages.iter().map(|pages| pages.clone() as Arc<LocalPages>);
    (PagedManifest::new(levels.iter().map(header).zip(raw).collect()).unwrap(), pages)
}

fn map(manifest: impl Into<DiskManifest>) -> DiskMap {
    DiskMap::new(manifest.into(), &Arc::new(PageCache::new(1 << 20))).unwrap()
}

fn base_of(bytes: &[u8]) -> Base {
    Base::of(&Header::parse(bytes, bytes.len() as u64).unwrap())
}

/// The disk in all forms: format 1, whole of format 2, and a delta on another state of it.
fn forms(model: &BTreeMap<u64, u64>, before: &BTreeMap<u64, u64>, size: u64) -> Vec<DiskMap> {
    let some = |model: &BTreeMap<u64, u64>| -> BTreeMap<u64, Option<u64>> {
        model.iter().map(|(index, seed)| (*index, Some(*seed))).collect()
    };
    let base = level(&some(before), size, None);
    let mut changes: BTreeMap<u64, Option<u64>> = some(model);
    changes.retain(|index, seed| before.get(index).copied() != *seed);
    for index in before.keys().filter(|index| !model.contains_key(index)) {
        changes.insert(*index, None);
    }
    let delta = level(&changes, size, Some(base_of(&base)));
    let alone = level(&some(model), size, None);
    vec![map(whole(model, size)), map(paged(&[alone]).0), map(paged(&[delta, base]).0)]
}

/// Compares every answer of all forms with the model.
fn check(forms: &[DiskMap], model: &BTreeMap<u64, u64>, size: u64) {
    let count = size.div_ceil(CHUNK);
    let digest = |index: u64| model.get(&index).map(|seed| Digest::of(&content(NUMBER, *seed)));
    let extents = ExtentMap::of(&whole(model, size));
    for map in forms {
        assert_eq!((map.shape().chunk_count, map.shape().size_bytes), (count, size));
        for index in 0..count + 3 {
            let found = map.content(index).unwrap();
            assert_eq!(found.map(|found| found.digest), digest(index));
            assert_eq!(
                found.map(|found| found.place.location.pack),
                digest(index).map(|_| pack(index))
            );
            assert_eq!(map.content_at_hand(index), Ok(found), "its pages were read just now");
            assert_eq!(map.digest_at_hand(index), Ok(digest(index)));
            assert_eq!(map.digest(index), Ok(digest(index)));
        }
        let all: Vec<(u64, Digest)> =
            map.pass().unwrap().digests(0..u64::MAX).map(Result::unwrap).collect();
        let expected: Vec<_> =
            model.keys().map(|index| (*index, digest(*index).unwrap())).collect();
        assert_eq!(all, expected);
        for at in (0..count * 2 + 2).map(|half| half * CHUNK / 2) {
            for kind in [ExtentKind::Data, ExtentKind::Hole] {
                map.bring_extent(at, kind).unwrap();
                let found = map.extent_at_hand(at, kind);
                assert_eq!(found, map.is_paged().then(|| extents.next(at, kind)), "{at} {kind:?}");
            }
        }
    }
    for one in forms {
        for other in forms {
            assert!(one.has_content_of(other).unwrap());
        }
    }
}

fn models() -> impl Strategy<Value = BTreeMap<u64, u64>> {
    prop::collection::btree_map(0u64..24, 0u64..4, 0..16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn proptest_all_forms_of_a_disk_answer_alike(model in models(), before in models(), cut in 0u64..4096) {
        let size = 24 * CHUNK - cut;
        check(&forms(&model, &before, size), &model, size);
    }

    #[test]
    fn proptest_forms_of_other_content_are_told_apart(model in models(), at in 0u64..24) {
        let size = 24 * CHUNK;
        let mut other = model.clone();
        other.entry(at).and_modify(|seed| *seed += 4).or_insert(9);
        for one in forms(&model, &other, size) {
            for other in forms(&other, &model, size) {
                prop_assert!(!one.has_content_of(&other).unwrap());
            }
        }
    }
}

#[test]
fn test_chunk_whose_page_is_not_in_memory_is_unknown_until_it_was_read() {
    let model: BTreeMap<u64, u64> = (0..24).map(|index| (index, index)).collect();
    let some = model.iter().map(|(index, seed)| (*index, Some(*seed))).collect();
    let (manifest, pages) = paged(&[level(&some, 24 * CHUNK, None)]);
    let map = map(manifest);
    assert_eq!(map.digest_at_hand(3), Err(MapFault::Missing));
    assert_eq!(map.extent_at_hand(0, ExtentKind::Hole), None);
    assert_eq!(pages[0].reads(), 0);
    assert!(map.content(3).unwrap().is_some());
    let reads = pages[0].reads();
    assert!(map.content_at_hand(4).unwrap().is_some());
    assert_eq!(pages[0].reads(), reads, "the same pages");
}

/// A bit of each byte of a page that a look-up needs: an error, never another answer.
#[test]
fn test_damaged_pages_are_errors() {
    let model: BTreeMap<u64, u64> = (0..24).map(|index| (index, index)).collect();
    let some = model.iter().map(|(index, seed)| (*index, Some(*seed))).collect();
    let bytes = level(&some, 24 * CHUNK, None);
    let sound = map(paged(std::slice::from_ref(&bytes)).0).content(3);
    for at in (4096..bytes.len()).step_by(97) {
        let (manifest, pages) = paged(std::slice::from_ref(&bytes));
        pages[0].bytes.lock()[at] ^= 0x10;
        match map(manifest).content(3) {
            Err(fault) => assert!(fault.is_final(), "byte {at}: {fault}"),
            // Of a page that it did not need.
            found => assert_eq!(found, sound, "byte {at}"),
        }
    }
}

#[test]
fn test_largest_disk_costs_by_its_data() {
    let chunk_size = ChunkSize::DEFAULT;
    let size_bytes = 64 << 40;
    let disk = acstor_manifest::Disk { chunk_size, ..disk(NUMBER, size_bytes, None) };
    let mut builder = Builder::new(disk, Cursor::new(Vec::new())).unwrap();
    let last = chunk_size.count_for(size_bytes) - 1;
    let chunk = StoredChunk { stored_len: 900, ..stored(&content(NUMBER, 0)).0 };
    let number = builder.add_pack(Pack { id: pack(0), stored_bytes: 900, class: 0 }).unwrap();
    for index in [5, 1 << 29, last] {
        builder.push(index, number, chunk).unwrap();
    }
    let (manifest, pages) = paged(&[builder.finish().unwrap().to_bytes().unwrap()]);
    let map = map(manifest);
    assert_eq!(map.shape().chunk_count, 1 << 30);
    let pass = map.pass().unwrap();
    let found: Vec<u64> = pass.digests(0..u64::MAX).map(|found| found.unwrap().0).collect();
    assert_eq!(map.content_at_hand(5), Err(MapFault::Missing), "the cache is for others");
    assert_eq!(found, [5, 1 << 29, last]);
    assert_eq!(map.content(6).unwrap(), None);
    map.bring_extent(6 * 65_536, ExtentKind::Data).unwrap();
    let next = map.extent_at_hand(6 * 65_536, ExtentKind::Data);
    assert_eq!(next, Some(Some((1 << 29) * 65_536)));
    assert!(pages[0].reads() < 400, "{} pages were read", pages[0].reads());
}
