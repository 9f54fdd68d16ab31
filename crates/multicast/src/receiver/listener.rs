//! One session at a receiver: datagrams in, verified chunks out.

use std::collections::HashMap;
use std::time::Duration;

use acstor_types::Digest;
use bytes::Bytes;

use super::assembly::{Assembly, Shard};
use super::epoch_counts::{DueReport, EpochCounts};
use super::seen_numbers::SeenNumbers;
use crate::ShardLayout;
use crate::limits::{ASSEMBLY_BYTES_MAX, RECEIVER_SILENCE_MAX};
use crate::wire::{Content, Packet, PacketError, SessionKey};

/// Session to listen to, and the chunks to hear of it.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// The session.
    pub session: u64,
    /// The receiver's number in it.
    pub member: u32,
    /// The session's key.
    pub key: SessionKey,
    /// Division of its chunks.
    pub layout: ShardLayout,
    /// Chunks that are missing on this host, with their digests by this host's own manifest.
    pub missing: HashMap<u64, Digest>,
    /// Time at which silence begins to count: that of the first packet.
    pub starts_at: Duration,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Different packets that came.
    pub packets: u64,
    /// Packets that came twice, or too late to tell.
    pub doubles: u64,
    /// Packets sent that did not come, as far as the greatest number seen tells.
    pub lost: u64,
    /// Datagrams that were no packets of the session, and packets of impossible content.
    pub refused: u64,
    /// Chunks verified.
    pub whole: u64,
    /// Those of them for which parity was needed.
    pub repaired: u64,
    /// Chunks that did not have their digest: somebody of the group sends nonsense.
    pub corrupt: u64,
    /// Chunks given up because others needed the memory.
    pub given_up: u64,
}

/// Outcome of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing to do.
    Nothing,
    /// It is refused.
    Refused(PacketError),
    /// The sender has sent everything.
    End,
    /// A chunk that was missing, verified.
    Chunk {
        /// Its index on the disk.
        index: u64,
        /// Its digest.
        digest: Digest,
        /// Its content.
        bytes: Bytes,
    },
}

/// A session at a receiver.
///
/// A chunk is looked for by the digests that the receiver has itself: whatever a member of the group sends, the
/// worst that comes of it is a chunk that is fetched as if there were no multicast.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    seen: SeenNumbers,
    counts: EpochCounts,
    assembly: Assembly,
    /// One above the greatest packet number.
    numbers_end: u64,
    heard_at: Duration,
    stats: ReceiverStats,
}

impl Receiver {
    /// Returns a receiver that has heard nothing.
    pub fn new(config: ReceiverConfig) -> Receiver {
        Receiver {
            seen: SeenNumbers::default(),
            counts: EpochCounts::new(config.session, config.member),
            assembly: Assembly::new(config.layout, ASSEMBLY_BYTES_MAX),
            numbers_end: 0,
            heard_at: config.starts_at,
            stats: ReceiverStats::default(),
            config,
        }
    }

    /// Counters of now.
    pub fn stats(&self) -> ReceiverStats {
        let lost = self.numbers_end.saturating_sub(self.stats.packets);
        ReceiverStats { lost, given_up: self.assembly.given_up(), ..self.stats }
    }

    /// Chunks that are still missing.
    pub fn missing(&self) -> usize {
        self.config.missing.len()
    }

    /// Returns the time at which the silence of the group has lasted too long.
    pub fn silent_at(&self) -> Duration {
        self.heard_at + RECEIVER_SILENCE_MAX
    }

    /// Returns the time at which the next report is due.
    pub fn report_due_at(&self) -> Option<Duration> {
        self.counts.due_at()
    }

    /// Takes the report that is due at `now`.
    pub fn take_report(&mut self, now: Duration) -> Option<DueReport> {
        self.counts.take_due(now)
    }

    /// Takes a datagram that came at `now`; it is overwritten.
    pub fn receive(&mut self, datagram: &mut [u8], now: Duration) -> Arrival {
        let packet = match Packet::open(datagram, self.config.session, &self.config.key) {
            Ok(packet) => packet,
            Err(error) => {
                self.stats.refused += 1;
                return Arrival::Refused(error);
            }
        };
        if !self.seen.insert(packet.header.number) {
            self.stats.doubles += 1;
            return Arrival::Nothing;
        }
        self.heard_at = now;
        self.numbers_end = self.numbers_end.max(packet.header.number + 1);
        self.stats.packets += 1;
        self.counts.count(&packet.header, now);
        match packet.content {
            Content::Beacon => Arrival::Nothing,
            Content::End => Arrival::End,
            Content::Shard { chunk, shard, bytes } => self.take_shard(chunk, shard, bytes),
        }
    }

