//! Random edits of a disk, through builder, deltas and merges, against a map of its chunks.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;

use acstor_manifest::{
    Base, Builder, Change, Chunk, ContentName, Disk, Found, MergedDisk, delta_pages,
    levels_to_merge, merge,
};
use acstor_types::Digest;
use proptest::prelude::*;

use support::{CHUNK, MemoryStack, Model, SPAN, bytes_of, disk, open, pack, stack, stored};

/// Chunks of a disk: nine spans, the last one short, some of them never written.
const CHUNKS: u64 = 8 * SPAN + 100;

#[derive(Clone, Debug)]
enum Edit {
    Write(Range<u64>, u32),
    Discard(Range<u64>),
}

fn range() -> impl Strategy<Value = Range<u64>> {
    // Often at the bounds of spans, often within one, seldom over several.
    let start = prop_oneof![
        0..CHUNKS,
        (0..9_u64).prop_map(|span| span * SPAN),
        (0..8_u64, 0..70_u64).prop_map(|(span, chunk)| span * SPAN + chunk),
    ];
    let len = prop_oneof![4 => 1..70_u64, 1 => Just(SPAN), 1 => SPAN..3 * SPAN];
    (start, len).prop_map(|(start, len)| start..(start + len).min(CHUNKS))
}

fn edit() -> impl Strategy<Value = Edit> {
    let short = range().prop_map(|range| range.start..range.end.min(range.start + 300));
    prop_oneof![
        3 => (short, 0..6_u32).prop_map(|(range, pack)| Edit::Write(range, pack)),
        2 => range().prop_map(Edit::Discard),
    ]
}

fn edits(count: Range<usize>) -> impl Strategy<Value = Vec<Edit>> {
    proptest::collection::vec(edit(), count)
}

/// Applies edits to the model; returns what they changed, as a fold would tell it.
fn apply(model: &mut Model, edits: &[Edit], seed: u64) -> BTreeMap<u64, Change> {
    let mut changes = BTreeMap::new();
    for (number, edit) in edits.iter().enumerate() {
        match edit {
            Edit::Write(range, one) => {
                for index in range.clone() {
                    let content = index << 20 | seed << 8 | number as u64;
                    // Chunks of the same place of a pack are the same chunk elsewhere; not here.
                    let (pack, chunk) =
                        (pack(*one, 200_000), stored(content, (index % 65_000) as u32));
                    model.insert(index, (pack, chunk));
                    changes.insert(index, Change::Data { pack, chunk });
                }
            }
            Edit::Discard(range) => {
                for index in range.clone() {
                    model.remove(&index);
                    changes.insert(index, Change::Zero);
                }
            }
        }
    }
    changes
}

fn build(model: &Model, disk: Disk) -> Vec<u8> {
    let mut builder = Builder::new(disk, Cursor::new(Vec::new())).unwrap();
    for (index, (pack, chunk)) in model {
        let pack = builder.add_pack(*pack).unwrap();
        builder.push(*index, pack, *chunk).unwrap();
    }
    bytes_of(builder)
}

fn check_chunk(stack: &MemoryStack, model: &Model, index: u64) {
    match (stack.look_up(index).unwrap(), model.get(&index)) {
        (Chunk::Zero, None) => {}
        (Chunk::Data { level, entry }, Some((pack, chunk))) => {
            assert_eq!(entry.chunk, *chunk, "chunk {index}");
            let record = stack.levels()[level].pack(entry.pack).unwrap();
            assert_eq!(record.pack, *pack, "chunk {index}");
        }
        (found, expected) => panic!("chunk {index}: {found:?}, not {expected:?}"),
    }
}

/// Everything that a stack can be asked, against the model.
fn check(stack: &MemoryStack, model: &Model) {
    let interesting = model.keys().flat_map(|index| [index.saturating_sub(1), *index, index + 1]);
    let spans = (0..10).flat_map(|span| [span * SPAN, span * SPAN + SPAN - 1]);
    for index in interesting.chain(spans) {
        check_chunk(stack, model, index);
    }
    let entries: Vec<_> = stack.entries(0..u64::MAX).map(Result::unwrap).collect();
    assert!(entries.iter().map(|one| one.index).eq(model.keys().copied()));
    for (found, (pack, chunk)) in entries.iter().zip(model.values()) {
        assert_eq!(found.entry.chunk, *chunk);
        let record = stack.levels()[found.level].pack(found.entry.pack).unwrap();
        assert_eq!(record.pack, *pack);
    }
    let mut runs: Vec<Range<u64>> = Vec::new();
    for index in model.keys() {
        match runs.last_mut() {
            Some(run) if run.end == *index => run.end += 1,
            _ => runs.push(*index..index + 1),
        }
    }
    let found: Vec<_> = stack.data_runs(0..u64::MAX).map(Result::unwrap).collect();
    assert_eq!(found, runs);
    for reader in stack.levels() {
        reader.check().unwrap();
    }
}

