//! Frames: a 16-byte header and a body, all integers little-endian.
//!
//! ```text
//!   0        4      5       6        8                16
//!   +--------+------+-------+--------+----------------+------------------
//!   | length | kind | flags | status | request id     | body: length bytes
//!   | u32    | u8   | u8    | u16    | u64            |
//!   +--------+------+-------+--------+----------------+------------------
//! ```
//!
//! Pure: no I/O, no allocation. A decoder says how many bytes a frame has before anything is
//! reserved for them, and refuses lengths that its kind cannot have. The layout of HELLO is
//! frozen for all versions; later versions may append fields to its body, which older ones skip.
//! Described in `reference/protocols/peer`; golden files `tests/golden/peer-frames-v1*.bin`.

use acstor_types::{ChunkSize, Digest, DiskId, RequestClass, limits};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::exchange::{
    HINT_PREFIX_LEN, HINTED_BODY_LEN, JOIN_BODY_LEN, JOINED_PREFIX_LEN, is_hints_len,
};
use crate::{ChunkRequest, PeerStatus, VersionRange};

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 16;
/// Bytes of a GET's body.
pub const GET_BODY_LEN: usize = 64;
/// Fewest bytes of a HELLO's body: the fields of version 1.
pub const HELLO_BODY_LEN_MIN: usize = 32;
/// Most bytes of a HELLO's body, whatever its version.
pub const HELLO_BODY_LEN_MAX: usize = 256;
/// Most bytes of the body of a request that this build does not know and answers `Unsupported`.
pub const UNKNOWN_BODY_LEN_MAX: usize = 4096;
/// Most digests of one HOLDS: with them its body is one that a server without it still skips.
pub const HOLDS_MAX: usize = 120;
/// Bytes of the body of a GROUP and of a GROUPED: a message of a multicast preload, filled up with zeros.
pub const GROUP_BODY_LEN: usize = 72;
/// Bytes of a COMPRESSED's body before the LZ4 block: the chunk's size.
pub const COMPRESSED_PREFIX_LEN: usize = 4;
/// Flag of a GET, with [`crate::FEATURE_COMPRESSED`]: the answer may be COMPRESSED.
pub const FLAG_COMPRESSED_WELCOME: u8 = 1;
/// Flags of a GET, with [`crate::FEATURE_CLASSES`]: the code of its class.
pub const FLAGS_CLASS: u8 = 0b110;
/// Place of the class among the flags of a GET.
const CLASS_SHIFT: u32 = FLAGS_CLASS.trailing_zeros();
/// Flags of a CLASS that cancels its request; else they are a class's code.
pub const CLASS_NONE: u8 = 3;
/// First bytes of a HELLO's body.
pub const HELLO_MAGIC: [u8; 8] = *b"ACSTPEER";

/// Load of a server, with [`crate::FEATURE_LOAD`] told with each answer but a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToldLoad {
    /// Milliseconds that a demand would wait for its turn to be sent; the greatest number is that or more.
    pub wait_ms: u16,
    /// Binary logarithm of the bytes per second that the server's link has to spare, rounded down; 0 where
    /// it does not know, at most [`FREE_RATE_LOG2_MAX`].
    pub free_rate_log2: u8,
}

/// Greatest logarithm of a rate: that of 2^63 bytes per second.
pub const FREE_RATE_LOG2_MAX: u8 = 63;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// First frame in each direction: versions, features, limits.
    Hello,
    /// Client to server: are you there?
    Ping,
    /// Server to client: the answer to PING.
    Pong,
    /// Client to server: send this chunk.
    Get,
    /// Server to client: the chunk.
    Data,
    /// Server to client: the request's refusal.
    Status,
    /// Server to client: ask nothing more here, close when everything is answered.
    Goodbye,
    /// Client to server, with [`crate::FEATURE_HOLDS`]: which of these chunks do you keep?
    Holds,
    /// Server to client: the answer to HOLDS.
    Held,
    /// Server to client, to a GET with [`FLAG_COMPRESSED_WELCOME`]: the chunk, compressed.
    Compressed,
    /// Client to server, with [`crate::FEATURE_CLASSES`]: the class of that request is this one now, or
    /// nobody waits for it any more.
    Class,
    /// Client to server, with [`crate::FEATURE_HINTS`]: have me take part in the exchange of that image.
    Join,
    /// Server to client: the answer to JOIN.
    Joined,
    /// Client to server, with [`crate::FEATURE_HINTS`]: chunks that a host missed.
    Hint,
    /// Server to client: the answer to HINT.
    Hinted,
    /// Client to server, with [`crate::FEATURE_GROUPS`]: a message of a multicast preload.
    Group,
    /// Server to client: the answer to GROUP.
    Grouped,
    /// A kind of a newer version.
    Unknown(u8),
}

