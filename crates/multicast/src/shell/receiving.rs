//! The loop of a receiver.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use acstor_types::Digest;
use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout};

use super::group_socket::Datagrams;
use crate::limits::REPORT_TIMEOUT;
use crate::receiver::{Arrival, DueReport, Receiver, ReceiverStats};
use crate::wire::{PACKET_LEN_MAX, SessionNews};

/// State of the session as the sender answered a report; `None` where it did not answer.
pub type ReportFuture = Pin<Box<dyn Future<Output = Option<SessionNews>> + Send>>;

/// A member of a session: the way of its reports, and the place of its chunks.
pub trait Membership: Send + Sync + 'static {
    /// Sends a report.
    fn report(&self, report: DueReport) -> ReportFuture;

    /// Takes a verified chunk, without waiting; one that cannot be kept now is fetched later.
    fn keep(&self, index: u64, digest: Digest, bytes: Bytes);
}

/// Reason why a receiver stopped listening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// Nothing is missing any more.
    Whole,
    /// The sender has sent everything.
    Sent,
    /// The sender has ended the session before.
    Ended,
    /// The group is not heard.
    Silent,
    /// The socket fails.
    Failed,
}

impl Finish {
    /// Every reason.
    pub const ALL: [Finish; 5] =
        [Finish::Whole, Finish::Sent, Finish::Ended, Finish::Silent, Finish::Failed];

    /// The label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Finish::Whole => "whole",
            Finish::Sent => "sent",
            Finish::Ended => "ended",
            Finish::Silent => "silent",
            Finish::Failed => "failed",
        }
    }
}

/// Listens to a session until nothing more is to be had of it; `observe` sees the counters now and then.
///
/// What is missing then is for the caller to fetch.
pub async fn receive<D: Datagrams, M: Membership>(
    mut receiver: Receiver,
    (group, zero): (D, Instant),
    member: M,
    observe: impl Fn(ReceiverStats) + Send,
) -> Finish {
    let mut buffer = vec![0; PACKET_LEN_MAX + 1];
    let mut reporting: Option<ReportFuture> = None;
    let finish = loop {
        if receiver.missing() == 0 {
            break Finish::Whole;
        }
        let silent_at = receiver.silent_at();
        let report_at = receiver.report_due_at().filter(|_| reporting.is_none());
        tokio::select! {
            len = group.receive(&mut buffer) => {
                let Ok(len) = len else { break Finish::Failed };
                match receiver.receive(&mut buffer[..len], zero.elapsed()) {
                    Arrival::Chunk { index, digest, bytes } => member.keep(index, digest, bytes),
                    Arrival::End => break Finish::Sent,
                    Arrival::Nothing | Arrival::Refused(_) => {}
                }
            }
            news = answered(&mut reporting) => {
                reporting = None;
                observe(receiver.stats());
                match news {
                    Some(SessionNews::Done) => break Finish::Sent,
                    Some(SessionNews::Ended) => break Finish::Ended,
                    Some(SessionNews::Going) | None => {}
                }
            }
            () = sleep_until(zero + report_at.unwrap_or(silent_at)), if report_at.is_some() => {
                let report = receiver.take_report(zero.elapsed().max(report_at.unwrap_or(Duration::ZERO)));
                reporting = report.map(|report| member.report(report));
            }
            () = sleep_until(zero + silent_at) => break Finish::Silent,
        }
    };
    observe(receiver.stats());
    finish
}

/// Waits for the answer to a report; for ever where none is on its way.
///
/// # Cancel safety
/// The report stays on its way when dropped.
async fn answered(reporting: &mut Option<ReportFuture>) -> Option<SessionNews> {
    match reporting {
        Some(answer) => timeout(REPORT_TIMEOUT, answer).await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}
