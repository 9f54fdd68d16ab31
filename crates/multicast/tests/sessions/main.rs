//! Whole sessions over a group in memory, in the runtime's own time: nothing here depends on a clock.
#![allow(clippy::unwrap_used, reason = "tests")]

mod hub;
mod memory_group;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acstor_multicast::ShardLayout;
use acstor_multicast::limits::{DEAF_EPOCHS_MAX, EPOCH, JOIN_WINDOW};
use acstor_multicast::receiver::{DueReport, Receiver, ReceiverConfig, ReceiverStats};
use acstor_multicast::sender::{Sender, SenderConfig, SenderStats, SessionEnd};
use acstor_multicast::shell::{
    ChunkSource, Finish, LoadFuture, Membership, ReportFuture, SharedSender, receive, send,
};
use acstor_multicast::wire::SessionKey;
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use memory_group::{Faults, MemoryGroup};

const CHUNK: u32 = 65_536;

fn content(index: u64) -> Bytes {
    (0..u64::from(CHUNK)).map(|i| (i * (index + 7) % 241) as u8).collect()
}

struct Disk {
    reads_wait: Arc<AtomicBool>,
}

impl ChunkSource for Disk {
    fn load(&self, chunks: Vec<u64>) -> LoadFuture {
        Box::pin(async move { chunks.into_iter().map(|index| (index, content(index))).collect() })
    }

