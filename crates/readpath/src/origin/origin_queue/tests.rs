//! Runs of neighbours, lanes, turns of disks, wake-ups.

use acstor_selection::limits;
use acstor_types::{ChunkLocation, ChunkSize};

use super::*;
use crate::ReadPathConfig;

const LEN: usize = 65_536;

fn queue(threads: usize, queue_max: usize) -> OriginQueue {
    OriginQueue::new(&ReadPathConfig {
        host: "a".into(),
        origin_threads: threads,
        origin_queue_max: queue_max,
        origin_run_max_bytes: 4 * LEN,
        ..ReadPathConfig::default()
    })
}

fn pack(number: u8) -> PackId {
    PackId(Digest::of(&[number]))
}

fn miss(
    pack_number: u8,
    position: u32,
    lane: Lane,
) -> (OriginMiss, oneshot::Receiver<OriginAnswer>) {
    let (answer, receiver) = oneshot::channel();
    let offset = 4096 + position * LEN as u32;
    let digest = Digest::of(&[&[pack_number][..], &position.to_le_bytes()].concat());
    let location = ChunkLocation { pack: pack(pack_number), offset };
    let disk = DiskId::from_bytes([pack_number; 16]);
    let place = StoredPlace::plain(location, ChunkSize::DEFAULT);
    (OriginMiss { digest, place, len: LEN, disk, lane, answer }, receiver)
}

fn submit(
    queue: &OriginQueue,
    pack: u8,
    positions: &[u32],
    lane: Lane,
) -> Vec<oneshot::Receiver<OriginAnswer>> {
    let (misses, receivers) = positions.iter().map(|p| miss(pack, *p, lane)).unzip();
    queue.submit(misses, Instant::now());
    receivers
}

fn submit_at(
    queue: &OriginQueue,
    position: u32,
    at: Instant,
) -> Vec<oneshot::Receiver<OriginAnswer>> {
    let (asked, receiver) = miss(1, position, Lane::Demand);
    queue.submit(vec![asked], at);
    vec![receiver]
}

fn positions(run: &OriginRun) -> Vec<u32> {
    run.parts.iter().map(|part| (part.place.location.offset - 4096) / LEN as u32).collect()
}

#[test]
fn test_take_run_merges_neighbours_up_to_the_limit() {
    let queue = queue(4, 100);
    let _waiting = submit(&queue, 1, &[2, 1, 3, 5, 4, 0], Lane::Demand);
    assert_eq!(positions(&queue.take_run().unwrap()), [2, 3, 4, 5]);
    assert_eq!(positions(&queue.take_run().unwrap()), [0, 1]);
    assert_eq!(queue.take_run(), None);
}

#[test]
fn test_take_run_keeps_packs_apart() {
    let queue = queue(4, 100);
    let _one = submit(&queue, 1, &[0], Lane::Demand);
    let _two = submit(&queue, 2, &[1], Lane::Demand);
    let first = queue.take_run().unwrap();
    assert_eq!((first.pack, positions(&first)), (pack(1), vec![0]));
    assert_eq!(queue.take_run().unwrap().pack, pack(2));
}

#[test]
fn test_submit_same_digest_twice_is_one_read_with_two_answers() {
    let queue = queue(4, 100);
    let mut one = submit(&queue, 1, &[0], Lane::Demand);
    let run = queue.take_run().unwrap();
    let mut two = submit(&queue, 1, &[0], Lane::Demand);
    assert_eq!(queue.take_run(), None, "it is under way");
    queue.complete(&run, vec![Ok(Bytes::from_static(b"x"))]);
    assert!(one[0].try_recv().unwrap().is_ok());
    assert!(two[0].try_recv().unwrap().is_ok());
}

/// As [`miss`], with the chunk of another pack.
fn miss_elsewhere(other: u8, position: u32) -> (OriginMiss, oneshot::Receiver<OriginAnswer>) {
    let (mut asked, receiver) = miss(1, position, Lane::Demand);
    asked.place.location.pack = pack(other);
    (asked, receiver)
}

