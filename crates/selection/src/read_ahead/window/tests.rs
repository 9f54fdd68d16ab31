//! The window against guests that boot as the profile says, otherwise, or not at all.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::BootKind;

const CHUNK: u64 = 65_536;
const FLOOR: usize = (limits::READ_AHEAD_FLOOR / CHUNK) as usize;
const PLENTY: u64 = 1 << 40;

fn profile(kinds: &[(&[u32], u32)]) -> Arc<BootProfile> {
    let kind =
        |(chunks, weight): &(&[u32], u32)| BootKind { chunks: chunks.to_vec(), weight: *weight };
    Arc::new(BootProfile::new(kinds.iter().map(kind).collect()).unwrap())
}

/// A profile of one boot that reads the chunks from 0 on.
fn straight(count: u32) -> Arc<BootProfile> {
    profile(&[(&(0..count).collect::<Vec<_>>(), 1)])
}

fn ahead(profile: &Arc<BootProfile>) -> ReadAhead {
    ReadAhead::new(profile.clone(), CHUNK, PLENTY, 7)
}

/// Orders what may be ordered and has it at once.
fn bring(ahead: &mut ReadAhead) -> Vec<u32> {
    let ordered = ahead.next(PLENTY);
    ordered.iter().for_each(|chunk| ahead.fetched(*chunk));
    ordered
}

#[test]
fn test_next_orders_the_floor_at_the_open_and_doubles_while_it_is_right() {
    let mut ahead = ahead(&straight(1000));
    assert_eq!(bring(&mut ahead).len(), FLOOR);
    let mut windows = Vec::new();
    for chunk in 0..300 {
        assert_eq!(ahead.read(chunk), Touch::Used, "chunk {chunk}");
        bring(&mut ahead);
        windows.push(ahead.unread_bytes() / CHUNK);
    }
    assert_eq!(windows[FLOOR - 2] as usize, FLOOR, "the floor while less was right");
    assert_eq!(windows[299], 300, "as much ahead as was right");
    assert_eq!(ahead.right_bytes(), 300 * CHUNK);
}

#[test]
fn test_next_stands_still_where_the_profile_is_of_another_image() {
    let mut ahead = ahead(&straight(1000));
    let mut ordered = bring(&mut ahead).len();
    for chunk in 5000..9000 {
        assert_eq!(ahead.read(chunk), Touch::Strange);
        ordered += bring(&mut ahead).len();
    }
    assert_eq!(ordered, FLOOR);
    assert_eq!(ahead.wasted_bytes(), limits::READ_AHEAD_FLOOR);
    assert!(!ahead.is_over(), "what was ordered is in memory");
}

#[test]
fn test_next_beside_others_spends_one_floor_and_counts_what_they_got_right() {
    let (mut one, mut other) = (ahead(&straight(1000)), ahead(&straight(1000)));
    bring(&mut one);
    assert!(other.next_beside(one.balance(), PLENTY).is_empty(), "the floor is spent");
    for chunk in 0..2 * FLOOR as u32 {
        assert_eq!(one.read(chunk), Touch::Used);
        if chunk as usize + 1 == FLOOR {
            bring(&mut one);
        }
    }
    let right = 2 * limits::READ_AHEAD_FLOOR;
    assert_eq!(one.balance(), AheadBalance { right, in_vain: 0 });
    let ordered = other.next_beside(one.balance(), PLENTY);
    assert_eq!(ordered.len(), 2 * FLOOR, "more than the floor, though nothing was right here");
}

#[test]
fn test_next_orders_the_next_few_first_and_the_rest_by_host() {
    let profile = straight(1000);
    let order = |seed| ReadAhead::new(profile.clone(), CHUNK, PLENTY, seed).next(PLENTY);
    let (one, other) = (order(1), order(2));
    assert_eq!(one[..4], [0, 1, 2, 3]);
    assert_eq!(other[..4], [0, 1, 2, 3]);
    assert_ne!(one, other);
    assert_eq!(one, order(1), "the same host, the same order");
    let (one, other): (HashSet<_>, HashSet<_>) =
        (one.into_iter().collect(), other.into_iter().collect());
    assert_eq!(one, other, "the same window");
    assert_eq!(one, (0..FLOOR as u32).collect());
}

