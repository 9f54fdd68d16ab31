//! The messages of the NBD protocol: numbers, decoders of what a client sends, encoders of answers.
//!
//! Nothing here does I/O. Every length is checked before anything is reserved for it. The
//! specification is `doc/proto.md` of the NBD project, with its `EXTENDED_HEADERS` extension; all
//! integers are big-endian.

pub mod constants;
mod errno;
mod option;
mod option_reply;
mod reader;
mod reply;
mod request;
mod validation;

pub use errno::Errno;
pub use option::{
    GoRequest, MetaContextRequest, NAME_LEN_MAX, OPTION_DATA_MAX, OPTION_HEADER_LEN, OptionFault,
    OptionHeader, QUERIES_MAX,
};
pub use option_reply::OptionReply;
pub use reply::{Extent, Head, ReplyShape, ReplyTo};
pub use request::{
    COMPACT_REQUEST_LEN, EXTENDED_REQUEST_LEN, HeaderStyle, RequestFault, RequestHeader,
    StatusFilter,
};
pub(crate) use validation::check_status_range;
pub use validation::{Command, ExportRules, Refusal};