impl FrameKind {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            FrameKind::Hello => 1,
            FrameKind::Ping => 2,
            FrameKind::Pong => 3,
            FrameKind::Get => 4,
            FrameKind::Data => 5,
            FrameKind::Status => 6,
            FrameKind::Goodbye => 7,
            FrameKind::Holds => 8,
            FrameKind::Held => 9,
            FrameKind::Compressed => 10,
            FrameKind::Class => 11,
            FrameKind::Join => 12,
            FrameKind::Joined => 13,
            FrameKind::Hint => 14,
            FrameKind::Hinted => 15,
            FrameKind::Group => 20,
            FrameKind::Grouped => 21,
            FrameKind::Unknown(code) => code,
        }
    }

    const fn from_code(code: u8) -> FrameKind {
        match code {
            1 => FrameKind::Hello,
            2 => FrameKind::Ping,
            3 => FrameKind::Pong,
            4 => FrameKind::Get,
            5 => FrameKind::Data,
            6 => FrameKind::Status,
            7 => FrameKind::Goodbye,
            8 => FrameKind::Holds,
            9 => FrameKind::Held,
            10 => FrameKind::Compressed,
            11 => FrameKind::Class,
            12 => FrameKind::Join,
            13 => FrameKind::Joined,
            14 => FrameKind::Hint,
            15 => FrameKind::Hinted,
            20 => FrameKind::Group,
            21 => FrameKind::Grouped,
            code => FrameKind::Unknown(code),
        }
    }

    /// Returns whether a frame of this kind may have `flags`; those of a newer kind are its own affair.
    const fn may_have(self, flags: u8) -> bool {
        match self {
            FrameKind::Get => {
                flags & !(FLAG_COMPRESSED_WELCOME | FLAGS_CLASS) == 0
                    && RequestClass::from_code((flags & FLAGS_CLASS) >> CLASS_SHIFT).is_some()
            }
            FrameKind::Class => flags <= CLASS_NONE,
            FrameKind::Join | FrameKind::Hint => flags <= 1,
            FrameKind::Unknown(_) => true,
            _ if self.tells_load() => flags <= FREE_RATE_LOG2_MAX,
            _ => flags == 0,
        }
    }

    /// Returns whether a frame of this kind may tell the server's load.
    const fn tells_load(self) -> bool {
        matches!(self, FrameKind::Data | FrameKind::Compressed | FrameKind::Held | FrameKind::Pong)
    }
}

/// Defect of bytes that are no frame; the connection they came on is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FrameError {
    /// A length that the frame's kind cannot have.
    #[error("a frame of a length that its kind cannot have")]
    Length,
    /// Flags or a status where there is none, or no status where there must be one.
    #[error("a frame with reserved bits set")]
    Reserved,
    /// A kind that this side never receives, or not at this point.
    #[error("a frame of a kind that does not belong here")]
    Kind,
    /// A HELLO without the magic: another protocol.
    #[error("the other side does not speak the peer protocol")]
    Magic,
    /// A HELLO whose version range or limits are impossible.
    #[error("a HELLO with an impossible version range or limit")]
    Hello,
}

impl FrameError {
    /// Every error.
    pub const ALL: [FrameError; 5] = [
        FrameError::Length,
        FrameError::Reserved,
        FrameError::Kind,
        FrameError::Magic,
        FrameError::Hello,
    ];

    /// The label in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            FrameError::Length => "malformed_length",
            FrameError::Reserved => "malformed_reserved",
            FrameError::Kind => "malformed_kind",
            FrameError::Magic => "malformed_magic",
            FrameError::Hello => "malformed_hello",
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    body_len: U32,
    kind: u8,
    flags: u8,
    status: U16,
    request_id: U64,
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Bytes of the body; within the limits of the kind.
    pub body_len: u32,
    /// Flags that the frame's kind allows: of a GET [`FLAG_COMPRESSED_WELCOME`] and [`FLAGS_CLASS`], of a
    /// CLASS a class's code or [`CLASS_NONE`], of JOIN and HINT their role, else none.
    pub flags: u8,
    /// The refusal of a STATUS frame.
    pub status: Option<PeerStatus>,
    /// Load that an answer tells; of other kinds none.
    pub load: ToldLoad,
    /// Chosen by the client, repeated in the answer.
    pub request_id: u64,
}

