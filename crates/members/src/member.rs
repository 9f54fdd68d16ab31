//! One member: its store, its threads, and how it is judged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use acstor_readpath::{OriginError, OriginRange, OriginSource};
use acstor_selection::Moment;
use parking_lot::{Mutex, MutexGuard};

use crate::call_pool::{CallPool, Notice};
use crate::member_metrics::{MemberMetrics, Outcome};
use crate::member_state::{CallEnd, CallId, MemberState};
use crate::wanted::Wanted;
use crate::{GenerationReader, MemberSettings, MembersError};

/// Longest read that shows whether a member is back, bytes.
const TRIAL_LEN_MAX: usize = 4096;

/// Randomness for a jitter, in [0, 1).
fn jitter() -> f64 {
    rand::random()
}

/// Conversion of the wall clock to the moments of the selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    zero: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { zero: Instant::now() }
    }

    pub(crate) fn moment(&self, at: Instant) -> Moment {
        Moment::ZERO + at.saturating_duration_since(self.zero)
    }
}

/// Answer of a member to a reader.
pub(crate) struct Answer {
    /// Position of the member.
    pub(crate) position: usize,
    /// The ranges, filled, in memory that nobody else has.
    pub(crate) outcome: Result<Vec<OriginRange>, OriginError>,
}

/// One member.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) is_assigned: bool,
    position: usize,
    source: Arc<dyn OriginSource>,
    generations: Arc<dyn GenerationReader>,
    state: Mutex<MemberState>,
    pool: CallPool,
    pub(crate) metrics: MemberMetrics,
    clock: Clock,
}

impl Member {
    /// Starts the threads for its calls.
    ///
    /// # Errors
    /// [`MembersError::Thread`].
    pub(crate) fn start(
        settings: MemberSettings,
        position: usize,
        calls_max: usize,
        metrics: MemberMetrics,
        clock: Clock,
    ) -> Result<Arc<Member>, MembersError> {
        let MemberSettings { name, generation, is_assigned, source, generations } = settings;
        let pool = CallPool::start(&name, calls_max)
            .map_err(|cause| MembersError::Thread { member: name.clone(), cause })?;
        let state = Mutex::new(MemberState::new(generation));
        Ok(Arc::new(Member {
            name,
            is_assigned,
            position,
            source,
            generations,
            state,
            pool,
            metrics,
            clock,
        }))
    }

    /// The state, after calls whose time is over have been judged.
    pub(crate) fn state(&self, now: Instant) -> MutexGuard<'_, MemberState> {
        let mut state = self.state.lock();
        let was_up = state.is_up();
        let late = state.expire(self.clock.moment(now), jitter());
        if late > 0 {
            self.metrics.call(Outcome::Late, late);
            self.tell(was_up, &state);
        }
        state
    }

    /// Asks for leave to call it while its breaker is not closed.
    pub(crate) fn admit(&self, trial_time: Duration, now: Instant) -> bool {
        self.state(now).admit(trial_time, self.clock.moment(now), jitter())
    }

    /// Takes over the generation that it has to have from now on.
    pub(crate) fn configure(&self, generation: u64) {
        self.state.lock().configure(generation);
    }

    /// Has one of its threads read ranges, and answer to `sender` unless nobody listens any more.
    ///
    /// # Errors
    /// The reason why it is not asked.
    pub(crate) fn ask(
        self: &Arc<Self>,
        wanted: Wanted,
        ranges: Vec<OriginRange>,
        late_at: Instant,
        sender: Option<Sender<Answer>>,
    ) -> Result<(), &'static str> {
        let now = self.clock.moment(Instant::now());
        let call = self.state.lock().begin(self.clock.moment(late_at), now);
        let member = self.clone();
        let work = move || {
            let outcome = member.read(&wanted, ranges, call);
            let answer = Answer { position: member.position, outcome };
            // The reader may have been content with another member's answer.
            let notice = move || drop(sender.map(|sender| sender.send(answer)));
            Box::new(notice) as Notice
        };
        if self.pool.try_run(Box::new(work)) {
            return Ok(());
        }
        self.state.lock().withdraw(call, now);
        self.metrics.call(Outcome::Busy, 1);
        Err("all of its calls are under way")
    }

    /// Has it read a little, to see whether it is back; nobody waits for the answer.
    pub(crate) fn probe(self: &Arc<Self>, wanted: Wanted, range: (u64, usize), late_at: Instant) {
        let (offset, len) = range;
        let range = OriginRange::new(offset, len.min(TRIAL_LEN_MAX));
        // Where no thread is free, the trial is overdue some day, and has failed.
        let _ = self.ask(wanted, vec![range], late_at, None);
    }

    /// Makes a call on a thread of the member, and judges it.
    fn read(
        &self,
        wanted: &Wanted,
        mut ranges: Vec<OriginRange>,
        call: CallId,
    ) -> Result<Vec<OriginRange>, OriginError> {
        let started = Instant::now();
        let checked = self.check(wanted);
        let is_fenced = matches!(checked, Err(Refusal::Fenced(_)));
        let outcome = match checked {
            Ok(()) => wanted.read(&*self.source, &mut ranges),
            Err(Refusal::Fenced(error) | Refusal::Failed(error)) => Err(error),
        };
        let counted = if is_fenced { Outcome::Fenced } else { Outcome::of(outcome.as_ref().err()) };
        self.judge(call, counted, started);
        outcome.map(|()| ranges)
    }

    fn judge(&self, call: CallId, outcome: Outcome, started: Instant) {
        let end = match outcome {
            Outcome::Ok | Outcome::NotFound | Outcome::Damaged => CallEnd::Answered,
            _ => CallEnd::Failed,
        };
        let now = Instant::now();
        let mut state = self.state(now);
        let was_up = state.is_up();
        if state.end(call, end, self.clock.moment(now), jitter()) {
            self.metrics.call(outcome, 1);
        }
        self.metrics.time(now.duration_since(started));
        self.tell(was_up, &state);
    }

    /// Says in metrics and log whether the member is read, where that has changed.
    fn tell(&self, was_up: bool, state: &MemberState) {
        let is_up = state.is_up();
        self.metrics.set_up(is_up);
        match (was_up, is_up) {
            (true, false) => {
                tracing::warn!(member = self.name, "a member of the origin fails; it is probed");
            }
            (false, true) => tracing::info!(member = self.name, "a member of the origin is back"),
            _ => {}
        }
    }

    /// Looks at the member's generation, where that has to be known first.
    fn check(&self, wanted: &Wanted) -> Result<(), Refusal> {
        if !self.state.lock().needs_look() {
            return Ok(());
        }
        let look = catch_unwind(AssertUnwindSafe(|| self.generations.read()));
        let look = look.unwrap_or_else(|_| Err(OriginError::Internal("it panicked".to_owned())));
        let unavailable = |cause| OriginError::Unavailable { pack: wanted.name(), cause };
        let found = look.map_err(|error| {
            let cause = format!("which generation it is of is not known: {error}");
            Refusal::Failed(unavailable(cause))
        })?;
        let looked = self.state.lock().looked(found);
        looked.map_err(|configured| {
            let cause = format!(
                "it is of generation {found}, and {configured} is configured: it was restored from \
                 a backup, or is another store"
            );
            tracing::error!(member = self.name, "a member of the origin is not read: {cause}");
            Refusal::Fenced(unavailable(cause))
        })
    }
}

/// Reason for which a member's generation does not let it be read.
enum Refusal {
    /// It is another one.
    Fenced(OriginError),
    /// It cannot be read.
    Failed(OriginError),
}
