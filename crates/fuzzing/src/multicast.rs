//! Packets and messages of multicast, and a receiver that hears them, by members that forge too.

use std::collections::HashMap;
use std::time::Duration;

use acstor_multicast::ShardLayout;
use acstor_multicast::receiver::{Arrival, Receiver, ReceiverConfig};
use acstor_multicast::wire::{
    BEACON_LEN, Content, Message, PACKET_LEN_MAX, PREFIX_LEN, Packet, PacketHeader, SessionKey,
};
use acstor_types::{ChunkSize, Digest};
use bytes::Bytes;

/// The session of the golden file.
const SESSION: u64 = 0x0708;

fn key() -> SessionKey {
    SessionKey::new([7; 16], [9; 12]).expect("a key")
}

fn receiver() -> Receiver {
    let chunk_size = ChunkSize::new(4_096).expect("a chunk's size");
    let missing = (0..4_u64).map(|index| (index, Digest::of(&[index as u8; 4_096])));
    Receiver::new(ReceiverConfig {
        session: SESSION,
        member: 0,
        key: key(),
        layout: ShardLayout::new(chunk_size, true),
        missing: missing.collect::<HashMap<_, _>>(),
        starts_at: Duration::ZERO,
    })
}

fn use_message(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        let again = message.encode();
        assert_eq!(Message::decode(&again).expect("what was encoded").encode(), again);
    }
}

/// Has a receiver hear a datagram; a chunk that it takes has the digest that it wanted.
fn hear(receiver: &mut Receiver, datagram: &mut [u8], now: Duration) {
    if let Arrival::Chunk { index, digest, bytes } = receiver.receive(datagram, now) {
        assert!(digest.matches(&bytes) && index < 4);
    }
    let _ = receiver.take_report(now);
    let stats = receiver.stats();
    assert!(stats.whole + stats.corrupt + receiver.missing() as u64 == 4);
}

/// Packet of a member that puts any content into it.
fn forged(place: u64, bytes: &[u8]) -> Vec<u8> {
    let number = u64::from(*bytes.first().unwrap_or(&0)) << 8 | place;
    let header = PacketHeader { drawn: 900, epoch: place as u32 / 3, session: SESSION, number };
    let mut shard = bytes.to_vec();
    shard.resize(PACKET_LEN_MAX - BEACON_LEN - PREFIX_LEN, 0);
    let content = Content::Shard {
        chunk: u64::from(*bytes.get(1).unwrap_or(&0)) % 6,
        shard: u16::from(*bytes.get(2).unwrap_or(&0)) % 5,
        bytes: Bytes::from(shard),
    };
    Packet { header, content }.seal(&key()).expect("a small number")
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    use_message(bytes);
    let mut receiver = receiver();
    let mut rest = bytes;
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
        let (datagram, next) = after.split_at(len);
        use_message(datagram);
        hear(&mut receiver, &mut datagram.to_vec(), Duration::ZERO);
        rest = next;
    }
    for (place, part) in (0..).zip(bytes.chunks(64)) {
        hear(&mut receiver, &mut forged(place, part), Duration::from_millis(place * 40));
    }
}