impl Header {
    /// Returns the header of a frame.
    pub const fn new(kind: FrameKind, body_len: u32, request_id: u64) -> Header {
        let load = ToldLoad { wait_ms: 0, free_rate_log2: 0 };
        Header { kind, body_len, flags: 0, status: None, load, request_id }
    }

    /// Returns the header of a refusal.
    pub const fn refusal(status: PeerStatus, request_id: u64) -> Header {
        let header = Header::new(FrameKind::Status, 0, request_id);
        Header { status: Some(status), ..header }
    }

    /// Returns the frame that gives a request another class; `None` cancels it.
    pub fn class(class: Option<RequestClass>, request_id: u64) -> Header {
        let flags = class.map_or(CLASS_NONE, RequestClass::code);
        Header { flags, ..Header::new(FrameKind::Class, 0, request_id) }
    }

    /// Returns the class that a CLASS gives its request; `None` cancels it.
    pub const fn new_class(&self) -> Option<RequestClass> {
        RequestClass::from_code(self.flags)
    }

    /// Writes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let raw = RawHeader {
            body_len: U32::new(self.body_len),
            kind: self.kind.code(),
            flags: self.flags | self.load.free_rate_log2,
            status: U16::new(self.status.map_or(self.load.wait_ms, PeerStatus::code)),
            request_id: U64::new(self.request_id),
        };
        zerocopy::transmute!(raw)
    }

    /// Reads a header and checks its length against its kind.
    ///
    /// # Errors
    /// [`FrameError::Length`] or [`FrameError::Reserved`].
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, FrameError> {
        let raw: RawHeader = zerocopy::transmute!(*bytes);
        let kind = FrameKind::from_code(raw.kind);
        let body_len = raw.body_len.get();
        let length = body_len as usize;
        let possible = match kind {
            FrameKind::Hello => (HELLO_BODY_LEN_MIN..=HELLO_BODY_LEN_MAX).contains(&length),
            FrameKind::Get => length == GET_BODY_LEN,
            FrameKind::Data => ChunkSize::new(body_len).is_some(),
            FrameKind::Holds => {
                length.is_multiple_of(DIGEST_LEN)
                    && (1..=HOLDS_MAX).contains(&(length / DIGEST_LEN))
            }
            FrameKind::Held => (1..=held_len(HOLDS_MAX)).contains(&length),
            FrameKind::Group | FrameKind::Grouped => length == GROUP_BODY_LEN,
            FrameKind::Compressed => (COMPRESSED_PREFIX_LEN + 1
                ..=compressed_len_max(limits::CHUNK_SIZE_MAX as usize))
                .contains(&length),
            FrameKind::Ping
            | FrameKind::Pong
            | FrameKind::Status
            | FrameKind::Goodbye
            | FrameKind::Class => length == 0,
            FrameKind::Join => length == JOIN_BODY_LEN,
            FrameKind::Joined => is_hints_len(length, JOINED_PREFIX_LEN, 0),
            FrameKind::Hint => is_hints_len(length, HINT_PREFIX_LEN, 1),
            FrameKind::Hinted => length == HINTED_BODY_LEN,
            FrameKind::Unknown(_) => length <= UNKNOWN_BODY_LEN_MAX,
        };
        if !possible {
            return Err(FrameError::Length);
        }
        let load = match kind.tells_load() {
            true => ToldLoad { wait_ms: raw.status.get(), free_rate_log2: raw.flags },
            false => ToldLoad::default(),
        };
        let status = match kind.tells_load() {
            true => None,
            false => PeerStatus::from_code(raw.status.get()),
        };
        // A kind of a newer version may use flags and status as it likes.
        let is_unknown = matches!(kind, FrameKind::Unknown(_));
        let has_reserved = !kind.may_have(raw.flags);
        if !is_unknown && (has_reserved || status.is_some() != (kind == FrameKind::Status)) {
            return Err(FrameError::Reserved);
        }
        Ok(Header {
            kind,
            body_len,
            flags: if is_unknown || kind.tells_load() { 0 } else { raw.flags },
            status,
            load,
            request_id: raw.request_id.get(),
        })
    }
}

/// First frame of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Versions that the sender speaks.
    pub versions: VersionRange,
    /// Largest chunk that the sender sends or takes, bytes.
    pub chunk_size_max: u32,
    /// Features that the sender knows, one bit each.
    pub features: u64,
    /// Server: requests in flight that it allows on the connection. Client: most it will have.
    pub requests_in_flight_max: u32,
    /// Server: it closes connections idle for this long, milliseconds; 0 when never. Client: 0.
    pub idle_timeout_ms: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHello {
    magic: [u8; 8],
    version_min: U16,
    version_max: U16,
    chunk_size_max: U32,
    features: U64,
    requests_in_flight_max: U32,
    idle_timeout_ms: U32,
}

