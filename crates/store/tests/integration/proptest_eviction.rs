//! Each eviction policy against its reference: any operations, the same chunk leaves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use acstor_store::EvictionKind;
use acstor_testkit::reference_eviction::{
    ReferenceLfu, ReferencePolicy, ReferenceQueue, ReferenceS3Fifo,
};
use proptest::prelude::*;

const SLOTS: u32 = 24;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Fill a free slot, or the one of a chunk that leaves, with a chunk; slots whose bit is set
    /// in `guarded` cannot leave.
    Insert {
        chunk: u64,
        guarded: u32,
    },
    Touch {
        slot: u32,
    },
    Remove {
        slot: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let insert = (0u64..60, any::<u32>(), any::<u32>())
        .prop_map(|(chunk, a, b)| Step::Insert { chunk, guarded: a & b });
    prop_oneof![
        5 => insert,
        5 => (0..SLOTS).prop_map(|slot| Step::Touch { slot }),
        1 => (0..SLOTS).prop_map(|slot| Step::Remove { slot }),
    ]
}

fn reference(kind: EvictionKind) -> Box<dyn ReferencePolicy> {
    match kind {
        EvictionKind::S3Fifo => Box::new(ReferenceS3Fifo::new(SLOTS)),
        EvictionKind::Fifo => Box::new(ReferenceQueue::fifo()),
        EvictionKind::Lru => Box::new(ReferenceQueue::lru()),
        EvictionKind::Lfu => Box::new(ReferenceLfu::default()),
    }
}

fn prefix(chunk: u64) -> u64 {
    (chunk + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn compare(kind: EvictionKind, steps: &[Step]) {
    let policy = kind.policy(SLOTS);
    let mut reference = reference(kind);
    let mut chunks = [None; SLOTS as usize];
    for step in steps {
        match *step {
            Step::Insert { chunk, guarded } => {
                if chunks.contains(&Some(chunk)) {
                    continue;
                }
                let free = chunks.iter().position(Option::is_none).map(|slot| slot as u32);
                let slot = free.or_else(|| {
                    let may_go = |slot: u32| guarded >> slot & 1 == 0;
                    let expected = reference.evict(&may_go);
                    let mut reclaim =
                        |slot: u32| may_go(slot).then(|| prefix(chunks[slot as usize].unwrap()));
                    let evicted = policy.evict(&mut reclaim);
                    assert_eq!(evicted, expected, "{kind}");
                    evicted
                });
                if let Some(slot) = slot {
                    chunks[slot as usize] = Some(chunk);
                    policy.admit(slot, prefix(chunk));
                    reference.admit(slot, prefix(chunk));
                }
            }
            Step::Touch { slot } if chunks[slot as usize].is_some() => {
                policy.touch(slot);
                reference.touch(slot);
            }
            Step::Remove { slot } => {
                chunks[slot as usize] = None;
                policy.remove(slot);
                reference.remove(slot);
            }
            Step::Touch { .. } => {}
        }
    }
}

proptest! {
    #[test]
    fn policies_do_what_their_references_do(steps in prop::collection::vec(step(), 1..600)) {
        for kind in EvictionKind::ALL {
            compare(kind, &steps);
        }
    }
}
