//! Negotiated options of one client.

use super::meta_context::{Context, Contexts};
use crate::protocol::constants::{
    INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_NAME, OPT_EXTENDED_HEADERS, OPT_GO, OPT_INFO, OPT_LIST,
    OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_STRUCTURED_REPLY, REP_ERR_EXT_HEADER_REQD,
    REP_ERR_INVALID, REP_ERR_POLICY, REP_ERR_TOO_BIG, REP_ERR_UNKNOWN, REP_ERR_UNSUP,
};
use crate::protocol::{GoRequest, MetaContextRequest, OptionFault, OptionReply, ReplyShape};
use crate::server::Shared;

/// Consequence of an option.
pub(super) enum Step {
    /// Answer; more options may come.
    Stay(OptionReply),
    /// Answer with these bytes and begin transmission.
    Begin(Vec<u8>),
}

/// Options agreed so far.
pub(super) struct Negotiation {
    pub(super) shape: ReplyShape,
    pub(super) contexts: Contexts,
}

impl Default for Negotiation {
    fn default() -> Negotiation {
        Negotiation { shape: ReplyShape::Simple, contexts: Contexts::default() }
    }
}

impl Negotiation {
    /// Answers every option but those that change the stream.
    pub(super) fn answer(&mut self, code: u32, data: &[u8], shared: &Shared) -> Step {
        let reply = OptionReply::new(code);
        let outcome = match code {
            OPT_LIST => list(reply, data, shared),
            OPT_GO | OPT_INFO => return self.go(code, reply, data, shared),
            OPT_STRUCTURED_REPLY | OPT_EXTENDED_HEADERS => self.set_shape(code, reply, data),
            OPT_LIST_META_CONTEXT => self.list_contexts(reply, data, shared),
            OPT_SET_META_CONTEXT => self.set_contexts(reply, data, shared),
            _ => Ok(reply.error(REP_ERR_UNSUP, "unknown option")),
        };
        Step::Stay(outcome.unwrap_or_else(|fault| refusal(code, &fault)))
    }

    fn go(&self, code: u32, reply: OptionReply, data: &[u8], shared: &Shared) -> Step {
        let request = match GoRequest::decode(data) {
            Ok(request) => request,
            Err(fault) => return Step::Stay(refusal(code, &fault)),
        };
        if !shared.is_called(request.name.as_bytes()) {
            return Step::Stay(reply.error(REP_ERR_UNKNOWN, "no such export"));
        }
        let export = &shared.export;
        let flags = export.flags(self.shape, self.contexts.any());
        let mut reply = reply.export(export.device().size_bytes(), flags);
        if request.infos.contains(&INFO_NAME) {
            // A client that had to know the token is told the name that it knows.
            let is_secret = shared.config.token.is_some();
            reply = reply.name(if is_secret { &request.name } else { export.name() });
        }
        if request.infos.contains(&INFO_DESCRIPTION) && !export.description().is_empty() {
            reply = reply.description(export.description());
        }
        if request.infos.contains(&INFO_BLOCK_SIZE) {
            let (minimum, preferred, maximum) = export.block_sizes();
            reply = reply.block_sizes(minimum, preferred, maximum);
        }
        let reply = reply.ack();
        if code == OPT_GO { Step::Begin(reply.as_bytes().to_vec()) } else { Step::Stay(reply) }
    }

    fn set_shape(
        &mut self,
        code: u32,
        reply: OptionReply,
        data: &[u8],
    ) -> Result<OptionReply, OptionFault> {
        without_data(data)?;
        let shape = match code {
            OPT_EXTENDED_HEADERS => ReplyShape::Extended,
            _ => ReplyShape::Structured,
        };
        if self.shape == shape {
            return Err(OptionFault::Invalid("agreed already"));
        }
        if self.shape == ReplyShape::Extended {
            return Ok(reply.error(REP_ERR_EXT_HEADER_REQD, "extended headers are agreed"));
        }
        self.shape = shape;
        // The contexts of before were selected for other answers.
        self.contexts = Contexts::default();
        Ok(reply.ack())
    }

    fn list_contexts(
        &self,
        reply: OptionReply,
        data: &[u8],
        shared: &Shared,
    ) -> Result<OptionReply, OptionFault> {
        let request = self.context_request(data)?;
        if !shared.is_called(request.name.as_bytes()) {
            return Ok(reply.error(REP_ERR_UNKNOWN, "no such export"));
        }
        let is_listed = |context: &Context| {
            request.queries.is_empty()
                || request.queries.iter().any(|query| context.is_listed_by(query))
        };
        let listed = Context::ALL.into_iter().filter(is_listed);
        Ok(listed.fold(reply, |reply, context| reply.meta_context(0, context.name())).ack())
    }

    fn set_contexts(
        &mut self,
        reply: OptionReply,
        data: &[u8],
        shared: &Shared,
    ) -> Result<OptionReply, OptionFault> {
        // What was selected before is gone, also when this fails.
        self.contexts = Contexts::default();
        let request = self.context_request(data)?;
        if !shared.is_called(request.name.as_bytes()) {
            return Ok(reply.error(REP_ERR_UNKNOWN, "no such export"));
        }
        self.contexts = Contexts::select(&request.queries);
        let reply = self
            .contexts
            .iter()
            .fold(reply, |reply, context| reply.meta_context(context.id(), context.name()));
        Ok(reply.ack())
    }

    fn context_request(&self, data: &[u8]) -> Result<MetaContextRequest, OptionFault> {
        if self.shape == ReplyShape::Simple {
            return Err(OptionFault::Invalid("structured replies must be agreed first"));
        }
        MetaContextRequest::decode(data)
    }
}

fn list(reply: OptionReply, data: &[u8], shared: &Shared) -> Result<OptionReply, OptionFault> {
    without_data(data)?;
    if shared.config.token.is_some() {
        return Ok(reply.error(REP_ERR_POLICY, "exports are not listed"));
    }
    let export = &shared.export;
    Ok(reply.server(export.name(), export.description()).ack())
}

fn without_data(data: &[u8]) -> Result<(), OptionFault> {
    if data.is_empty() { Ok(()) } else { Err(OptionFault::Invalid("the option takes no data")) }
}

fn refusal(code: u32, fault: &OptionFault) -> OptionReply {
    let kind = match fault {
        OptionFault::Invalid(_) => REP_ERR_INVALID,
        OptionFault::TooBig(_) => REP_ERR_TOO_BIG,
    };
    OptionReply::new(code).error(kind, &fault.to_string())
}