impl Hello {
    /// Writes the HELLO frame, header included.
    pub fn encode(&self) -> [u8; HEADER_LEN + HELLO_BODY_LEN_MIN] {
        let raw = RawHello {
            magic: HELLO_MAGIC,
            version_min: U16::new(self.versions.min),
            version_max: U16::new(self.versions.max),
            chunk_size_max: U32::new(self.chunk_size_max),
            features: U64::new(self.features),
            requests_in_flight_max: U32::new(self.requests_in_flight_max),
            idle_timeout_ms: U32::new(self.idle_timeout_ms),
        };
        let body: [u8; HELLO_BODY_LEN_MIN] = zerocopy::transmute!(raw);
        joined(&Header::new(FrameKind::Hello, HELLO_BODY_LEN_MIN as u32, 0), &body)
    }

    /// Reads a HELLO's body; bytes after the fields of version 1 are skipped.
    ///
    /// # Errors
    /// [`FrameError::Length`], [`FrameError::Magic`] or [`FrameError::Hello`].
    pub fn decode(body: &[u8]) -> Result<Hello, FrameError> {
        let (raw, _appended) = RawHello::ref_from_prefix(body).map_err(|_| FrameError::Length)?;
        if raw.magic != HELLO_MAGIC {
            return Err(FrameError::Magic);
        }
        let hello = Hello {
            versions: VersionRange { min: raw.version_min.get(), max: raw.version_max.get() },
            chunk_size_max: raw.chunk_size_max.get(),
            features: raw.features.get(),
            requests_in_flight_max: raw.requests_in_flight_max.get(),
            idle_timeout_ms: raw.idle_timeout_ms.get(),
        };
        let possible = hello.versions.min >= 1
            && hello.versions.min <= hello.versions.max
            && hello.chunk_size_max >= limits::CHUNK_SIZE_MIN
            && hello.requests_in_flight_max >= 1;
        if possible { Ok(hello) } else { Err(FrameError::Hello) }
    }
}

/// A GET's body as it came: the request may still be one that no chunk can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get {
    /// The chunk's name.
    pub digest: Digest,
    /// A disk that holds it.
    pub disk_id: DiskId,
    /// Index of the chunk on that disk.
    pub chunk_index: u64,
    /// Bytes of the chunk; any number.
    pub chunk_size: u32,
    /// Time that the requester still waits, milliseconds.
    pub deadline_ms: u32,
    /// True if the answer may be COMPRESSED; a flag of the header.
    pub accepts_compressed: bool,
    /// The request's class; flags of the header.
    pub class: RequestClass,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawGet {
    digest: [u8; 32],
    disk_id: [u8; 16],
    chunk_index: U64,
    chunk_size: U32,
    deadline_ms: U32,
}

impl Get {
    /// Returns the GET for a request that a guest waits for.
    pub fn new(request: &ChunkRequest, deadline_ms: u32) -> Get {
        Get {
            digest: request.digest,
            disk_id: request.disk_id,
            chunk_index: request.chunk_index,
            chunk_size: request.chunk_size.as_u32(),
            deadline_ms,
            accepts_compressed: request.accepts_compressed,
            class: RequestClass::Demand,
        }
    }

    /// Writes the GET frame, header included.
    pub fn encode(&self, request_id: u64) -> [u8; HEADER_LEN + GET_BODY_LEN] {
        let raw = RawGet {
            digest: *self.digest.as_bytes(),
            disk_id: *self.disk_id.as_bytes(),
            chunk_index: U64::new(self.chunk_index),
            chunk_size: U32::new(self.chunk_size),
            deadline_ms: U32::new(self.deadline_ms),
        };
        let body: [u8; GET_BODY_LEN] = zerocopy::transmute!(raw);
        let welcome = if self.accepts_compressed { FLAG_COMPRESSED_WELCOME } else { 0 };
        let flags = welcome | self.class.code() << CLASS_SHIFT;
        let header = Header::new(FrameKind::Get, GET_BODY_LEN as u32, request_id);
        joined(&Header { flags, ..header }, &body)
    }