#[test]
fn test_next_orders_what_there_is_room_for() {
    let mut ahead = ahead(&straight(1000));
    assert!(ahead.next(CHUNK - 1).is_empty());
    assert_eq!(ahead.next(2 * CHUNK), [0, 1]);
    assert_eq!(ahead.under_way_bytes(), 2 * CHUNK);
    assert_eq!(ahead.next(2 * CHUNK), [2, 3]);
    assert_eq!(ahead.read(0), Touch::Late);
    assert_eq!(ahead.under_way_bytes(), 3 * CHUNK);
    ahead.fetched(0);
    assert_eq!(ahead.unread_bytes(), 3 * CHUNK, "read before it came");
    assert_eq!(ahead.next(CHUNK), [4], "the next four of the cursor");
}

#[test]
fn test_next_orders_nothing_beyond_the_budget() {
    let mut ahead = ReadAhead::new(straight(1000), CHUNK, 10 * CHUNK, 0);
    assert_eq!(bring(&mut ahead).len(), 10);
    ahead.read(0);
    assert_eq!(bring(&mut ahead), [10]);
    let mut off = ReadAhead::new(straight(1000), CHUNK, 0, 0);
    assert!(off.next(PLENTY).is_empty());
}

#[test]
fn test_read_jumps_forward_and_what_was_jumped_over_is_not_ordered() {
    let mut ahead = ahead(&straight(1000));
    assert_eq!(ahead.read(500), Touch::Missed);
    let ordered = bring(&mut ahead);
    assert!(ordered.iter().all(|chunk| *chunk > 500), "{ordered:?}");
    // Back again: what is ahead of there is worth it once more, and nothing comes twice.
    assert_eq!(ahead.read(10), Touch::Missed);
    assert_eq!(ahead.read(501), Touch::Used);
    assert_eq!(ahead.read(11), Touch::Missed);
    let again = bring(&mut ahead);
    assert!(again.iter().all(|chunk| (12..100).contains(chunk)), "{again:?}");
    // A chunk that is read again moves nothing.
    assert_eq!(ahead.read(501), Touch::Repeated);
    assert_eq!(ahead.read(again[0]), Touch::Used);
}

#[test]
fn test_next_orders_what_the_kinds_share_until_one_leads() {
    let one: Vec<u32> = (0..10).chain(100..140).chain(300..310).collect();
    let other: Vec<u32> = (0..10).chain(200..240).chain(300..310).collect();
    let mut ahead = ahead(&profile(&[(&one, 1), (&other, 5)]));
    assert!(!ahead.is_led());
    let ordered: HashSet<u32> = bring(&mut ahead).into_iter().collect();
    assert_eq!(ordered, (0..10).chain(300..310).collect(), "what both name");
    (0..10).for_each(|chunk| assert_eq!(ahead.read(chunk), Touch::Used));
    for chunk in 100..100 + limits::READ_AHEAD_LEAD_HITS {
        assert!(!ahead.is_led());
        assert!(bring(&mut ahead).is_empty());
        assert_eq!(ahead.read(chunk), Touch::Missed);
    }
    assert!(ahead.is_led());
    let ordered: HashSet<u32> = bring(&mut ahead).into_iter().collect();
    // The floor, of which ten are ordered and unread.
    assert_eq!(ordered, (104..104 + FLOOR as u32 - 10).collect());
}

#[test]
fn test_next_follows_the_heaviest_of_equal_kinds() {
    let (one, other): (Vec<u32>, Vec<u32>) = ((0..40).collect(), (0..40).rev().collect());
    let mut ahead = ahead(&profile(&[(&one, 1), (&other, 5)]));
    assert_eq!(ahead.next(2 * CHUNK), [39, 38]);
}

