//! One session at its sender: which packet goes out next, and when.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;

use super::draw::drawn_share;
use super::judge::{Judge, ReportOutcome};
use super::pacer::Pacer;
use super::rate_law::RateLaw;
use super::state::{SenderState, SessionEnd};
use crate::ShardLayout;
use crate::limits::{
    DEAF_EPOCHS_MAX, END_PACKETS, EPOCH, INTERLEAVED_BYTES_MAX, INTERLEAVED_CHUNKS, MEMBERS_MIN,
};
use crate::wire::{Content, Packet, PacketHeader, SessionKey, SessionNews};

/// Content and setting of a session.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Name of the session, drawn at random.
    pub session: u64,
    /// Its key, of this session only.
    pub key: SessionKey,
    /// Division of its chunks.
    pub layout: ShardLayout,
    /// Bytes per second of the sender's link.
    pub link_bytes_per_s: u64,
    /// Most bytes per second, whatever the link has.
    pub rate_max: u64,
    /// Indexes of the chunks on their disk, in the order in which they are sent.
    pub chunks: Vec<u64>,
    /// Time at which it begins; members join until then, and after.
    pub starts_at: Duration,
}

/// Next step of a sender.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this datagram to the group.
    Send(Vec<u8>),
    /// Nothing to do before that time, unless chunks, reports or a change of [`Sender::yield_to_reads`] come.
    Wait(Duration),
    /// It is over.
    Ended(SessionEnd),
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SenderStats {
    /// Packets sent, beacons too.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Chunks whose packets were all sent.
    pub chunks: u64,
    /// Chunks that could not be had.
    pub skipped: u64,
    /// Epochs judged.
    pub epochs: u64,
    /// Epochs judged in which fewer than half of the members heard the group.
    pub deaf_epochs: u64,
    /// Decreases of the rate.
    pub cuts: u64,
    /// Bytes per second of now.
    pub rate: f64,
    /// Share of packets lost in the epoch judged last, as the rate follows it.
    pub loss: f64,
    /// Members, barred ones left out.
    pub members: usize,
    /// Members barred for impossible reports.
    pub barred: usize,
}

/// A shard in the queue, and whether it is the last of its chunk.
type Queued = (u64, u16, Bytes, bool);

/// A session at its sender.
///
/// The caller asks [`Sender::step`] again and again, brings the chunks that [`Sender::wanted`] names by
/// [`Sender::load`], and passes on what members say.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    state: SenderState,
    end: Option<SessionEnd>,
    judge: Judge,
    law: RateLaw,
    pacer: Pacer,
    /// Chunks that were not asked for yet: a place in the configuration's.
    next_chunk: usize,
    is_loading: bool,
    queue: VecDeque<Queued>,
    number: u64,
    epoch: u32,
    epoch_ends: Duration,
    epoch_packets: u32,
    drawn: u16,
    deaf: u32,
    /// Packets sent that say that everything was sent.
    ends_sent: u8,
    stats: SenderStats,
}

impl Sender {
    /// Returns a session that waits for its members.
    pub fn new(config: SenderConfig) -> Sender {
        Sender {
            state: SenderState::Gathering,
            end: None,
            judge: Judge::new(config.session),
            law: RateLaw::new(config.link_bytes_per_s, config.layout.has_parity())
                .limited_to(config.rate_max),
            pacer: Pacer::default(),
            next_chunk: 0,
            is_loading: false,
            queue: VecDeque::new(),
            number: 0,
            epoch: 0,
            epoch_ends: Duration::ZERO,
            epoch_packets: 0,
            drawn: u16::MAX,
            deaf: 0,
            ends_sent: 0,
            stats: SenderStats::default(),
            config,
        }
    }

    /// Its state.
    pub fn state(&self) -> SenderState {
        self.state
    }

    /// Time at which it begins.
    pub fn starts_at(&self) -> Duration {
        self.config.starts_at
    }

    /// Sets the chunks to send, before it begins.
    pub fn set_chunks(&mut self, chunks: Vec<u64>) {
        if self.state == SenderState::Gathering {
            self.config.chunks = chunks;
        }
    }

    /// Counters of now.
    pub fn stats(&self) -> SenderStats {
        SenderStats {
            cuts: self.law.cuts(),
            rate: self.law.rate(),
            members: self.judge.members(),
            barred: self.judge.barred(),
            ..self.stats
        }
    }

    /// State as a member is told it.
    pub fn news(&self) -> (SessionNews, u32) {
        let news = match self.end {
            None => SessionNews::Going,
            Some(SessionEnd::Done) => SessionNews::Done,
            Some(_) => SessionNews::Ended,
        };
        (news, self.epoch)
    }

    /// Takes a host in; `None` where the session is over or full.
    pub fn join(&mut self, host: IpAddr) -> Option<u32> {
        if self.end.is_some() { None } else { self.judge.join(host) }
    }

