//! The connections to one peer, by channel, and when another one is made.

use std::sync::Arc;
use std::time::Duration;

use acstor_runclock::RunInstant;
use acstor_selection::{BreakerRules, BreakerState, CircuitBreaker, Moment};

use super::channel::Channel;
use super::link::{Link, LinkStatus};
use crate::{ClientLimits, PeerError};

/// Fetches on the least busy connection of a channel from which another connection is worth its cost.
const LOAD_FOR_ANOTHER: usize = 4;
/// Pause before another connection is tried after one failed while others work.
const ANOTHER_PAUSE: Duration = Duration::from_secs(1);

/// The connections to one peer. The breaker is of the peer: whether it is there does not depend on the
/// channel.
pub(super) struct Pool {
    breaker: CircuitBreaker,
    channels: [Connections; Channel::COUNT],
    /// Last failure.
    cause: Option<PeerError>,
    is_closed: bool,
}

/// The connections of one channel.
#[derive(Default)]
struct Connections {
    links: Vec<Link>,
    is_connecting: bool,
    another_after: Option<RunInstant>,
}

/// Next step of a fetch.
pub(super) enum Look {
    /// It uses this connection; a further one is worth making where `connect`.
    Use { link: Link, connect: bool },
    /// It waits for the connection that is being made.
    Wait,
    /// It makes a connection, and waits for it.
    Connect,
    /// It fails: the peer is down, for so long.
    Down(Duration),
    /// It fails: the client ended.
    Closed,
}

pub(super) fn moment(now: RunInstant) -> Moment {
    Moment::from_nanos(now.nanos())
}

fn least_busy(links: &[Link]) -> Option<&Link> {
    links.iter().min_by_key(|link| link.status.load())
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool {
            breaker: CircuitBreaker::new(),
            channels: Default::default(),
            cause: None,
            is_closed: false,
        }
    }

    /// Says what a fetch of `channel` does; `waited` if it waited for a connection before.
    pub(super) fn look(
        &mut self,
        channel: Channel,
        limits: &ClientLimits,
        rules: &BreakerRules,
        (now, waited): (RunInstant, bool),
    ) -> Look {
        if self.is_closed {
            return Look::Closed;
        }
        if let Some(link) = self.link(channel, now) {
            let is_busy = link.status.load() >= LOAD_FOR_ANOTHER;
            return Look::Use { connect: is_busy && self.may_add(channel, limits, now), link };
        }
        if self.channels[channel.index()].is_connecting && self.breaker.is_closed() {
            return Look::Wait;
        }
        // Who waited for an attempt that failed gets its error rather than making the next one.
        let is_failed = waited && self.breaker.state() == BreakerState::Open;
        // An attempt always ends, so it needs no time as a trial, and its end no jitter here.
        let may_try =
            !is_failed && self.breaker.admit(rules, Duration::ZERO, moment(now), 0.0).is_granted();
        match self.breaker.state() {
            _ if may_try => Look::Connect,
            BreakerState::HalfOpen if waited => Look::Wait,
            _ => Look::Down(self.breaker.retry_in(moment(now))),
        }
    }

    /// Returns the least busy connection of a channel; one of the other while the peer takes no further
    /// connection.
    fn link(&self, channel: Channel, now: RunInstant) -> Option<Link> {
        let own = &self.channels[channel.index()];
        let found = least_busy(&own.links).or_else(|| {
            let has_failed = own.another_after.is_some_and(|after| now < after);
            let mut others = self.channels.iter().filter(|_| has_failed);
            others.find_map(|other| least_busy(&other.links))
        });
        found.cloned()
    }

    fn may_add(&self, channel: Channel, limits: &ClientLimits, now: RunInstant) -> bool {
        let own = &self.channels[channel.index()];
        !own.is_connecting
            && own.links.len() < channel.connections_max(limits)
            && own.another_after.is_none_or(|at| now >= at)
    }

    /// Notes that a connection is being made.
    pub(super) fn begin(&mut self, channel: Channel) {
        self.channels[channel.index()].is_connecting = true;
    }

    /// Notes that the connection being made is there; returns it unless the client ended meanwhile.
    pub(super) fn connected(&mut self, link: Link) -> Option<&Link> {
        if self.is_closed {
            return None;
        }
        // The failures are forgotten with an answer only: a peer that accepts and closes at once stays in
        // back-off.
        self.breaker.close();
        let own = &mut self.channels[link.status.channel().index()];
        own.links.push(link);
        own.links.last()
    }

    /// Notes that no connection is being made any more.
    pub(super) fn end(&mut self, channel: Channel) {
        self.channels[channel.index()].is_connecting = false;
    }

    /// Notes that a connection failed, or an attempt to make one; returns whether the peer is down by it,
    /// which it was not before.
    pub(super) fn failed(
        &mut self,
        channel: Channel,
        rules: &BreakerRules,
        now: RunInstant,
        error: PeerError,
    ) -> bool {
        if self.is_closed {
            return false;
        }
        if self.connections() > 0 {
            self.channels[channel.index()].another_after = Some(now + ANOTHER_PAUSE);
            return false;
        }
        let is_news = self.breaker.state() != BreakerState::Open;
        self.cause = Some(error);
        self.breaker.failed(rules, moment(now), rand::random());
        is_news
    }

    /// Last failure.
    pub(super) fn cause(&self) -> Option<&PeerError> {
        self.cause.as_ref()
    }

    /// Takes out a connection: it is given to no further fetch.
    pub(super) fn remove(&mut self, status: &Arc<LinkStatus>) {
        let own = &mut self.channels[status.channel().index()];
        own.links.retain(|link| !Arc::ptr_eq(&link.status, status));
    }

    /// Notes that the peer answers.
    pub(super) fn answered(&mut self) {
        self.breaker.forget_failures();
    }

    pub(super) fn breaker(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Connections open.
    pub(super) fn connections(&self) -> usize {
        self.channels.iter().map(|channel| channel.links.len()).sum()
    }

    /// Gives up all connections, and makes no further one.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.channels.iter_mut().for_each(|channel| channel.links.clear());
    }
}
