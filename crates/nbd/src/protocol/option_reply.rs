//! Answers to options.

use super::constants::{
    INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, OPTION_REPLY_MAGIC, REP_ACK,
    REP_INFO, REP_META_CONTEXT, REP_SERVER,
};

/// The answers to one option, in one buffer.
#[derive(Clone, Debug)]
pub struct OptionReply {
    option: u32,
    bytes: Vec<u8>,
}

impl OptionReply {
    /// An empty answer to `option`.
    pub fn new(option: u32) -> OptionReply {
        OptionReply { option, bytes: Vec::with_capacity(128) }
    }

    fn message(mut self, kind: u32, parts: &[&[u8]]) -> OptionReply {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        self.bytes.extend_from_slice(&self.option.to_be_bytes());
        self.bytes.extend_from_slice(&kind.to_be_bytes());
        self.bytes.extend_from_slice(&(len as u32).to_be_bytes());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self
    }

    /// Accepts the option; the last message.
    pub fn ack(self) -> OptionReply {
        self.message(REP_ACK, &[])
    }

    /// Refuses the option with a reason for people; the last message.
    pub fn error(self, kind: u32, message: &str) -> OptionReply {
        self.message(kind, &[message.as_bytes()])
    }

    /// Names an export.
    pub fn server(self, name: &str, description: &str) -> OptionReply {
        let len = (name.len() as u32).to_be_bytes();
        self.message(REP_SERVER, &[&len, name.as_bytes(), description.as_bytes()])
    }

    /// Gives the size, bytes, and the transmission flags.
    pub fn export(self, size_bytes: u64, flags: u16) -> OptionReply {
        let kind = INFO_EXPORT.to_be_bytes();
        self.message(REP_INFO, &[&kind, &size_bytes.to_be_bytes(), &flags.to_be_bytes()])
    }

    /// Gives the canonical name.
    pub fn name(self, name: &str) -> OptionReply {
        self.message(REP_INFO, &[&INFO_NAME.to_be_bytes(), name.as_bytes()])
    }

    /// Gives the description.
    pub fn description(self, text: &str) -> OptionReply {
        self.message(REP_INFO, &[&INFO_DESCRIPTION.to_be_bytes(), text.as_bytes()])
    }

    /// Gives the minimum and preferred block and the longest payload, bytes.
    pub fn block_sizes(self, minimum: u32, preferred: u32, maximum: u32) -> OptionReply {
        let kind = INFO_BLOCK_SIZE.to_be_bytes();
        let sizes = [minimum, preferred, maximum].map(u32::to_be_bytes);
        self.message(REP_INFO, &[&kind, &sizes[0], &sizes[1], &sizes[2]])
    }

    /// Gives a metadata context and its id.
    pub fn meta_context(self, id: u32, name: &str) -> OptionReply {
        self.message(REP_META_CONTEXT, &[&id.to_be_bytes(), name.as_bytes()])
    }

    /// The messages, ready to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}