    fn reads_wait(&self) -> bool {
        self.reads_wait.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct Member {
    sender: Arc<SharedSender>,
    host: IpAddr,
    number: u32,
    /// Factor of the packets that it reports.
    boast: u32,
    kept: Arc<Mutex<HashMap<u64, Bytes>>>,
}

impl Membership for Member {
    fn report(&self, report: DueReport) -> ReportFuture {
        let DueReport { epoch, packets } = report;
        let (from, received) = ((self.host, self.number), (epoch, packets * self.boast));
        let news = self.sender.with(|sender, _| {
            sender.report(from, received, None);
            sender.news().0
        });
        Box::pin(async move { Some(news) })
    }

    fn keep(&self, index: u64, digest: Digest, bytes: Bytes) {
        assert!(digest.matches(&bytes));
        assert!(self.kept.lock().insert(index, bytes).is_none(), "once");
    }
}

struct Outcome {
    end: SessionEnd,
    stats: SenderStats,
    members: Vec<(Finish, ReceiverStats, HashMap<u64, Bytes>)>,
    took: Duration,
}

struct World {
    sender: Arc<SharedSender>,
    group: MemoryGroup,
    zero: Instant,
    chunks: u64,
    reads_wait: Arc<AtomicBool>,
    key: SessionKey,
    layout: ShardLayout,
}

impl World {
    fn new(chunks: u64) -> World {
        let layout = ShardLayout::new(ChunkSize::new(CHUNK).unwrap(), true);
        let key = SessionKey::new([1; 16], [2; 12]).unwrap();
        let zero = Instant::now();
        let sender = Sender::new(SenderConfig {
            session: 11,
            key: key.clone(),
            layout,
            link_bytes_per_s: 125_000_000,
            rate_max: u64::MAX,
            chunks: (0..chunks).collect(),
            starts_at: JOIN_WINDOW,
        });
        World {
            sender: SharedSender::new(sender, zero),
            group: MemoryGroup::default(),
            zero,
            chunks,
            reads_wait: Arc::default(),
            key,
            layout,
        }
    }

    /// Runs a session with members whose ways have those faults; the first one reports `boast` times as much.
    async fn run(self, ways: &[Faults], boast: u32) -> Outcome {
        let mut listening = Vec::new();
        for (seed, faults) in (0_u64..).zip(ways) {
            let host = IpAddr::from(Ipv4Addr::from(seed as u32));
            let number = self.sender.with(|sender, _| sender.join(host)).unwrap();
            let boast = if number == 0 { boast } else { 1 };
            let (sender, kept) = (self.sender.clone(), Arc::default());
            let member = Member { sender, host, number, boast, kept };
            listening.push(tokio::spawn(self.listen(member, *faults, seed)));
        }
        let disk = Disk { reads_wait: self.reads_wait.clone() };
        let end = send(self.sender.clone(), self.group.clone(), disk).await;
        let took = self.zero.elapsed();
        let mut members = Vec::new();
        for member in listening {
            members.push(member.await.unwrap());
        }
        Outcome { end, stats: self.sender.with(|sender, _| sender.stats()), members, took }
    }

    fn listen(
        &self,
        member: Member,
        faults: Faults,
        seed: u64,
    ) -> impl Future<Output = (Finish, ReceiverStats, HashMap<u64, Bytes>)> + 'static {
        let missing = (0..self.chunks).map(|index| (index, Digest::of(&content(index))));
        let receiver = Receiver::new(ReceiverConfig {
            session: 11,
            member: member.number,
            key: self.key.clone(),
            layout: self.layout,
            missing: missing.collect(),
            starts_at: JOIN_WINDOW,
        });
        let (ear, zero) = (self.group.listen(faults, seed), self.zero);
        async move {
            let (stats, kept) = (Mutex::default(), member.kept.clone());
            let finish = receive(receiver, (ear, zero), member, |now| *stats.lock() = now).await;
            let kept = std::mem::take(&mut *kept.lock());
            (finish, stats.into_inner(), kept)
        }
    }
}

const CLEAN: Faults = Faults { loss: 0.0, doubles: 0.0, disorder: 0.0, deaf_after: None };

#[tokio::test(start_paused = true)]
async fn test_session_on_a_clean_network_brings_every_chunk_to_every_member() {
    let outcome = World::new(40).run(&[CLEAN; 4], 1).await;
    assert_eq!(outcome.end, SessionEnd::Done);
    for (finish, stats, kept) in &outcome.members {
        assert_eq!((*finish, stats.whole, stats.repaired), (Finish::Whole, 40, 0));
        assert!((0..40).all(|index| kept[&index] == content(index)));
    }
    assert_eq!(outcome.stats.cuts, 0);
}

#[tokio::test(start_paused = true)]
async fn test_session_one_per_cent_of_loss_is_repaired_by_parity() {
    let faults = Faults { loss: 0.01, doubles: 0.05, disorder: 0.05, deaf_after: None };
    let outcome = World::new(100).run(&[faults; 3], 1).await;
    assert_eq!(outcome.end, SessionEnd::Done);
    for (_, stats, kept) in &outcome.members {
        assert!(kept.len() >= 97, "{stats:?}");
        assert!(stats.repaired >= 20, "without parity 39 % of chunks were lost: {stats:?}");
        assert!(stats.doubles > 0);
        assert!(kept.iter().all(|(index, chunk)| *chunk == content(*index)));
    }
    assert_eq!(outcome.stats.barred, 0, "doubles make no report impossible");
}

#[tokio::test(start_paused = true)]
async fn test_session_a_member_that_boasts_is_barred_and_still_hears() {
    let outcome = World::new(40).run(&[CLEAN; 4], 2).await;
    assert_eq!((outcome.end, outcome.stats.barred), (SessionEnd::Done, 1));
    assert!(outcome.members.iter().all(|(_, _, kept)| kept.len() == 40));
}

#[tokio::test(start_paused = true)]
async fn test_session_a_switch_that_forwards_nothing_is_noticed_within_a_second() {
    let deaf = Faults { deaf_after: Some(0), ..CLEAN };
    let outcome = World::new(1_000).run(&[deaf, deaf, CLEAN], 1).await;
    assert_eq!(outcome.end, SessionEnd::Deaf);
    assert!(outcome.took <= JOIN_WINDOW + EPOCH * (DEAF_EPOCHS_MAX + 3), "{:?}", outcome.took);
    assert_eq!(outcome.members[0].0, Finish::Silent);
}

#[tokio::test(start_paused = true)]
async fn test_session_a_switch_that_forgets_the_group_is_noticed() {
    let forgotten = Faults { deaf_after: Some(2_000), ..CLEAN };
    let outcome = World::new(2_000).run(&[forgotten; 3], 1).await;
    assert_eq!(outcome.end, SessionEnd::Deaf);
    for (finish, stats, _) in &outcome.members {
        assert_eq!((*finish, stats.packets), (Finish::Silent, 2_000));
    }
}

#[tokio::test(start_paused = true)]
async fn test_session_one_slow_member_of_ten_slows_nobody() {
    let mut ways = [CLEAN; 10];
    ways[3].loss = 0.2;
    let outcome = World::new(400).run(&ways, 1).await;
    assert_eq!((outcome.end, outcome.stats.cuts), (SessionEnd::Done, 0));
    let whole = outcome.members.iter().filter(|(_, stats, _)| stats.whole == 400).count();
    assert_eq!(whole, 9);
}

#[tokio::test(start_paused = true)]
async fn test_session_gives_way_to_reads_and_goes_on_after_them() {
    let world = World::new(100);
    let reads_wait = world.reads_wait.clone();
    tokio::spawn(async move {
        tokio::time::sleep(JOIN_WINDOW + EPOCH * 3).await;
        reads_wait.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(20)).await;
        reads_wait.store(false, Ordering::Relaxed);
    });
    let outcome = world.run(&[CLEAN; 3], 1).await;
    assert_eq!(outcome.end, SessionEnd::Done);
    assert!(outcome.took > Duration::from_secs(22), "{:?}", outcome.took);
    assert!(outcome.members.iter().all(|(_, _, kept)| kept.len() == 100));
}