    /// Forgets a member.
    pub fn leave(&mut self, host: IpAddr, member: u32) {
        self.judge.leave(host, member);
    }

    /// Takes a member's report: packets of an epoch, and the share of its link in use.
    pub fn report(
        &mut self,
        from: (IpAddr, u32),
        received: (u32, u32),
        link_used: Option<f64>,
    ) -> ReportOutcome {
        self.judge.report(from, received, link_used, self.epoch)
    }

    /// Begins or stops to give way to reads of this host.
    pub fn yield_to_reads(&mut self, reads_wait: bool) {
        match (self.state, reads_wait) {
            (SenderState::Sending, true) => self.become_state(SenderState::Yielding),
            (SenderState::Yielding, false) => self.become_state(SenderState::Sending),
            _ => {}
        }
    }

    /// Ends the session.
    pub fn stop(&mut self, end: SessionEnd) {
        if self.end.is_none() {
            self.end = Some(end);
            self.become_state(SenderState::Ended);
            self.queue.clear();
        }
    }

    fn become_state(&mut self, next: SenderState) {
        if self.state.may_become(next) {
            self.state = next;
        }
    }

    /// Returns the chunks to bring next by [`Sender::load`]; none while some are on their way, enough wait to be
    /// sent, or reads wait.
    pub fn wanted(&mut self) -> Vec<u64> {
        let batch = batch_len(&self.config.layout);
        if self.is_loading
            || self.state != SenderState::Sending
            || self.queue.len() >= batch * self.config.layout.total()
        {
            return Vec::new();
        }
        let left = &self.config.chunks[self.next_chunk..];
        let wanted = left[..batch.min(left.len())].to_vec();
        self.next_chunk += wanted.len();
        self.is_loading = !wanted.is_empty();
        wanted
    }

    /// Takes the chunks that [`Sender::wanted`] named; those that could not be had are left out, and fetched by
    /// the members.
    pub fn load(&mut self, asked: usize, chunks: Vec<(u64, Bytes)>) {
        self.is_loading = false;
        if self.end.is_some() {
            return;
        }
        let layout = &self.config.layout;
        let whole = chunks.into_iter().filter(|(_, chunk)| chunk.len() == layout.chunk_size());
        let split = whole.filter_map(|(index, chunk)| Some((index, layout.split(&chunk).ok()?)));
        let split: Vec<_> = split.collect();
        self.stats.skipped += asked.saturating_sub(split.len()) as u64;
        for place in 0..layout.total() {
            let is_last = place + 1 == layout.total();
            for (index, shards) in &split {
                // A chunk has 3,188 shards at most.
                self.queue.push_back((*index, place as u16, shards[place].clone(), is_last));
            }
        }
    }

    /// Returns the next step at `now`.
    pub fn step(&mut self, now: Duration) -> Step {
        if let Some(end) = self.end {
            return Step::Ended(end);
        }
        if self.state == SenderState::Gathering {
            if now < self.config.starts_at {
                return Step::Wait(self.config.starts_at);
            }
            self.begin(now);
        } else if now >= self.epoch_ends {
            self.end_epoch(now);
        }
        if let Some(end) = self.end {
            return Step::Ended(end);
        }
        self.next_packet(now)
    }

    fn begin(&mut self, now: Duration) {
        if self.judge.members() < MEMBERS_MIN {
            return self.stop(SessionEnd::Deserted);
        }
        self.become_state(SenderState::Sending);
        self.begin_epoch(now);
    }

    fn begin_epoch(&mut self, now: Duration) {
        self.epoch_ends = now + EPOCH;
        self.epoch_packets = 0;
        self.drawn = drawn_share(self.judge.members());
    }

    fn end_epoch(&mut self, now: Duration) {
        self.judge.end_epoch(self.epoch, self.epoch_packets, self.drawn);
        let Some(next) = self.epoch.checked_add(1) else { return self.stop(SessionEnd::KeyUsedUp) };
        self.epoch = next;
        if self.judge.members() == 0 {
            return self.stop(SessionEnd::Deserted);
        }
        if let Some(verdict) = self.judge.judge(self.epoch) {
            self.stats.epochs += 1;
            self.stats.loss = verdict.loss;
            self.stats.deaf_epochs += u64::from(!verdict.is_heard);
            self.deaf = if verdict.is_heard { 0 } else { self.deaf + 1 };
            if self.deaf >= DEAF_EPOCHS_MAX {
                return self.stop(SessionEnd::Deaf);
            }
            if let Some(end) = self.law.judge(&verdict, self.epoch) {
                return self.stop(end);
            }
        }
        self.begin_epoch(now);
    }