    fn take_shard(&mut self, chunk: u64, shard: u16, bytes: Bytes) -> Arrival {
        if usize::from(shard) >= self.config.layout.total() {
            self.stats.refused += 1;
            return Arrival::Refused(PacketError::Content);
        }
        let Some(digest) = self.config.missing.get(&chunk).copied() else {
            return Arrival::Nothing;
        };
        let Shard::Whole(bytes, by_parity) = self.assembly.insert(chunk, shard, bytes) else {
            return Arrival::Nothing;
        };
        // A second attempt would be by packets of the same members.
        self.config.missing.remove(&chunk);
        if !digest.matches(&bytes) {
            self.stats.corrupt += 1;
            return Arrival::Nothing;
        }
        self.stats.whole += 1;
        self.stats.repaired += u64::from(by_parity);
        Arrival::Chunk { index: chunk, digest, bytes }
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::ChunkSize;
    use proptest::prelude::*;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::wire::PacketHeader;

    const CHUNK: usize = 16_384;

    fn key() -> SessionKey {
        SessionKey::new([3; 16], [4; 12]).unwrap()
    }

    fn layout() -> ShardLayout {
        ShardLayout::new(ChunkSize::new(CHUNK as u32).unwrap(), true)
    }

    fn content(index: u64) -> Vec<u8> {
        (0..CHUNK).map(|i| (i as u64 * (index + 3) % 249) as u8).collect()
    }

    fn receiver(chunks: u64) -> Receiver {
        let missing = (0..chunks).map(|index| (index, Digest::of(&content(index)))).collect();
        Receiver::new(ReceiverConfig {
            session: 5,
            member: 0,
            key: key(),
            layout: layout(),
            missing,
            starts_at: Duration::ZERO,
        })
    }

    fn sealed(number: u64, chunk: u64, shard: u16, bytes: Bytes) -> Vec<u8> {
        let header = PacketHeader { drawn: u16::MAX, epoch: 0, session: 5, number };
        Packet { header, content: Content::Shard { chunk, shard, bytes } }.seal(&key()).unwrap()
    }

    /// All packets of some chunks, one chunk after the other.
    fn packets(chunks: u64) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for chunk in 0..chunks {
            for (shard, bytes) in (0_u16..).zip(layout().split(&content(chunk)).unwrap()) {
                sent.push(sealed(sent.len() as u64, chunk, shard, bytes));
            }
        }
        sent
    }

    fn receive(receiver: &mut Receiver, mut datagram: Vec<u8>) -> Arrival {
        receiver.receive(&mut datagram, Duration::ZERO)
    }

    #[test]
    fn test_receive_a_member_that_forges_spoils_no_chunk() {
        let mut receiver = receiver(1);
        let wrong = layout().split(&[9; CHUNK]).unwrap();
        assert_eq!(receive(&mut receiver, sealed(90, 0, 0, wrong[0].clone())), Arrival::Nothing);
        for datagram in packets(1) {
            assert_eq!(receive(&mut receiver, datagram), Arrival::Nothing);
        }
        let stats = receiver.stats();
        assert_eq!((stats.whole, stats.corrupt, receiver.missing()), (0, 1, 0));
    }

    #[test]
    fn test_receive_a_chunk_that_is_not_missing_takes_no_memory() {
        let mut receiver = receiver(1);
        for chunk in 1..10_000 {
            let datagram = sealed(chunk, chunk << 32, 0, vec![0; crate::limits::SHARD_LEN].into());
            assert_eq!(receive(&mut receiver, datagram), Arrival::Nothing);
        }
        assert!(receiver.assembly.is_empty());
        let datagram = sealed(20_000, 0, 999, vec![0; crate::limits::SHARD_LEN].into());
        let refused = Arrival::Refused(PacketError::Content);
        assert_eq!(receive(&mut receiver, datagram), refused);
    }

    #[test]
    fn test_receive_strangers_are_no_sign_of_life() {
        let mut receiver = receiver(1);
        let silent_at = receiver.silent_at();
        let mut datagram = packets(1).swap_remove(0);
        datagram[700] ^= 1;
        let late = Duration::from_secs(2);
        let arrival = receiver.receive(&mut datagram, late);
        assert_eq!(arrival, Arrival::Refused(PacketError::Forged));
        assert_eq!((receiver.silent_at(), receiver.stats().packets), (silent_at, 0));
        let mut datagram = packets(1).swap_remove(0);
        assert_eq!(receiver.receive(&mut datagram, late), Arrival::Nothing);
        assert_eq!(receiver.silent_at(), late + RECEIVER_SILENCE_MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn test_receive_loss_order_and_doubles_never_give_a_wrong_chunk(
            seed: u64, loss in 0.0_f64..0.3, doubles in 0.0_f64..0.5, span in 1_usize..200,
        ) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let sent = packets(12);
            let (total, mut on_the_wire) = (layout().total(), Vec::new());
            let mut arrived = [0; 12];
            for (number, datagram) in sent.iter().enumerate() {
                if rng.random_bool(loss) {
                    continue;
                }
                arrived[number / total] += 1;
                let copies = 1 + usize::from(rng.random_bool(doubles));
                on_the_wire.extend(std::iter::repeat_n(datagram.clone(), copies));
            }
            on_the_wire.chunks_mut(span).for_each(|part| part.shuffle(&mut rng));
            let (mut receiver, mut whole) = (receiver(12), 0);
            for mut datagram in on_the_wire {
                match receiver.receive(&mut datagram, Duration::ZERO) {
                    Arrival::Chunk { index, bytes, .. } => {
                        prop_assert_eq!(bytes, content(index));
                        whole += 1;
                    }
                    Arrival::Nothing | Arrival::End => {}
                    Arrival::Refused(error) => prop_assert!(false, "{error}"),
                }
            }
            let expected = arrived.iter().filter(|count| **count >= layout().data()).count();
            prop_assert_eq!(whole, expected, "as many as have enough packets");
            prop_assert_eq!(receiver.missing(), 12 - whole);
            let stats = receiver.stats();
            prop_assert_eq!(stats.packets, arrived.iter().sum::<usize>() as u64);
            prop_assert!(stats.packets + stats.lost <= sent.len() as u64);
        }
    }
}
