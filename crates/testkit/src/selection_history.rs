//! A long seeded history of one host's fetches, and the decisions that the choice of a source makes in it.
//!
//! The same history drives whatever implements [`Subject`]; a golden file keeps what it decides.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::seeded_rng;

/// Decisions behind one digest of the golden file.
const DECISIONS_PER_DIGEST: usize = 250;
/// Decisions of each history that the golden file has in full.
const DECISIONS_IN_FULL: usize = 60;
/// Time that a fetch from a peer may take.
pub const PEER_DEADLINE: Duration = Duration::from_secs(2);

/// Circumstances of a history.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in the golden file.
    pub name: &'static str,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Peers of the host.
    pub peers: usize,
    /// Setting of the subject.
    pub load_aware: bool,
    /// Setting of the subject.
    pub compress_slow: bool,
    /// Setting of the subject; links are as slow as it says.
    pub slow_fetch: Duration,
    /// Setting of the subject: the origin is asked first where it is faster.
    pub boot_time: bool,
}

/// The histories.
pub const SCENARIOS: [Scenario; 6] = [
    Scenario::new("twelve-peers", 1, 12, Duration::from_millis(5)),
    Scenario::new("three-peers", 2, 3, Duration::from_millis(5)),
    Scenario::new("slow-links", 3, 6, Duration::from_millis(40)),
    Scenario {
        compress_slow: false,
        ..Scenario::new("uncompressed", 4, 5, Duration::from_millis(5))
    },
    Scenario { load_aware: false, ..Scenario::new("unaware", 5, 5, Duration::from_millis(5)) },
    Scenario { boot_time: true, ..Scenario::new("boot-time", 6, 6, Duration::from_millis(5)) },
];

impl Scenario {
    const fn new(name: &'static str, seed: u64, peers: usize, slow_fetch: Duration) -> Scenario {
        let (load_aware, compress_slow, boot_time) = (true, true, false);
        Scenario { name, seed, peers, load_aware, compress_slow, slow_fetch, boot_time }
    }
}

/// A source; `None` is the origin.
pub type Source = Option<usize>;

/// End of a fetch from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the right content.
    Answered,
    /// With a refusal.
    Refused,
    /// With wrong content.
    Corrupt,
    /// With a fault of the peer.
    Failed,
    /// Without an answer.
    TimedOut,
    /// Without a connection.
    Unreachable,
    /// Given up, since another source was faster.
    Overtaken,
}

/// The order in which sources are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Asked first, for what it holds.
    pub alternate: Option<usize>,
    /// Asked before the origin.
    pub peers: Vec<usize>,
    /// Asked after the origin.
    pub passed: Vec<usize>,
    /// Asked beside.
    pub probe: Option<usize>,
    /// True if the origin takes the place of a peer.
    pub is_origin_granted: bool,
}

/// Subject under test: the state of one host's selection.
pub trait Subject {
    /// Lets time pass.
    fn wait(&mut self, time: Duration);
    /// Sets the jitter of what follows, in [0, 1).
    fn set_jitter(&mut self, unit: f64);
    /// Chooses among peers in the order of the ring.
    fn choose(&mut self, line: &[usize], is_guest: bool) -> Line;
    /// Asks a peer's breaker; a fetch takes [`PEER_DEADLINE`] at most.
    fn admit(&mut self, peer: usize) -> bool;
    /// Begins fetch `number`.
    fn begin(&mut self, source: Source, number: u64);
    /// Ends fetch `number`.
    fn end(&mut self, source: Source, number: u64, is_answered: bool);
    /// Notes how a fetch from a peer ended; returns whether the chunk is kept.
    fn note(&mut self, peer: usize, ending: Ending, time: Duration) -> bool;
    /// Notes the time of a probe.
    fn note_probe(&mut self, peer: usize, time: Duration);
    /// The time after which a source is late.
    fn hedge_after(&mut self, source: Source, is_rescue: bool, allowed: Duration) -> Duration;
    /// Returns whether a peer may compress its answer.
    fn accepts_compressed(&mut self, peer: usize) -> bool;
    /// Notes a first attempt and takes a hedge, where `is_late`.
    fn hedge_budget(&mut self, is_late: bool) -> bool;
    /// Notes a first attempt and takes a retry, where `is_late`; `earned` chunks came from the origin.
    fn retry_budget(&mut self, is_late: bool, earned: u32) -> bool;
    /// Asks the origin's breaker: `go`, `trial`, or the time to wait.
    fn admit_origin(&mut self) -> String;
    /// Notes a call of the origin.
    fn note_origin(&mut self, is_success: bool);
    /// Returns what is known of everybody now, in one line.
    fn summary(&mut self) -> String;
}

/// The state of the world in one stretch of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Quiet,
    OneOverloaded,
    SomeSilent,
    AllOverloaded,
    OriginSlow,
    OwnLinkSlow,
    Failing,
    Cold,
}

