//! The origin of the read path, made of members.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_readpath::{OriginError, OriginRange, OriginSource, StoredObject};
use acstor_selection::TokenBucket;
use acstor_types::{Digest, PackId};
use bytes::BytesMut;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use crate::member::{Clock, Member};
use crate::member_metrics::Families;
use crate::order::{self, Candidate};
use crate::reading::{Judge, Reading};
use crate::search::Verdict;
use crate::wanted::Wanted;
use crate::{MembersError, MembersSettings};

/// Budget of calls that go to a second member because the first is slow: a share of all reads, so that
/// members that are slow together are not asked twice as much.
#[derive(Debug)]
pub(crate) struct HedgeBudget {
    bucket: Mutex<TokenBucket>,
    clock: Clock,
}

impl HedgeBudget {
    fn new(share_percent: u32, clock: Clock) -> HedgeBudget {
        let bucket = TokenBucket::for_hedges(share_percent);
        HedgeBudget { bucket: Mutex::new(bucket), clock }
    }

    /// Takes a token; `false`: there is none.
    pub(crate) fn try_take(&self, now: Instant) -> bool {
        self.bucket.lock().try_take(self.clock.moment(now))
    }
}

/// Members of an origin, as one source.
pub struct MembersSource {
    members: Vec<Arc<Member>>,
    deadline: Duration,
    clock: Clock,
    budget: HedgeBudget,
}

impl MembersSource {
    /// Starts the threads for the calls of each member; asks nobody yet, since a member that is gone
    /// must not keep a host from starting. The metrics are registered with `registry`.
    ///
    /// # Errors
    /// [`MembersError`].
    pub fn start(
        settings: MembersSettings,
        registry: &mut Registry,
    ) -> Result<MembersSource, MembersError> {
        settings.validate()?;
        let (families, clock) = (Families::register(registry), Clock::start());
        let MembersSettings { members, deadline, calls_max, hedge_share_percent } = settings;
        let start = |(position, one): (usize, crate::MemberSettings)| {
            let metrics = families.of(&one.name);
            Member::start(one, position, calls_max, metrics, clock)
        };
        let members = members.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let budget = HedgeBudget::new(hedge_share_percent, clock);
        Ok(MembersSource { members, deadline, clock, budget })
    }

    /// Takes over the generation that a member has to have from now on; it is looked at before the next
    /// read of the member.
    ///
    /// # Errors
    /// [`MembersError::Unknown`].
    pub fn set_generation(&self, member: &str, generation: u64) -> Result<(), MembersError> {
        let found = self.members.iter().find(|one| one.name == member);
        found.ok_or_else(|| MembersError::Unknown(member.to_owned()))?.configure(generation);
        Ok(())
    }

    /// Reads ranges from the best member that has them, `except` one that is known to have them damaged.
    fn find(
        &self,
        wanted: Wanted,
        ranges: &mut [OriginRange],
        except: Option<(usize, Verdict)>,
        judge: Judge<'_>,
    ) -> Result<(), OriginError> {
        self.budget.bucket.lock().deposit();
        let mut reading = Reading::new(&self.members, &self.budget, wanted, ranges, self.deadline);
        let excepted = except.as_ref().map(|(position, _)| *position);
        if let Some((position, verdict)) = except {
            reading.note(position, verdict);
        }
        self.plan(&mut reading, excepted);
        reading.run(ranges, judge)
    }

    /// Says who is asked, and in what order: those whose breaker is closed. One whose trial is due shows
    /// beside the read whether it is back; where no breaker is closed, the read is the trial.
    fn plan(&self, reading: &mut Reading<'_>, excepted: Option<usize>) {
        let now = Instant::now();
        let (mut closed, mut others) = (Vec::new(), Vec::new());
        for (position, member) in self.members.iter().enumerate() {
            if excepted == Some(position) {
                continue;
            }
            let state = member.state(now);
            let estimate = state.estimate(self.clock.moment(now));
            let candidate = Candidate { position, is_assigned: member.is_assigned, estimate };
            if state.is_closed() { closed.push(candidate) } else { others.push(candidate) }
        }
        let is_any_closed = !closed.is_empty();
        for candidate in others {
            let position = candidate.position;
            match self.members[position].admit(self.deadline, now) {
                true if is_any_closed => reading.probe(position),
                true => closed.push(candidate),
                false => {
                    let cause = "it failed, and is not asked for a while".to_owned();
                    reading.note(position, Verdict::Failed(cause));
                }
            }
        }
        order::sort(&mut closed);
        reading.set_candidates(closed.into_iter().map(|one| one.position));
    }

    #[cfg(test)]
    pub(crate) fn member(&self, position: usize) -> &Member {
        &self.members[position]
    }
}

fn accept(_: &Member, _: &mut [OriginRange]) -> bool {
    true
}

impl OriginSource for MembersSource {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        let wanted = Wanted::Object(StoredObject::Pack(*pack));
        self.find(wanted, ranges, None, &mut accept)
    }

    fn read_manifest(&self, name: &Digest, range: &mut OriginRange) -> Result<(), OriginError> {
        let wanted = Wanted::Object(StoredObject::Manifest(*name));
        self.find(wanted, std::slice::from_mut(range), None, &mut accept)
    }

    fn read_moved(
        &self,
        pack: &PackId,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        let mut range = OriginRange { offset, buffer: std::mem::take(buffer), member: 0 };
        let ranges = std::slice::from_mut(&mut range);
        let outcome = self.find(Wanted::Moved(*pack), ranges, None, &mut accept);
        *buffer = range.buffer;
        outcome
    }

    fn read_elsewhere(
        &self,
        object: &StoredObject,
        range: &mut OriginRange,
        is_sound: &mut dyn FnMut(&mut OriginRange) -> bool,
    ) -> Result<bool, OriginError> {
        let liar = usize::from(range.member);
        if let Some(member) = self.members.get(liar) {
            note_lie(member, object);
        }
        let damage = OriginError::DamagedMove {
            pack: Wanted::Object(*object).name(),
            cause: "other bytes than the digest names".to_owned(),
        };
        let except = Some((liar, Verdict::Damaged(damage)));
        let mut judge = |member: &Member, found: &mut [OriginRange]| {
            let is_right = found.first_mut().is_some_and(&mut *is_sound);
            if !is_right {
                note_lie(member, object);
            }
            is_right
        };
        let ranges = std::slice::from_mut(range);
        match self.find(Wanted::Object(*object), ranges, except, &mut judge) {
            Ok(()) => Ok(true),
            // All were asked, and nobody has it as it should be.
            Err(OriginError::NotFound { .. } | OriginError::ShortRead { .. }) => Ok(false),
            Err(OriginError::DamagedMove { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn note_lie(member: &Member, object: &StoredObject) {
    member.metrics.corrupt();
    tracing::error!(member = member.name, ?object, "a member of the origin has other bytes");
}
