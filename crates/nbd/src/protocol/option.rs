//! Options: what a client sends before transmission.

use super::constants::OPTION_MAGIC;
use super::reader::Reader;

/// Bytes of an option's header.
pub const OPTION_HEADER_LEN: usize = 16;
/// Most bytes of an option's data that are looked at; longer data is skipped and refused.
pub const OPTION_DATA_MAX: u32 = 64 << 10;
/// Longest string of the protocol, bytes.
pub const NAME_LEN_MAX: usize = 4096;
/// Most queries of one option.
pub const QUERIES_MAX: u32 = 64;

/// Reason for which an option is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionFault {
    /// The data is not what the option wants.
    #[error("{0}")]
    Invalid(&'static str),
    /// The data is larger than this server takes.
    #[error("{0}")]
    TooBig(&'static str),
}

/// An option's header, without its magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Code of the option.
    pub code: u32,
    /// Bytes of data that follow.
    pub len: u32,
}

impl OptionHeader {
    /// Decodes a header; `None` when the magic is wrong: the client speaks something else.
    pub fn decode(bytes: &[u8; OPTION_HEADER_LEN]) -> Option<OptionHeader> {
        let mut reader = Reader(bytes);
        if reader.u64()? != OPTION_MAGIC {
            return None;
        }
        Some(OptionHeader { code: reader.u32()?, len: reader.u32()? })
    }
}

/// The data of `OPT_INFO` and `OPT_GO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoRequest {
    /// The export; empty for the default one.
    pub name: String,
    /// Information that the client asks for.
    pub infos: Vec<u16>,
}

impl GoRequest {
    /// Decodes the data of the option.
    ///
    /// # Errors
    /// [`OptionFault`] says what is wrong with it.
    pub fn decode(data: &[u8]) -> Result<GoRequest, OptionFault> {
        let mut reader = Reader(data);
        let name = string(&mut reader, "the name of the export is cut short")?;
        let count =
            reader.u16().ok_or(OptionFault::Invalid("no number of information requests"))?;
        if reader.len() != usize::from(count) * 2 {
            return Err(OptionFault::Invalid("the number of information requests is wrong"));
        }
        let infos = std::iter::from_fn(|| reader.u16()).collect();
        Ok(GoRequest { name, infos })
    }
}

/// The data of `OPT_LIST_META_CONTEXT` and `OPT_SET_META_CONTEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaContextRequest {
    /// The export; empty for the default one.
    pub name: String,
    /// Contexts that are asked for, each `namespace:leaf`.
    pub queries: Vec<String>,
}

impl MetaContextRequest {
    /// Decodes the data of the option.
    ///
    /// # Errors
    /// [`OptionFault`] says what is wrong with it.
    pub fn decode(data: &[u8]) -> Result<MetaContextRequest, OptionFault> {
        let mut reader = Reader(data);
        let name = string(&mut reader, "the name of the export is cut short")?;
        let count = reader.u32().ok_or(OptionFault::Invalid("no number of queries"))?;
        if count > QUERIES_MAX {
            return Err(OptionFault::TooBig("too many queries"));
        }
        let mut queries = Vec::new();
        for _ in 0..count {
            let query = string(&mut reader, "a query is cut short")?;
            if !query.contains(':') {
                return Err(OptionFault::Invalid("a query without a namespace"));
            }
            queries.push(query);
        }
        if reader.len() > 0 {
            return Err(OptionFault::Invalid("bytes behind the last query"));
        }
        Ok(MetaContextRequest { name, queries })
    }
}

fn string(reader: &mut Reader<'_>, cut_short: &'static str) -> Result<String, OptionFault> {
    let len = reader.u32().ok_or(OptionFault::Invalid(cut_short))?;
    let bytes = reader.take(len as usize).ok_or(OptionFault::Invalid(cut_short))?;
    text(bytes)
}

/// Returns the string of `bytes` if the protocol allows it.
pub(crate) fn text(bytes: &[u8]) -> Result<String, OptionFault> {
    if bytes.len() > NAME_LEN_MAX {
        return Err(OptionFault::TooBig("a string of over 4096 bytes"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(OptionFault::Invalid("a string that is no UTF-8 or holds NUL")),
    }
}