const PHASES: [Phase; 12] = [
    Phase::Quiet,
    Phase::OneOverloaded,
    Phase::Quiet,
    Phase::SomeSilent,
    Phase::AllOverloaded,
    Phase::OriginSlow,
    Phase::Quiet,
    Phase::OwnLinkSlow,
    Phase::Failing,
    Phase::Cold,
    Phase::AllOverloaded,
    Phase::OneOverloaded,
];
const STEPS_PER_PHASE: usize = 400;

struct Running {
    source: Source,
    number: u64,
    is_probe: bool,
    started: Duration,
    due: Duration,
    ending: Ending,
}

struct History<'a> {
    scenario: Scenario,
    subject: &'a mut dyn Subject,
    random: ChaCha8Rng,
    now: Duration,
    running: Vec<Running>,
    fetches: u64,
    decisions: Vec<String>,
}

/// Drives `subject` through a history and returns its decisions, as the golden file has them.
pub fn record(scenario: Scenario, subject: &mut dyn Subject) -> String {
    let random = seeded_rng(scenario.seed);
    let mut history = History {
        scenario,
        subject,
        random,
        now: Duration::ZERO,
        running: Vec::new(),
        fetches: 0,
        decisions: Vec::new(),
    };
    for phase in PHASES {
        for _ in 0..STEPS_PER_PHASE {
            history.step(phase);
        }
        history.pause();
    }
    render(scenario.name, &history.decisions)
}