#[test]
fn test_gone_chunks_go_on_counting_and_those_put_back_do_not() {
    let mut ahead = ahead(&straight(1000));
    let ordered = bring(&mut ahead);
    ahead.gone(ordered[0]);
    assert_eq!(ahead.wasted_bytes(), limits::READ_AHEAD_FLOOR);
    assert_eq!(ahead.unread_bytes(), limits::READ_AHEAD_FLOOR - CHUNK);
    assert!(ahead.next(PLENTY).is_empty());
    assert_eq!(ahead.read(ordered[0]), Touch::Missed);
    ahead.put_back(ordered[1]);
    ahead.read(0);
    assert_eq!(ahead.next(PLENTY), [ordered[1]], "ordered again, since it was not asked for");
}

#[test]
fn test_present_and_failed_chunks_make_room_for_the_next() {
    let mut ahead = ahead(&straight(200));
    let ordered = ahead.next(PLENTY);
    ordered.iter().for_each(|chunk| ahead.present(*chunk));
    assert_eq!((ahead.wasted_bytes(), ahead.under_way_bytes()), (0, 0));
    let ordered = ahead.next(PLENTY);
    assert_eq!(ordered.len(), FLOOR);
    ordered.iter().for_each(|chunk| ahead.failed(*chunk));
    while !ahead.is_over() {
        let ordered = ahead.next(PLENTY);
        assert!(!ordered.is_empty());
        ordered.iter().for_each(|chunk| ahead.failed(*chunk));
    }
    assert!(ahead.next(PLENTY).is_empty());
    assert_eq!(ahead.read(3), Touch::Missed);
}

#[test]
fn test_in_flight_bytes_is_what_the_link_brings_in_20_ms_and_no_less_than_two_chunks() {
    assert_eq!(in_flight_bytes(Some(125_000_000), CHUNK), 2_500_000);
    assert_eq!(in_flight_bytes(Some(0), CHUNK), 2 * CHUNK);
    assert_eq!(in_flight_bytes(None, CHUNK), limits::READ_AHEAD_IN_FLIGHT_UNTOLD);
    assert_eq!(in_flight_bytes(None, 4 << 20), 8 << 20);
}

#[test]
fn test_an_empty_profile_is_over() {
    let mut ahead = ahead(&profile(&[]));
    assert!(ahead.next(PLENTY).is_empty() && ahead.is_over() && !ahead.is_led());
    assert_eq!(ahead.read(1), Touch::Strange);
}

/// Something that happens to a handle.
#[derive(Clone, Debug)]
enum Event {
    Read(u32),
    /// As many of the profile as that, from where the guest is.
    Run(u32),
    Next(u64),
    Fetched(usize),
    Gone(usize),
    Failed(usize),
    Present(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0u32..2000).prop_map(Event::Read),
        (1u32..60).prop_map(Event::Run),
        (0u64..80).prop_map(|chunks| Event::Next(chunks * CHUNK)),
        any::<usize>().prop_map(Event::Fetched),
        any::<usize>().prop_map(Event::Gone),
        any::<usize>().prop_map(Event::Failed),
        any::<usize>().prop_map(Event::Present),
    ];
    proptest::collection::vec(event, 1..200)
}

fn boots() -> impl Strategy<Value = Vec<(Vec<u32>, u32)>> {
    let chunks = proptest::collection::hash_set(0u32..1500, 0..400)
        .prop_map(|chunks| chunks.into_iter().collect::<Vec<_>>());
    proptest::collection::vec((chunks, 0u32..9), 0..=limits::READ_AHEAD_KINDS_MAX)
}

fn any_of(ordered: &[u32], which: usize) -> Option<u32> {
    Some(*ordered.get(which.checked_rem(ordered.len())?)?)
}