/// Extents and entries from the middle of somewhere.
fn check_from(stack: &MemoryStack, model: &Model, from: u64) {
    assert_eq!(stack.next_data(from).unwrap(), model.range(from..).next().map(|(i, _)| *i));
    let hole = (from..CHUNKS).find(|index| !model.contains_key(index)).unwrap_or(CHUNKS);
    assert_eq!(stack.next_hole(from).unwrap(), hole);
    let range = from..from + 1000;
    let found: Vec<_> = stack.entries(range.clone()).map(|one| one.unwrap().index).collect();
    assert!(found.iter().eq(model.range(range).map(|(index, _)| index)));
}

fn merged_disk(salt: u8) -> MergedDisk {
    let Disk { disk_id, size_bytes, .. } = disk(CHUNKS, None);
    MergedDisk { disk_id, size_bytes, salt: [salt; 16] }
}

fn fold(manifests: &mut Vec<Vec<u8>>, changes: &BTreeMap<u64, Change>, levels: usize, salt: u8) {
    let below = stack(manifests);
    let changes = changes.iter().map(|(index, change)| (*index, *change));
    let merged = merge(&below, levels, changes, merged_disk(salt), Cursor::new(Vec::new()));
    let bytes = merged.unwrap().to_bytes().unwrap();
    manifests.drain(..levels);
    manifests.insert(0, bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn test_whole_manifest_says_what_was_built(
        edits in edits(0..12),
        starts in proptest::collection::vec(0..CHUNKS, 8),
    ) {
        let mut model = Model::new();
        apply(&mut model, &edits, 0);
        let bytes = build(&model, disk(CHUNKS, None));
        let stack = stack(std::slice::from_ref(&bytes));
        check(&stack, &model);
        for start in starts {
            check_from(&stack, &model, start);
        }
        prop_assert_eq!(stack.header().counts().data_chunks as usize, model.len());
        let mut name = ContentName::new(disk(CHUNKS, None).size_bytes, disk(CHUNKS, None).chunk_size);
        model.iter().for_each(|(index, (_, chunk))| name.push(*index, &chunk.digest));
        prop_assert_eq!(stack.header().content_name(), Some(name.finish()));
        prop_assert_eq!(build(&model, disk(CHUNKS, None)), bytes, "equal calls, equal bytes");
    }

    #[test]
    fn test_deltas_and_merges_say_what_was_edited(
        first in edits(0..8),
        rounds in proptest::collection::vec((edits(0..5), 0..4_usize), 1..7),
        starts in proptest::collection::vec(0..CHUNKS, 4),
    ) {
        let mut model = Model::new();
        apply(&mut model, &first, 0);
        let mut manifests = vec![build(&model, disk(CHUNKS, None))];
        for (number, (edits, levels)) in rounds.iter().enumerate() {
            let changes = apply(&mut model, edits, number as u64 + 1);
            let is_full = manifests.len() == 3;
            let levels = (*levels).min(manifests.len()).max(is_full.into());
            fold(&mut manifests, &changes, levels, number as u8);
            let stack = stack(&manifests);
            check(&stack, &model);
            for start in &starts {
                check_from(&stack, &model, *start);
            }
        }
        // Whatever the history was: the same disk.
        let levels = manifests.len();
        fold(&mut manifests, &BTreeMap::new(), levels, 9);
        let whole = disk(CHUNKS, None);
        let merged = open(manifests[0].clone()).unwrap();
        let built = open(build(&model, Disk { salt: [9; 16], ..whole })).unwrap();
        prop_assert_eq!(merged.header().content_name(), built.header().content_name());
        prop_assert_eq!(merged.header().name(), built.header().name());
    }

    #[test]
    fn test_zeros_are_said_only_of_data(
        first in edits(0..6),
        edits in edits(1..6),
    ) {
        let mut model = Model::new();
        apply(&mut model, &first, 0);
        let below = model.clone();
        let mut manifests = vec![build(&model, disk(CHUNKS, None))];
        let changes = apply(&mut model, &edits, 1);
        fold(&mut manifests, &changes, 0, 1);
        let delta = open(manifests[0].clone()).unwrap();
        for span in 0..9 {
            let chunks = span * SPAN..(span * SPAN + SPAN).min(CHUNKS);
            // A whole span of zeros is said at once.
            if chunks.clone().all(|index| delta.look_up(index).unwrap() == Found::Zero) {
                assert!(below.range(chunks).next().is_some());
                continue;
            }
            for index in chunks {
                if delta.look_up(index).unwrap() == Found::Zero {
                    prop_assert!(below.contains_key(&index), "chunk {}", index);
                }
            }
        }
    }
}

#[test]
fn test_extended_disk_is_zero_past_its_base() {
    let small = disk(10, None);
    let base = bytes_of(support::build(small, [(0, (1, 20, 0)), (9, (1, 20, 1))]));
    let below = stack(std::slice::from_ref(&base));
    let changes = [(2 * SPAN + 5, Change::Data { pack: pack(2, 1), chunk: stored(5, 0) })];
    let larger = MergedDisk { size_bytes: 3 * SPAN * u64::from(CHUNK), ..merged_disk(1) };
    let delta = merge(&below, 0, changes, larger, Cursor::new(Vec::new())).unwrap();
    let delta = { delta }.to_bytes().unwrap();
    let extended = stack(&[delta, base]);
    assert_eq!(extended.header().chunk_count(), 3 * SPAN);
    assert!(matches!(extended.look_up(9).unwrap(), Chunk::Data { level: 1, .. }));
    assert_eq!(extended.look_up(10).unwrap(), Chunk::Zero);
    let runs: Vec<_> = extended.data_runs(0..u64::MAX).map(Result::unwrap).collect();
    assert_eq!(runs, [0..1, 9..10, 2 * SPAN + 5..2 * SPAN + 6]);
    let smaller = MergedDisk { size_bytes: 4096, ..merged_disk(1) };
    assert!(merge(&extended, 1, [], smaller, Cursor::new(Vec::new())).is_err());
}

#[test]
fn test_folds_for_ever_stay_three_deep() {
    let mut model = Model::new();
    apply(&mut model, &[Edit::Write(0..60_000, 0)], 0);
    let mut manifests = vec![build(&model, disk(CHUNKS, None))];
    let mut deepest = 0;
    for round in 1..200_u64 {
        let at = round * 997 % CHUNKS;
        let edits =
            [Edit::Write(at..(at + 30).min(CHUNKS), round as u32 % 6), Edit::Discard(at..at + 2)];
        let changes = apply(&mut model, &edits, round);
        let sizes = stack(&manifests).page_counts();
        let levels = levels_to_merge(delta_pages(changes.len() as u64, 1), &sizes);
        fold(&mut manifests, &changes, levels, round as u8);
        deepest = deepest.max(manifests.len());
    }
    assert_eq!(deepest, 3);
    check(&stack(&manifests), &model);
}

#[test]
fn test_changes_out_of_order_are_refused() {
    let base = bytes_of(support::build(disk(CHUNKS, None), [(0, (1, 20, 0))]));
    let below = stack(&[base]);
    for indexes in [[5, 5], [5, 4], [SPAN + 1, 3], [3, CHUNKS], [2 * SPAN, SPAN]] {
        let changes = indexes.map(|index| (index, Change::Zero));
        let error = merge(&below, 0, changes, merged_disk(1), Cursor::new(Vec::new())).unwrap_err();
        assert!(error.to_string().contains("out of order"), "{indexes:?}: {error}");
    }
}

#[test]
fn test_stack_of_strangers_is_refused() {
    let base = bytes_of(support::build(disk(100, None), [(0, (1, 20, 0))]));
    let name = open(base.clone()).unwrap().header().name();
    let delta = |base, chunks| open(bytes_of(support::build(disk(chunks, base), [])));
    let right = Base { name, depth: 1 };
    let whole = || open(base.clone()).unwrap();
    let refused = |levels| acstor_manifest::Stack::new(levels).unwrap_err().to_string();
    assert!(acstor_manifest::Stack::new(vec![delta(Some(right), 100).unwrap(), whole()]).is_ok());
    let other = Base { name: Digest::of(b"other"), depth: 1 };
    assert!(refused(vec![delta(Some(other), 100).unwrap(), whole()]).contains("names another"));
    assert!(refused(vec![delta(Some(right), 50).unwrap(), whole()]).contains("larger"));
    assert!(refused(vec![delta(Some(right), 100).unwrap()]).contains("lowest is a delta"));
    assert!(refused(vec![whole(), whole()]).contains("names another"));
    assert!(refused(vec![]).contains("number of manifests"));
    let deeper = delta(Some(right), 100).unwrap();
    let sideways = Base { name: deeper.header().name(), depth: 1 };
    let sideways = delta(Some(sideways), 100).unwrap();
    assert!(refused(vec![sideways, deeper, whole()]).contains("depth of the base"));
}