    fn next_packet(&mut self, now: Duration) -> Step {
        if self.epoch_packets == 0 {
            return self.send(Content::Beacon, now);
        }
        if self.state == SenderState::Yielding {
            return Step::Wait(self.epoch_ends);
        }
        let Some((chunk, shard, bytes, is_last)) = self.queue.front() else {
            return self.wait_for_chunks(now);
        };
        let due = self.pacer.due(self.law.rate());
        if now < due {
            return Step::Wait(due.min(self.epoch_ends));
        }
        let content = Content::Shard { chunk: *chunk, shard: *shard, bytes: bytes.clone() };
        self.stats.chunks += u64::from(*is_last);
        self.queue.pop_front();
        self.send(content, now)
    }

    fn wait_for_chunks(&mut self, now: Duration) -> Step {
        if self.is_loading || self.next_chunk < self.config.chunks.len() {
            return Step::Wait(self.epoch_ends);
        }
        if self.ends_sent < END_PACKETS {
            self.ends_sent += 1;
            return self.send(Content::End, now);
        }
        self.stop(SessionEnd::Done);
        Step::Ended(SessionEnd::Done)
    }

    fn send(&mut self, content: Content, now: Duration) -> Step {
        let header = PacketHeader {
            drawn: self.drawn,
            epoch: self.epoch,
            session: self.config.session,
            number: self.number,
        };
        let Ok(datagram) = (Packet { header, content }).seal(&self.config.key) else {
            self.stop(SessionEnd::KeyUsedUp);
            return Step::Ended(SessionEnd::KeyUsedUp);
        };
        self.number += 1;
        self.epoch_packets += 1;
        self.stats.packets += 1;
        self.stats.bytes += datagram.len() as u64;
        self.pacer.sent(datagram.len(), self.law.rate(), now);
        Step::Send(datagram)
    }
}