impl History<'_> {
    fn log(&mut self, text: String) {
        self.decisions.push(text);
    }

    fn wait_until(&mut self, moment: Duration) {
        self.subject.wait(moment.saturating_sub(self.now));
        self.now = self.now.max(moment);
    }

    fn step(&mut self, phase: Phase) {
        let jitter = self.random.random_range(0.0..1.0);
        self.subject.set_jitter(jitter);
        let next_read =
            self.now + self.scenario.slow_fetch.mul_f64(self.random.random_range(0.0..4.0));
        while let Some(position) = self.first_due(next_read) {
            let fetch = self.running.swap_remove(position);
            self.wait_until(fetch.due);
            self.conclude(fetch);
        }
        self.wait_until(next_read);
        for _ in 0..self.random.random_range(1..6) {
            self.read(phase);
        }
        if self.random.random_bool(0.05) {
            let summary = self.subject.summary();
            self.log(format!("summary {summary}"));
        }
    }

    /// The fetch that ends next, before `moment`.
    fn first_due(&self, moment: Duration) -> Option<usize> {
        let due = self.running.iter().enumerate().filter(|(_, fetch)| fetch.due <= moment);
        due.min_by_key(|(_, fetch)| (fetch.due, fetch.number)).map(|(position, _)| position)
    }

    /// Ends all fetches, then does nothing for a while.
    fn pause(&mut self) {
        while let Some(position) = self.first_due(Duration::MAX) {
            let fetch = self.running.swap_remove(position);
            self.wait_until(fetch.due);
            self.conclude(fetch);
        }
        let seconds = [0.01, 1.0, 3.0, 12.0, 700.0][self.random.random_range(0..5)];
        self.wait_until(self.now + Duration::from_secs_f64(seconds));
        let summary = self.subject.summary();
        self.log(format!("pause {seconds} {summary}"));
    }

    /// Reads one chunk: chooses, asks the first that may be asked, and looks when a hedge is due.
    fn read(&mut self, phase: Phase) {
        let line = self.line();
        let is_guest = self.random.random_bool(0.75);
        let choice = self.subject.choose(&line, is_guest);
        self.log(format!("choose {line:?} guest={is_guest} {choice:?}"));
        if let Some(peer) = choice.probe {
            self.ask(Some(peer), phase, true);
        }
        for peer in choice.alternate.into_iter().chain(choice.peers) {
            let is_admitted = self.subject.admit(peer);
            self.log(format!("admit {peer} {is_admitted}"));
            if is_admitted {
                self.ask(Some(peer), phase, false);
                return;
            }
        }
        let admission = self.subject.admit_origin();
        self.log(format!("origin {admission}"));
        self.ask(None, phase, false);
    }

    /// Three peers at most, the first one drawn from few, so that each is asked often.
    fn line(&mut self) -> Vec<usize> {
        let peers = self.scenario.peers;
        let first = self.random.random_range(0..peers);
        let count = self.random.random_range(1..=3.min(peers));
        (0..count).map(|number| (first + number) % peers).collect()
    }

    fn ask(&mut self, source: Source, phase: Phase, is_probe: bool) {
        let (time, ending) = self.service(source, phase);
        self.fetches += 1;
        let number = self.fetches;
        if let Some(peer) = source {
            let compressed = self.subject.accepts_compressed(peer);
            let is_hedged = self.subject.hedge_budget(self.random.random_bool(0.1));
            self.log(format!("ask {peer} compressed={compressed} hedge={is_hedged}"));
        }
        self.subject.begin(source, number);
        let is_rescue = self.random.random_bool(0.1);
        let allowed = Duration::from_millis(self.random.random_range(100..30_000));
        let late = self.subject.hedge_after(source, is_rescue, allowed);
        self.log(format!("late {source:?} rescue={is_rescue} {late:?}"));
        let due = self.now + time;
        self.running.push(Running { source, number, is_probe, started: self.now, due, ending });
    }

    /// Returns the time that a source takes for what is asked now, and how that ends.
    fn service(&mut self, source: Source, phase: Phase) -> (Duration, Ending) {
        let slow_fetch = self.scenario.slow_fetch;
        let underway =
            self.running.iter().filter(|fetch| fetch.source == source).count() as f64 + 1.0;
        let idle = slow_fetch.mul_f64(self.random.random_range(0.1..0.3) * underway);
        let full = slow_fetch.mul_f64(self.random.random_range(3.0..9.0) * underway.sqrt());
        let chance = self.random.random_range(0.0..1.0);
        let time = match (phase, source) {
            (Phase::Cold, Some(_)) if chance < 0.3 => full,
            (Phase::OneOverloaded, Some(0)) | (Phase::AllOverloaded, Some(_)) => full,
            (Phase::OriginSlow, None) => full * 4,
            (Phase::OriginSlow, Some(0 | 1)) => full,
            (Phase::OwnLinkSlow, _) => full,
            (Phase::SomeSilent, Some(1 | 2)) => PEER_DEADLINE,
            _ => idle,
        };
        let ending = match (phase, source) {
            (Phase::SomeSilent, Some(1)) if chance < 0.5 => Ending::TimedOut,
            (Phase::SomeSilent, Some(1 | 2)) => Ending::Overtaken,
            (Phase::Failing, Some(0)) if chance < 0.1 => Ending::Corrupt,
            (Phase::Failing, Some(0 | 1)) if chance < 0.4 => Ending::Failed,
            (Phase::Failing, Some(_)) if chance < 0.5 => Ending::Unreachable,
            (Phase::Failing, Some(_)) if chance < 0.6 => Ending::Refused,
            (Phase::Failing, None) if chance < 0.8 => Ending::Failed,
            (_, Some(_)) if chance < 0.01 => Ending::Refused,
            (_, _) if chance > 0.98 => Ending::Overtaken,
            _ => Ending::Answered,
        };
        let time = if ending == Ending::Unreachable && chance < 0.45 { time * 400 } else { time };
        (time.min(PEER_DEADLINE), ending)
    }

    fn conclude(&mut self, fetch: Running) {
        let time = self.now - fetch.started;
        let is_answered = fetch.ending == Ending::Answered;
        self.subject.end(fetch.source, fetch.number, is_answered);
        let Some(peer) = fetch.source else {
            self.subject.note_origin(fetch.ending != Ending::Failed);
            let is_late = self.random.random_bool(0.2);
            let is_allowed = self.subject.retry_budget(is_late, u32::from(is_answered));
            self.log(format!("origin ended {:?} retry={is_allowed}", fetch.ending));
            return;
        };
        if fetch.is_probe {
            if is_answered {
                self.subject.note_probe(peer, time);
            }
            return;
        }
        let is_kept = self.subject.note(peer, fetch.ending, time);
        self.log(format!("ended {peer} {:?} {time:?} kept={is_kept}", fetch.ending));
    }
}

/// Shows the first decisions, the number of each kind, and a digest of each stretch.
fn render(name: &str, decisions: &[String]) -> String {
    let mut text = format!("== {name}: {} decisions\n", decisions.len());
    for decision in &decisions[..DECISIONS_IN_FULL.min(decisions.len())] {
        let _ = writeln!(text, "{decision}");
    }
    for (kind, count) in kinds(decisions) {
        let _ = writeln!(text, "-- {count} {kind}");
    }
    for stretch in decisions.chunks(DECISIONS_PER_DIGEST) {
        let _ = writeln!(text, "{:016x}", digest(stretch));
    }
    text
}

/// Counts the decisions that matter most: proof that the history gets there.
fn kinds(decisions: &[String]) -> BTreeMap<&'static str, usize> {
    const KINDS: [&str; 12] = [
        "alternate: Some",
        "passed: [0",
        "probe: Some",
        "is_origin_granted: true",
        "admit 0 false",
        "admit 1 true",
        "compressed=true",
        "kept=true",
        "hedge=true",
        "retry=true",
        "origin go",
        "origin trial",
    ];
    let count = |kind: &str| decisions.iter().filter(|decision| decision.contains(kind)).count();
    KINDS.into_iter().map(|kind| (kind, count(kind))).collect()
}

/// FNV-1a of the lines.
fn digest(lines: &[String]) -> u64 {
    let bytes = lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
