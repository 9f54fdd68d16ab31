//! Frames of the exchange of hints: JOIN, JOINED, HINT, HINTED, with [`crate::FEATURE_HINTS`].
//!
//! A hint is the number of a chunk and that of a host: nothing can be written with it. Lengths are checked
//! with the header, before anything is reserved. Described in `reference/protocols/peer`; golden file
//! `tests/golden/peer-frames-v1-hints.bin`.

use std::pin::Pin;

use acstor_selection::exchange::bounds::FRAME_HINTS_MAX;
use acstor_selection::exchange::{Hint, HostKey};
use acstor_types::DiskId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::{FrameKind, HEADER_LEN, Header};
use crate::{PeerError, PeerStatus};

/// Bytes of a JOIN's body.
pub const JOIN_BODY_LEN: usize = 40;
/// Bytes of a JOINED's body before its hints.
pub const JOINED_PREFIX_LEN: usize = 24;
/// Bytes of a HINT's body before its hints.
pub const HINT_PREFIX_LEN: usize = 40;
/// Bytes of one hint in JOINED and HINT.
pub const HINT_ENTRY_LEN: usize = 12;
/// Bytes of a HINTED's body.
pub const HINTED_BODY_LEN: usize = 4;
/// Most bytes of a JOINED's body.
pub const JOINED_BODY_LEN_MAX: usize = JOINED_PREFIX_LEN + FRAME_HINTS_MAX * HINT_ENTRY_LEN;
const _: () = assert!(
    HINT_PREFIX_LEN + FRAME_HINTS_MAX * HINT_ENTRY_LEN <= crate::frame::UNKNOWN_BODY_LEN_MAX
);

/// The answer of a peer to a JOIN.
pub type JoinFuture = Pin<Box<dyn Future<Output = Result<Joined, PeerError>> + Send>>;

/// The answer of a peer to a HINT: how much of the order it knows.
pub type HintedFuture = Pin<Box<dyn Future<Output = Result<u32, PeerError>> + Send>>;

/// Part of the peer that a JOIN asks; the flags of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRole {
    /// It is the image's rendezvous host.
    Rendezvous,
    /// It is a member, and shall pass the order on.
    Member,
}

/// Subject of a HINT; the flags of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintRole {
    /// Chunks that the sender missed, for the rendezvous host.
    Misses,
    /// A part of the order, for who hangs on the sender.
    Order,
}

/// Request to take part in the exchange of an image, or to go on taking part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The image.
    pub disk_id: DiskId,
    /// Learning that the host takes part in; 0 where it does not yet.
    pub epoch: u64,
    /// The host that joins.
    pub host: HostKey,
    /// Hints of that learning that it knows.
    pub from: u32,
    /// Part of the peer that is asked.
    pub role: JoinRole,
}

/// The answer to a JOIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The learning.
    pub epoch: u64,
    /// The member on which the host hangs; `None`: on who answers.
    pub parent: Option<HostKey>,
    /// Place in the order of the first of the hints.
    pub first: u32,
    /// Hints in all.
    pub total: u32,
    /// Hints from that place on, at most [`FRAME_HINTS_MAX`].
    pub hints: Vec<Hint>,
}

