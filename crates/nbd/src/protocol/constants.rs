//! The numbers of the protocol that this server uses.

/// First word of a server: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of a newstyle server and first of every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of an answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of an extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// First word of an extended reply chunk.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flag: options are answered.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag: no 124 zero bytes after `OPT_EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// Client flag: knows that options are answered.
pub const CLIENT_FIXED_NEWSTYLE: u32 = 1 << 0;
/// Client flag: wants no 124 zero bytes after `OPT_EXPORT_NAME`.
pub const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// Transmission flag: always set.
pub const FLAG_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: writes are refused.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// Transmission flag: `CMD_FLUSH`.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: `CMD_FLAG_FUA`.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// Transmission flag: `CMD_TRIM`.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: `CMD_WRITE_ZEROES` and `CMD_FLAG_NO_HOLE`.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: `CMD_FLAG_DF`.
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// Transmission flag: a flush covers what was acknowledged on every connection.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: `CMD_CACHE`.
pub const FLAG_SEND_CACHE: u16 = 1 << 10;
/// Transmission flag: `CMD_FLAG_FAST_ZERO`.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;
/// Transmission flag: `CMD_BLOCK_STATUS` may name the contexts it wants.
pub const FLAG_BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;

/// Choose an export and begin transmission; cannot be refused but by closing.
pub const OPT_EXPORT_NAME: u32 = 1;
/// End the negotiation.
pub const OPT_ABORT: u32 = 2;
/// List the exports.
pub const OPT_LIST: u32 = 3;
/// Begin TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Ask about an export.
pub const OPT_INFO: u32 = 6;
/// Ask about an export and begin transmission.
pub const OPT_GO: u32 = 7;
/// Use structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// List the metadata contexts.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Select metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Use extended headers in both directions.
pub const OPT_EXTENDED_HEADERS: u32 = 11;

/// The option is accepted.
pub const REP_ACK: u32 = 1;
/// An export.
pub const REP_SERVER: u32 = 2;
/// A piece of information about an export.
pub const REP_INFO: u32 = 3;
/// A metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// The option is unknown.
pub const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
/// The option is not allowed here.
pub const REP_ERR_POLICY: u32 = (1 << 31) + 2;
/// The option's data is wrong.
pub const REP_ERR_INVALID: u32 = (1 << 31) + 3;
/// TLS must come first.
pub const REP_ERR_TLS_REQD: u32 = (1 << 31) + 5;
/// No such export.
pub const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
/// The option's data or its answer is too large.
pub const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;
/// Structured replies cannot follow extended headers.
pub const REP_ERR_EXT_HEADER_REQD: u32 = (1 << 31) + 10;

/// Size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Canonical name.
pub const INFO_NAME: u16 = 1;
/// Description for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Size constraints.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Read.
pub const CMD_READ: u16 = 0;
/// Write.
pub const CMD_WRITE: u16 = 1;
/// Disconnect.
pub const CMD_DISC: u16 = 2;
/// Make acknowledged writes durable.
pub const CMD_FLUSH: u16 = 3;
/// Discard.
pub const CMD_TRIM: u16 = 4;
/// Bring near.
pub const CMD_CACHE: u16 = 5;
/// Write zeroes.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Metadata of ranges.
pub const CMD_BLOCK_STATUS: u16 = 7;
/// Change the size (`RESIZE` extension).
pub const CMD_RESIZE: u16 = 8;

/// Durable before the answer.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// `CMD_WRITE_ZEROES`: leave no hole.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// `CMD_READ`: one content chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// `CMD_BLOCK_STATUS`: one extent per context.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// `CMD_WRITE_ZEROES`: only if faster than writing.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;
/// Extended headers: the length is that of a payload.
pub const CMD_FLAG_PAYLOAD_LEN: u16 = 1 << 5;

/// Last chunk of a reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;
/// Chunk without content.
pub const REPLY_TYPE_NONE: u16 = 0;
/// Chunk with bytes.
pub const REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// Chunk that stands for zeroes.
pub const REPLY_TYPE_OFFSET_HOLE: u16 = 2;
/// Chunk with 32-bit extents.
pub const REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// Chunk with 64-bit extents.
pub const REPLY_TYPE_BLOCK_STATUS_EXT: u16 = 6;
/// Chunk with an error.
pub const REPLY_TYPE_ERROR: u16 = (1 << 15) + 1;

/// `base:allocation`: nothing is allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// `base:allocation`: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;
/// `acstor:dirty`: not on the origin yet.
pub const STATE_DIRTY: u32 = 1 << 0;