proptest! {
    /// Whatever the guest reads and whatever becomes of what was ordered: no chunk is ordered twice, none
    /// that was read, none that no kind names; what is unread stays within the budget; what is in vain
    /// within what was right and the floor; and the books agree with a count of one's own.
    #[test]
    fn proptest_waste_is_bounded_and_no_chunk_is_ordered_twice(
        boots in boots(),
        events in events(),
        (budget, seed) in (0u64..300, any::<u64>()),
    ) {
        let kinds: Vec<(&[u32], u32)> = boots.iter().map(|(chunks, weight)| (&chunks[..], *weight)).collect();
        let profile = profile(&kinds);
        let mut ahead = ReadAhead::new(profile.clone(), CHUNK, budget * CHUNK, seed);
        let (mut ordered, mut seen, mut read) = (Vec::new(), HashSet::new(), HashSet::new());
        let mut right = 0;
        for event in events {
            match event {
                Event::Read(chunk) => {
                    right += u64::from(matches!(ahead.read(chunk), Touch::Late | Touch::Used));
                    read.insert(chunk);
                }
                Event::Run(count) => {
                    for chunk in profile.chunks(0).skip(read.len()).take(count as usize) {
                        right += u64::from(matches!(ahead.read(chunk), Touch::Late | Touch::Used));
                        read.insert(chunk);
                    }
                }
                Event::Next(room) => {
                    let orders = ahead.next(room);
                    prop_assert!(orders.len() as u64 * CHUNK <= room);
                    for chunk in orders {
                        prop_assert!(seen.insert(chunk), "{chunk} twice");
                        prop_assert!(!read.contains(&chunk), "{chunk} was read");
                        prop_assert!((0..3).any(|kind| profile.rank(kind, chunk).is_some()));
                        ordered.push(chunk);
                    }
                }
                Event::Fetched(which) => {
                    if let Some(chunk) = any_of(&ordered, which) {
                        ahead.fetched(chunk);
                    }
                }
                Event::Gone(which) => {
                    if let Some(chunk) = any_of(&ordered, which) {
                        ahead.gone(chunk);
                    }
                }
                Event::Failed(which) => {
                    if let Some(chunk) = any_of(&ordered, which) {
                        ahead.failed(chunk);
                    }
                }
                Event::Present(which) => {
                    if let Some(chunk) = any_of(&ordered, which) {
                        ahead.present(chunk);
                    }
                }
            }
            prop_assert_eq!(ahead.right_bytes(), right * CHUNK);
            prop_assert!(ahead.unread_bytes() <= budget * CHUNK);
            prop_assert!(ahead.under_way_bytes() <= ahead.unread_bytes());
            prop_assert!(ahead.wasted_bytes() <= ahead.right_bytes().max(limits::READ_AHEAD_FLOOR));
        }
    }

    /// Wherever the guest has read for the first time: all that is ordered lies within the window ahead of
    /// it, whatever the seed. A chunk that is read again moves nothing.
    #[test]
    fn proptest_the_random_order_stays_inside_the_window(
        jumps in proptest::collection::vec(0u32..2000, 1..20),
        (room, seed) in (1u64..200, any::<u64>()),
    ) {
        let mut ahead = ReadAhead::new(straight(2000), CHUNK, PLENTY, seed);
        let mut idle: Vec<bool> = vec![true; 2000];
        let (mut read, mut cursor) = (HashSet::new(), 0);
        for at in jumps {
            let touch = ahead.read(at);
            prop_assert_eq!(touch == Touch::Repeated, !read.insert(at));
            cursor = if touch == Touch::Repeated { cursor } else { at };
            idle[at as usize] = false;
            let free = ahead.right_bytes().max(limits::READ_AHEAD_FLOOR) - ahead.wasted_bytes();
            let is_idle = |chunk: &u32| idle[*chunk as usize];
            let window: HashSet<u32> =
                (cursor + 1..2000).filter(is_idle).take((free / CHUNK) as usize).collect();
            for chunk in ahead.next(room * CHUNK) {
                prop_assert!(window.contains(&chunk), "{chunk} from {cursor}");
                idle[chunk as usize] = false;
            }
        }
    }
}