/// Hints about one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints {
    /// The image.
    pub disk_id: DiskId,
    /// The learning.
    pub epoch: u64,
    /// The host that sends them.
    pub sender: HostKey,
    /// Place in the order of the first of them; 0 for misses.
    pub first: u32,
    /// Their subject.
    pub role: HintRole,
    /// The hints, 1 to [`FRAME_HINTS_MAX`].
    pub hints: Vec<Hint>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPrefix {
    disk_id: [u8; 16],
    epoch: U64,
    host: U64,
    first: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawJoined {
    epoch: U64,
    parent: U64,
    first: U32,
    total: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHint {
    chunk: U32,
    holder: U64,
}

/// Returns whether a body of `len` bytes is a prefix and from `least` to the most hints.
pub(crate) fn is_hints_len(len: usize, prefix: usize, least: usize) -> bool {
    len.checked_sub(prefix).is_some_and(|hints| {
        hints.is_multiple_of(HINT_ENTRY_LEN)
            && (least..=FRAME_HINTS_MAX).contains(&(hints / HINT_ENTRY_LEN))
    })
}

fn encode_hints(frame: &mut Vec<u8>, hints: &[Hint]) {
    for hint in hints {
        let holder = U64::new(hint.holder.0);
        frame.extend_from_slice(RawHint { chunk: U32::new(hint.chunk), holder }.as_bytes());
    }
}

fn decode_hints(body: &[u8]) -> Vec<Hint> {
    let (entries, _rest) = body.as_chunks::<HINT_ENTRY_LEN>();
    let hint = |entry: &[u8; HINT_ENTRY_LEN]| {
        let raw: RawHint = zerocopy::transmute!(*entry);
        Hint { chunk: raw.chunk.get(), holder: HostKey(raw.holder.get()) }
    };
    entries.iter().map(hint).collect()
}

/// Returns the frame of a kind, its flag and its body but for the hints.
fn frame(kind: FrameKind, flag: bool, request_id: u64, prefix: &[u8], hints: &[Hint]) -> Vec<u8> {
    let body_len = prefix.len() + hints.len() * HINT_ENTRY_LEN;
    let header = Header::new(kind, body_len as u32, request_id);
    let mut bytes = Vec::with_capacity(HEADER_LEN + body_len);
    bytes.extend_from_slice(&Header { flags: u8::from(flag), ..header }.encode());
    bytes.extend_from_slice(prefix);
    encode_hints(&mut bytes, hints);
    bytes
}

impl Join {
    /// Writes the JOIN frame, header included.
    pub fn encode(&self, request_id: u64) -> Vec<u8> {
        let prefix = RawPrefix {
            disk_id: *self.disk_id.as_bytes(),
            epoch: U64::new(self.epoch),
            host: U64::new(self.host.0),
            first: U32::new(self.from),
            reserved: U32::ZERO,
        };
        let is_of_member = self.role == JoinRole::Member;
        frame(FrameKind::Join, is_of_member, request_id, prefix.as_bytes(), &[])
    }

    /// Reads a JOIN's body; `flags` are those of its header.
    ///
    /// # Errors
    /// [`PeerStatus::Invalid`] where reserved bytes are set, or no host is named.
    pub fn decode(body: &[u8], flags: u8) -> Result<Join, PeerStatus> {
        let (raw, _) = RawPrefix::ref_from_prefix(body).map_err(|_| PeerStatus::Invalid)?;
        if raw.reserved.get() != 0 || raw.host.get() == 0 {
            return Err(PeerStatus::Invalid);
        }
        Ok(Join {
            disk_id: DiskId::from_bytes(raw.disk_id),
            epoch: raw.epoch.get(),
            host: HostKey(raw.host.get()),
            from: raw.first.get(),
            role: if flags == 0 { JoinRole::Rendezvous } else { JoinRole::Member },
        })
    }
}

impl Joined {
    /// Writes the JOINED's body.
    pub fn encode_body(&self) -> Vec<u8> {
        let prefix = RawJoined {
            epoch: U64::new(self.epoch),
            parent: U64::new(self.parent.map_or(0, |parent| parent.0)),
            first: U32::new(self.first),
            total: U32::new(self.total),
        };
        let mut body = prefix.as_bytes().to_vec();
        encode_hints(&mut body, &self.hints);
        body
    }

    /// Reads a JOINED's body; `None` where it is too short for one.
    pub fn decode(body: &[u8]) -> Option<Joined> {
        let (raw, hints) = RawJoined::ref_from_prefix(body).ok()?;
        Some(Joined {
            epoch: raw.epoch.get(),
            parent: Some(HostKey(raw.parent.get())).filter(|parent| parent.0 != 0),
            first: raw.first.get(),
            total: raw.total.get(),
            hints: decode_hints(hints),
        })
    }
}

impl Hints {
    /// Writes the HINT frame, header included; `None` for no hint or more than [`FRAME_HINTS_MAX`].
    pub fn encode(&self, request_id: u64) -> Option<Vec<u8>> {
        if self.hints.is_empty() || self.hints.len() > FRAME_HINTS_MAX {
            return None;
        }
        let prefix = RawPrefix {
            disk_id: *self.disk_id.as_bytes(),
            epoch: U64::new(self.epoch),
            host: U64::new(self.sender.0),
            first: U32::new(self.first),
            reserved: U32::ZERO,
        };
        let is_order = self.role == HintRole::Order;
        Some(frame(FrameKind::Hint, is_order, request_id, prefix.as_bytes(), &self.hints))
    }

    /// Reads a HINT's body; `flags` are those of its header.
    ///
    /// # Errors
    /// [`PeerStatus::Invalid`] where reserved bytes are set, or no host is named.
    pub fn decode(body: &[u8], flags: u8) -> Result<Hints, PeerStatus> {
        let (raw, hints) = RawPrefix::ref_from_prefix(body).map_err(|_| PeerStatus::Invalid)?;
        if raw.reserved.get() != 0 || raw.host.get() == 0 {
            return Err(PeerStatus::Invalid);
        }
        Ok(Hints {
            disk_id: DiskId::from_bytes(raw.disk_id),
            epoch: raw.epoch.get(),
            sender: HostKey(raw.host.get()),
            first: raw.first.get(),
            role: if flags == 0 { HintRole::Misses } else { HintRole::Order },
            hints: decode_hints(hints),
        })
    }
}

/// Returns the body of a HINTED: the hints of the order that the receiver knows.
pub fn encode_hinted(known: u32) -> [u8; HINTED_BODY_LEN] {
    known.to_le_bytes()
}

/// Reads a HINTED's body; `None` where it is too short for one.
pub fn decode_hinted(body: &[u8]) -> Option<u32> {
    body.first_chunk().copied().map(u32::from_le_bytes)
}