/// Chunks that are loaded and sent together.
fn batch_len(layout: &ShardLayout) -> usize {
    (INTERLEAVED_BYTES_MAX / layout.chunk_size()).clamp(1, INTERLEAVED_CHUNKS)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use acstor_types::ChunkSize;

    use super::*;
    use crate::limits::PACKETS_PER_KEY_MAX;

    const CHUNK: usize = 65_536;

    fn host(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    fn key() -> SessionKey {
        SessionKey::new([1; 16], [2; 12]).unwrap()
    }

    fn sender(chunks: u64, members: u32) -> Sender {
        let mut sender = Sender::new(SenderConfig {
            session: 9,
            key: key(),
            layout: ShardLayout::new(ChunkSize::new(CHUNK as u32).unwrap(), true),
            link_bytes_per_s: 125_000_000,
            rate_max: u64::MAX,
            chunks: (0..chunks).collect(),
            starts_at: Duration::from_secs(2),
        });
        (0..members).for_each(|number| assert_eq!(sender.join(host(number)), Some(number)));
        sender
    }

    /// Runs the sender to its end, or for `time`; each member reports each epoch, as `hears` says.
    fn run(sender: &mut Sender, time: Duration, hears: impl Fn(u32, u32) -> f64) -> Vec<Packet> {
        run_yielding(sender, time, hears, |_| false)
    }

    /// Runs the sender like [`run`]; reads wait in the epochs that `reads_wait` says.
    fn run_yielding(
        sender: &mut Sender,
        time: Duration,
        hears: impl Fn(u32, u32) -> f64,
        reads_wait: impl Fn(u32) -> bool,
    ) -> Vec<Packet> {
        let until = sender.starts_at() + time;
        let (mut now, mut sent) = (sender.starts_at(), Vec::new());
        let mut counts = vec![0_u32];
        while now < until {
            sender.yield_to_reads(reads_wait(sender.epoch));
            let wanted = sender.wanted();
            if !wanted.is_empty() {
                let chunks = wanted.iter().map(|i| (*i, Bytes::from(vec![*i as u8; CHUNK])));
                sender.load(wanted.len(), chunks.collect());
            }
            match sender.step(now) {
                Step::Send(mut datagram) => {
                    let packet = Packet::open(&mut datagram, 9, &key()).unwrap();
                    let epoch = packet.header.epoch as usize;
                    if epoch == counts.len() {
                        for member in 0..3 {
                            let last = epoch as u32 - 1;
                            let heard = f64::from(counts[epoch - 1]) * hears(last, member);
                            let received = (last, heard.round() as u32);
                            sender.report((host(member), member), received, None);
                        }
                        counts.push(0);
                    }
                    counts[epoch] += 1;
                    sent.push(packet);
                }
                Step::Wait(at) => {
                    assert!(at > now, "a wait that is over is a busy loop");
                    now = at;
                }
                Step::Ended(_) => break,
            }
        }
        sent
    }

    #[test]
    fn test_step_too_few_members_end_it_before_it_begins() {
        let mut sender = sender(4, 2);
        assert_eq!(sender.step(Duration::ZERO), Step::Wait(Duration::from_secs(2)));
        let end = sender.step(Duration::from_secs(2));
        assert_eq!(end, Step::Ended(SessionEnd::Deserted));
        assert_eq!(sender.join(host(7)), None);
        assert_eq!(sender.stats().packets, 0);
    }

    #[test]
    fn test_step_everything_is_sent_once_and_interleaved() {
        let mut sender = sender(20, 3);
        let sent = run(&mut sender, Duration::from_secs(60), |_, _| 1.0);
        assert_eq!(sender.step(Duration::from_secs(60)), Step::Ended(SessionEnd::Done));
        let mut places = std::collections::HashSet::new();
        let mut numbers = sent.iter().map(|packet| packet.header.number);
        assert!(numbers.by_ref().zip(0..).all(|(number, expected)| number == expected));
        let shards = sent.iter().filter_map(|packet| match &packet.content {
            Content::Shard { chunk, shard, .. } => Some((*chunk, *shard)),
            Content::Beacon | Content::End => None,
        });
        let shards: Vec<_> = shards.collect();
        assert!(shards.iter().all(|place| places.insert(*place)), "nothing twice");
        assert_eq!(shards.len(), 20 * 50);
        assert_eq!(shards[..9].iter().map(|(_, shard)| shard).sum::<u16>(), 1, "eight in turn");
        assert_eq!((sender.stats().chunks, sender.stats().skipped), (20, 0));
        assert_eq!(sender.news().0, SessionNews::Done);
    }

    #[test]
    fn test_step_three_epochs_that_nobody_hears_end_it() {
        let mut sender = sender(10_000, 3);
        run(&mut sender, Duration::from_secs(60), |_, _| 0.0);
        assert_eq!(sender.step(Duration::from_secs(60)), Step::Ended(SessionEnd::Deaf));
        // Three epochs, and those that were under way when they were judged.
        assert!(sender.news().1 <= 5, "{:?}", sender.news());
        assert_eq!(sender.news().0, SessionNews::Ended);
    }

    #[test]
    fn test_step_a_switch_that_forgets_the_group_is_noticed_later() {
        let mut sender = sender(100_000, 3);
        run(&mut sender, Duration::from_secs(60), |epoch, _| if epoch < 50 { 1.0 } else { 0.0 });
        assert_eq!(sender.step(Duration::from_secs(60)), Step::Ended(SessionEnd::Deaf));
        assert!((50..=56).contains(&sender.news().1), "{:?}", sender.news());
    }

    #[test]
    fn test_step_gives_way_to_reads_with_a_beacon_an_epoch() {
        let mut sender = sender(10_000, 3);
        let reads_wait = |epoch| (10..20).contains(&epoch);
        let sent = run_yielding(&mut sender, Duration::from_secs(3), |_, _| 1.0, reads_wait);
        let of_epoch = |epoch| sent.iter().filter(move |packet| packet.header.epoch == epoch);
        for epoch in 10..20 {
            let beacons = of_epoch(epoch).filter(|packet| packet.content == Content::Beacon);
            // What was due at the turn of the epoch is on its way.
            assert!(of_epoch(epoch).count() <= 2 && beacons.count() == 1, "{epoch}");
        }
        assert!(of_epoch(9).count() > 50 && of_epoch(21).count() > 50);
        assert_eq!(sender.state(), SenderState::Sending);
        sender.yield_to_reads(true);
        assert!(sender.wanted().is_empty());
    }

    #[test]
    fn test_step_a_key_is_never_used_up() {
        let mut sender = sender(8, 3);
        assert!(matches!(sender.step(Duration::from_secs(2)), Step::Send(_)));
        sender.number = PACKETS_PER_KEY_MAX - 1;
        let wanted = sender.wanted();
        sender.load(8, wanted.iter().map(|i| (*i, Bytes::from(vec![0; CHUNK]))).collect());
        let (mut now, mut sent) = (Duration::from_secs(2), 0);
        let end = loop {
            match sender.step(now) {
                Step::Send(_) => sent += 1,
                Step::Wait(at) => now = at,
                Step::Ended(end) => break end,
            }
        };
        assert_eq!((end, sent), (SessionEnd::KeyUsedUp, 1));
    }

    #[test]
    fn test_load_chunks_that_cannot_be_had_are_left_out() {
        let mut sender = sender(8, 3);
        assert!(matches!(sender.step(Duration::from_secs(2)), Step::Send(_)));
        let wanted = sender.wanted();
        assert_eq!(wanted.len(), 8);
        assert!(sender.wanted().is_empty(), "some are on their way");
        let chunks = vec![(0, Bytes::from(vec![0; CHUNK])), (1, Bytes::from_static(b"short"))];
        sender.load(8, chunks);
        assert_eq!(sender.stats().skipped, 7);
        assert_eq!(sender.queue.len(), 50);
    }
}
