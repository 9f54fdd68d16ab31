use std::time::Duration;

use proptest::prelude::*;

use super::*;

const CHUNK: u64 = 64 << 10;
const COUNT: u64 = 1000;

fn follower() -> Follower {
    Follower::new(COUNT, CHUNK, 128 << 20, 7)
}

fn hinted(chunks: impl IntoIterator<Item = u32>) -> Follower {
    let mut follower = follower();
    for chunk in chunks {
        assert_eq!(follower.hinted(chunk), HintUse::New);
    }
    follower
}

#[test]
fn test_next_orders_what_was_hinted_up_to_the_threshold() {
    let mut follower = hinted(100..200);
    let ordered = follower.next(u64::MAX, Moment::ZERO);
    assert_eq!(ordered.len() as u64, UNMATCHED_MAX / CHUNK);
    assert_eq!(ordered[..4], [100, 101, 102, 103]);
    assert_ne!(ordered[4..], (104..164).collect::<Vec<_>>(), "not in step with others");
    assert!(!follower.may_tell(), "nothing was right yet");
    assert_eq!(follower.next(u64::MAX, Moment::ZERO), []);
    follower.fetched(100);
    assert_eq!(follower.state(100), ChunkState::Local);
    assert_eq!(follower.read(100), Touch::Used);
    assert_eq!(follower.read(101), Touch::Late);
    assert!(follower.may_tell());
    assert_eq!(follower.matched_bytes(), 2 * CHUNK);
    assert_eq!(follower.next(CHUNK, Moment::ZERO).len(), 1, "as much as there is room for");
    follower.fetched(101);
    assert_eq!(follower.state(101), ChunkState::Read, "too late");
}

#[test]
fn test_hints_are_new_once_and_late_after_the_read() {
    let mut follower = follower();
    assert_eq!(follower.read(5), Touch::Strange);
    assert_eq!(follower.read(5), Touch::Repeated);
    assert_eq!(follower.hinted(5), HintUse::Late);
    assert_eq!(follower.hinted(6), HintUse::New);
    assert_eq!(follower.hinted(6), HintUse::Repeated);
    assert_eq!(follower.hinted(1000), HintUse::Refused, "the image has no such chunk");
    assert_eq!(follower.read(6), Touch::Missed, "hinted, and no room until then");
    assert_eq!(follower.next(u64::MAX, Moment::ZERO), []);
    follower.written(8);
    assert_eq!(follower.hinted(8), HintUse::Late);
    assert_eq!((follower.read(8), follower.state(8)), (Touch::Repeated, ChunkState::Written));
}

#[test]
fn test_hints_that_lie_cost_the_threshold_until_they_age() {
    let mut follower = hinted(0..200);
    for chunk in follower.next(u64::MAX, Moment::ZERO) {
        follower.fetched(chunk);
    }
    assert_eq!(follower.age(Moment::ZERO + UNMATCHED_AGE_MAX / 2), []);
    let late = Moment::ZERO + UNMATCHED_AGE_MAX;
    assert_eq!(follower.age(late).len() as u64, UNMATCHED_MAX / CHUNK);
    assert_eq!((follower.unmatched_bytes(), follower.wasted_bytes()), (0, UNMATCHED_MAX));
    assert_eq!(follower.state(0), ChunkState::Remote);
    assert_eq!(follower.read(0), Touch::Missed, "fetched again, and told nobody");
    assert!(!follower.next(u64::MAX, late).contains(&1), "not ordered again");
}

#[test]
fn test_reads_of_a_large_disk_are_remembered_up_to_a_bound() {
    let mut follower = Follower::new(1 << 30, CHUNK, 128 << 20, 7);
    let bound = READS_MAX as u32;
    for chunk in 0..bound {
        assert_eq!(follower.read(chunk), Touch::Strange);
    }
    assert_eq!(follower.read(bound), Touch::Missed);
    assert_eq!(follower.chunks.len(), READS_MAX);
    assert_eq!(follower.read(7), Touch::Repeated);
    assert_eq!(follower.hinted(7), HintUse::Late);
    assert_eq!(follower.hinted(2 * bound), HintUse::New, "hints have a bound of their own");
    assert_eq!(follower.next(u64::MAX, Moment::ZERO), [2 * bound]);
    follower.fetched(2 * bound);
    assert_eq!(follower.read(2 * bound), Touch::Used);
}

#[test]
fn test_put_back_is_ordered_again_and_what_failed_is_not() {
    let mut follower = hinted([1, 2, 3]);
    assert_eq!(follower.next(u64::MAX, Moment::ZERO), [1, 2, 3]);
    follower.settled(1);
    follower.put_back(2);
    follower.fetched(3);
    follower.put_back(3);
    assert_eq!(follower.unmatched_bytes(), CHUNK);
    assert_eq!(follower.next(u64::MAX, Moment::ZERO), [2]);
    follower.gone(3);
    assert_eq!(follower.wasted_bytes(), 2 * CHUNK);
}

proptest! {
    /// Whatever is hinted, read and becomes of it: no more is ordered and unread than may be, each chunk
    /// is ordered once unless it was put back, and the counts are those of the chunks.
    #[test]
    fn proptest_orders_stay_within_the_threshold(
        steps in prop::collection::vec((0u8..8, 0u32..90, 0u64..12), 1..200),
    ) {
        let mut follower = Follower::new(80, UNMATCHED_MAX / 8, UNMATCHED_MAX, 3);
        let (mut now, mut under_way) = (Moment::ZERO, Vec::new());
        let mut ordered_ever = std::collections::HashSet::new();
        for (what, chunk, seconds) in steps {
            match what {
                0 | 1 => {
                    let is_refused = follower.hinted(chunk) == HintUse::Refused;
                    prop_assert_eq!(is_refused, chunk >= 80);
                }
                2 => {
                    for chunk in follower.next(u64::MAX, now) {
                        prop_assert!(ordered_ever.insert(chunk));
                        under_way.push(chunk);
                    }
                }
                3 => drop(follower.read(chunk)),
                4 => {
                    now = now + Duration::from_secs(seconds);
                    follower.age(now);
                }
                _ => {
                    let Some(chunk) = under_way.pop() else { continue };
                    match what {
                        5 => follower.fetched(chunk),
                        6 => follower.settled(chunk),
                        _ => {
                            let is_back = follower.known(chunk).is_under_way();
                            follower.put_back(chunk);
                            if is_back {
                                ordered_ever.remove(&chunk);
                            }
                        }
                    }
                }
            }
            let ordered = follower.chunks.values().filter(|known| known.ordered.is_some()).count();
            prop_assert_eq!(follower.unmatched_bytes(), ordered as u64 * UNMATCHED_MAX / 8);
            prop_assert!(follower.unmatched_bytes() <= UNMATCHED_MAX);
        }
    }
}