    /// Reads a GET's body; `flags` are those of its header.
    pub fn decode(body: &[u8; GET_BODY_LEN], flags: u8) -> Get {
        let raw: RawGet = zerocopy::transmute!(*body);
        Get {
            digest: Digest::from_bytes(raw.digest),
            disk_id: DiskId::from_bytes(raw.disk_id),
            chunk_index: raw.chunk_index.get(),
            chunk_size: raw.chunk_size.get(),
            deadline_ms: raw.deadline_ms.get(),
            accepts_compressed: flags & FLAG_COMPRESSED_WELCOME != 0,
            // A header with another code is refused before.
            class: RequestClass::from_code((flags & FLAGS_CLASS) >> CLASS_SHIFT)
                .unwrap_or(RequestClass::Demand),
        }
    }

    /// Returns the request, or the status with which it is refused.
    ///
    /// # Errors
    /// [`PeerStatus::Invalid`] when no chunk has that size.
    pub fn request(&self) -> Result<ChunkRequest, PeerStatus> {
        let chunk_size = ChunkSize::new(self.chunk_size).ok_or(PeerStatus::Invalid)?;
        Ok(ChunkRequest {
            digest: self.digest,
            disk_id: self.disk_id,
            chunk_index: self.chunk_index,
            chunk_size,
            accepts_compressed: self.accepts_compressed,
        })
    }
}

/// Most bytes of the body of a COMPRESSED for a chunk: at least an eighth less than the chunk.
pub const fn compressed_len_max(chunk_size: usize) -> usize {
    chunk_size - chunk_size / 8
}

/// Bytes of a digest in a HOLDS.
const DIGEST_LEN: usize = 32;
const _: () = assert!(HOLDS_MAX * DIGEST_LEN <= UNKNOWN_BODY_LEN_MAX);

/// Bytes of the HELD that answers a HOLDS of `count` digests: a bit each.
pub const fn held_len(count: usize) -> usize {
    count.div_ceil(8)
}

/// Writes a HOLDS frame, header included; `None` for no digest or more than [`HOLDS_MAX`].
pub fn encode_holds(digests: &[Digest], request_id: u64) -> Option<Vec<u8>> {
    if digests.is_empty() || digests.len() > HOLDS_MAX {
        return None;
    }
    let body_len = digests.len() * DIGEST_LEN;
    let mut frame = Vec::with_capacity(HEADER_LEN + body_len);
    frame.extend(Header::new(FrameKind::Holds, body_len as u32, request_id).encode());
    for digest in digests {
        frame.extend(digest.as_bytes());
    }
    Some(frame)
}

/// Reads a HOLDS's body.
pub fn decode_holds(body: &[u8]) -> Vec<Digest> {
    let (digests, _rest) = body.as_chunks::<DIGEST_LEN>();
    digests.iter().map(|digest| Digest::from_bytes(*digest)).collect()
}

/// Returns the body of a HELD: bit `i % 8` (least significant first) of byte `i / 8` says whether the
/// `i`-th chunk is kept.
pub fn encode_held(held: &[bool]) -> Vec<u8> {
    let mut body = vec![0; held_len(held.len())];
    for (position, _) in held.iter().enumerate().filter(|(_, is_held)| **is_held) {
        body[position / 8] |= 1 << (position % 8);
    }
    body
}

/// Writes a GROUP frame, header included.
pub fn encode_group(
    message: &[u8; GROUP_BODY_LEN],
    request_id: u64,
) -> [u8; HEADER_LEN + GROUP_BODY_LEN] {
    joined(&Header::new(FrameKind::Group, GROUP_BODY_LEN as u32, request_id), message)
}

/// Reads a HELD's body for a HOLDS of `count` digests; a missing byte holds nothing.
pub fn decode_held(body: &[u8], count: usize) -> Vec<bool> {
    let bit = |position: usize| {
        body.get(position / 8).is_some_and(|byte| byte >> (position % 8) & 1 == 1)
    };
    (0..count).map(bit).collect()
}

/// A complete frame in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// Its body, `header.body_len` bytes.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the frame at the start of `bytes`, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`] as soon as the header is wrong, whether the body is there or not.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<Frame<'a>>, FrameError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = Header::decode(head)?;
        Ok(rest.get(..header.body_len as usize).map(|body| Frame { header, body }))
    }

    /// Bytes of the frame, header included.
    pub fn wire_len(&self) -> usize {
        HEADER_LEN + self.body.len()
    }
}

fn joined<const B: usize, const N: usize>(header: &Header, body: &[u8; B]) -> [u8; N] {
    const { assert!(HEADER_LEN + B == N, "a frame is its header and its body") };
    let mut frame = [0; N];
    frame[..HEADER_LEN].copy_from_slice(&header.encode());
    frame[HEADER_LEN..].copy_from_slice(body);
    frame
}