#[test]
fn test_chunk_that_is_under_way_in_one_pack_is_read_in_another() {
    let queue = queue(4, 100);
    let mut one = submit(&queue, 1, &[0], Lane::Demand);
    let hangs = queue.take_run().unwrap();
    let (asked, mut two) = miss_elsewhere(2, 0);
    let elsewhere = asked.place;
    queue.submit(vec![asked], Instant::now());
    assert!(!queue.is_underway(&hangs.parts[0].digest, elsewhere));
    let run = queue.take_run().unwrap();
    let there = RunPart { place: elsewhere, ..hangs.parts[0] };
    assert_eq!((run.pack, &run.parts), (pack(2), &vec![there]));
    assert!(queue.is_underway(&hangs.parts[0].digest, elsewhere));
    queue.complete(&run, vec![Ok(Bytes::from_static(b"x"))]);
    assert!(two.try_recv().unwrap().is_ok());
    assert!(one[0].try_recv().is_err(), "it waits for the other pack");
    let mut again = submit(&queue, 1, &[0], Lane::Demand);
    assert_eq!(queue.take_run(), None, "it is under way there");
    queue.complete(&hangs, vec![Err(OriginFailure::Corrupt)]);
    for waiting in [&mut one[0], &mut again[0]] {
        assert_eq!(waiting.try_recv().unwrap(), Err(OriginFailure::Corrupt));
    }
}

#[test]
fn test_queued_chunk_goes_where_the_only_one_who_waits_wants_it() {
    let queue = queue(4, 100);
    drop(submit(&queue, 1, &[0], Lane::Demand));
    let (asked, _receiver) = miss_elsewhere(2, 0);
    queue.submit(vec![asked], Instant::now());
    let _old_neighbour = submit(&queue, 1, &[1], Lane::Demand);
    assert_eq!(queue.depth(), 2);
    let run = queue.take_run().unwrap();
    assert_eq!((run.pack, positions(&run)), (pack(2), vec![0]));
    let run = queue.take_run().unwrap();
    assert_eq!((run.pack, positions(&run)), (pack(1), vec![1]));
    assert_eq!(queue.take_run(), None);
}

#[test]
fn test_submit_full_queue_refuses() {
    let queue = queue(4, 2);
    let mut waiting = submit(&queue, 1, &[0, 5, 9], Lane::Demand);
    assert_eq!(waiting[2].try_recv().unwrap(), Err(OriginFailure::Full));
    assert_eq!(queue.depth(), 2);
}

#[test]
fn test_prefetch_waits_for_demand_on_its_share_of_the_threads() {
    let queue = queue(2, 100);
    let _ahead = submit(&queue, 1, &[0, 9], Lane::Prefetch);
    let _asked = submit(&queue, 1, &[20], Lane::Demand);
    assert_eq!(positions(&queue.take_run().unwrap()), [20]);
    let prefetch = queue.take_run().unwrap();
    assert_eq!(positions(&prefetch), [0]);
    assert_eq!(queue.take_run(), None, "one of two threads at a time");
    queue.complete(&prefetch, vec![Err(OriginFailure::Corrupt)]);
    assert_eq!(positions(&queue.take_run().unwrap()), [9]);
}

#[test]
fn test_promote_moves_a_prefetch_to_the_demand_lane() {
    let queue = queue(2, 100);
    let _ahead = submit(&queue, 1, &[0, 9], Lane::Prefetch);
    let (asked, _receiver) = miss(1, 9, Lane::Demand);
    queue.submit(vec![asked], Instant::now());
    let run = queue.take_run().unwrap();
    assert_eq!((positions(&run), run.lane), (vec![9], Lane::Demand));
    assert_eq!(positions(&queue.take_run().unwrap()), [0]);
    assert_eq!(queue.take_run(), None);
}

/// A thread that waits for runs as those of the pool do.
struct Worker {
    runs: std::sync::mpsc::Receiver<OriginRun>,
    thread: Option<std::thread::JoinHandle<()>>,
    queue: std::sync::Arc<OriginQueue>,
}

impl Worker {
    /// Starts one and waits until it sleeps.
    fn asleep(queue: &std::sync::Arc<OriginQueue>) -> Worker {
        let (sender, runs) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let queue = queue.clone();
            move || {
                while let Some(run) = queue.wait_run() {
                    let _ = sender.send(run);
                }
            }
        });
        while queue.state.lock().sleeping == 0 {
            std::thread::yield_now();
        }
        Worker { runs, thread: Some(thread), queue: queue.clone() }
    }

    fn next_run(&self) -> OriginRun {
        let run = self.runs.recv_timeout(std::time::Duration::from_secs(30));
        run.expect("a thread sleeps beside something that it may run")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue.stop();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn test_demand_that_finds_what_was_given_up_wakes_a_sleeping_thread() {
    for lane in [Lane::Prefetch, Lane::Preload] {
        let queue = std::sync::Arc::new(queue(4, 100));
        let _one = submit(&queue, 1, &[0], lane);
        let _two = submit(&queue, 2, &[0], lane);
        let _runs = (queue.take_run().unwrap(), queue.take_run().unwrap());
        drop(submit(&queue, 3, &[0], lane));
        let worker = Worker::asleep(&queue);
        let _asked = submit(&queue, 3, &[0], Lane::Demand);
        let run = worker.next_run();
        assert_eq!((run.pack, run.lane), (pack(3), Lane::Demand));
    }
}

#[test]
fn test_complete_wakes_a_sleeping_thread_for_what_was_held_back() {
    let queue = std::sync::Arc::new(queue(2, 100));
    let _waiting = submit(&queue, 1, &[0, 5, 9], Lane::Demand);
    let first = queue.take_run().unwrap();
    let _second = queue.take_run().unwrap();
    let worker = Worker::asleep(&queue);
    queue.complete(&first, vec![Err(OriginFailure::Corrupt)]);
    assert_eq!(positions(&worker.next_run()), [9]);
}

#[test]
fn test_one_disk_has_not_all_threads_and_disks_take_turns() {
    let queue = queue(2, 100);
    let _many = submit(&queue, 1, &[0, 2, 4, 6], Lane::Demand);
    let _few = submit(&queue, 2, &[0, 2], Lane::Demand);
    let packs: Vec<PackId> = (0..4).map_while(|_| queue.take_run()).map(|run| run.pack).collect();
    assert_eq!(packs, [pack(1), pack(2), pack(1), pack(2)], "two runs of each");
    assert_eq!(queue.take_run(), None);
}

#[test]
fn test_chunk_that_a_second_disk_wants_too_has_a_turn_of_that_disk() {
    let queue = queue(1, 100);
    let _many = submit(&queue, 1, &[0, 2, 4], Lane::Demand);
    let _hangs = queue.take_run().unwrap();
    let (mut asked, _receiver) = miss(1, 4, Lane::Demand);
    asked.disk = DiskId::from_bytes([2; 16]);
    queue.submit(vec![asked], Instant::now());
    assert_eq!(positions(&queue.take_run().unwrap()), [4]);
    assert_eq!(queue.take_run(), None);
}

#[test]
fn test_probe_is_read_first_though_its_waiter_is_gone() {
    let queue = queue(1, 100);
    let now = Instant::now();
    let _waiting = submit(&queue, 1, &[0, 5], Lane::Demand);
    let _hangs = queue.take_run().unwrap();
    (0..limits::ORIGIN_FAILURES_MAX).for_each(|_| queue.health.failed(now));
    let (asked, receiver) = miss(1, 20, Lane::Prefetch);
    queue.submit(vec![asked], now + limits::ORIGIN_OPEN_MIN);
    drop(receiver);
    let probe = queue.take_run().unwrap();
    assert_eq!((positions(&probe), probe.lane), (vec![20], Lane::Demand));
}

#[test]
fn test_probe_that_found_no_thread_in_time_waits_like_any_other() {
    let queue = queue(1, 100);
    let now = Instant::now();
    (0..limits::ORIGIN_FAILURES_MAX).for_each(|_| queue.health.failed(now));
    let minute = std::time::Duration::from_secs(60);
    let mut waiting = submit_at(&queue, 1, now + minute);
    for (number, position) in [(1, 5), (2, 9)] {
        let overdue = now + number * 3 * minute;
        assert!(matches!(queue.health.admit(overdue), OriginAdmission::Wait(_)));
        waiting.extend(submit_at(&queue, position, overdue + minute));
    }
    assert_eq!(positions(&queue.take_run().unwrap()), [9], "the probe first");
    assert_eq!(queue.depth(), 2);
    assert_eq!(queue.take_run(), None, "one run of the disk");
}

#[test]
fn test_take_run_skips_what_nobody_waits_for() {
    let queue = queue(4, 100);
    drop(submit(&queue, 1, &[0, 1], Lane::Demand));
    let _waiting = submit(&queue, 1, &[2], Lane::Demand);
    assert_eq!(positions(&queue.take_run().unwrap()), [2]);
    assert_eq!(queue.take_run(), None);
}

#[test]
fn test_complete_returns_what_nobody_took() {
    let queue = queue(4, 100);
    let waiting = submit(&queue, 1, &[0], Lane::Demand);
    let run = queue.take_run().unwrap();
    drop(waiting);
    let late = queue.complete(&run, vec![Ok(Bytes::from_static(b"late"))]);
    assert_eq!(late, [(run.parts[0].digest, Bytes::from_static(b"late"))]);
}

#[test]
fn test_stop_answers_everybody() {
    let queue = queue(4, 100);
    let mut waiting = submit(&queue, 1, &[0], Lane::Demand);
    queue.stop();
    assert_eq!(waiting[0].try_recv().unwrap(), Err(OriginFailure::Stopped));
    let mut late = submit(&queue, 1, &[1], Lane::Demand);
    assert_eq!(late[0].try_recv().unwrap(), Err(OriginFailure::Stopped));
    assert_eq!(queue.wait_run(), None);
}

#[test]
fn test_promote_moves_a_preload_before_the_others_of_its_like() {
    let queue = queue(4, 100);
    let _preloads = submit(&queue, 1, &[0, 9, 20], Lane::Preload);
    queue.promote(&miss(1, 20, Lane::Prefetch).0.digest, Lane::Prefetch);
    let (asked, _receiver) = miss(1, 9, Lane::Prefetch);
    queue.submit(vec![asked], Instant::now());
    let runs: Vec<_> = std::iter::from_fn(|| queue.take_run()).collect();
    let taken: Vec<_> = runs.iter().map(|run| (positions(run), run.lane)).collect();
    assert_eq!(taken, [(vec![20], Lane::Prefetch), (vec![9], Lane::Prefetch)]);
    for run in &runs {
        queue.complete(run, vec![Err(OriginFailure::Corrupt)]);
    }
    assert_eq!(
        queue.take_run().map(|run| (positions(&run), run.lane)),
        Some((vec![0], Lane::Preload))
    );
}

#[test]
fn test_promote_never_moves_a_chunk_behind_its_lane() {
    let queue = queue(4, 100);
    let _asked = submit(&queue, 1, &[0], Lane::Demand);
    let (ahead, _receiver) = miss(1, 0, Lane::Prefetch);
    queue.promote(&ahead.digest, Lane::Preload);
    queue.submit(vec![ahead], Instant::now());
    assert_eq!(queue.take_run().map(|run| run.lane), Some(Lane::Demand));
    assert_eq!(queue.take_run(), None);
}
