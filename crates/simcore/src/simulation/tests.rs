//! Small runs.

use acstor_ring::{Host, RingBuilder};
use acstor_selection::limits;

use super::*;
use crate::MachineState;
use crate::left_share::LeftShare;
use crate::tree::Shape;

const LINK: f64 = 1e8;
const CHUNK: f64 = 65536.0;
const ORIGIN_LATENCY: f64 = 1e-3;
/// Of 2^64: its multiples are spread evenly over the ring.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
/// Number of the host that reads; it owns nothing that is read.
const READER: u32 = 0;

/// A star of hosts with machines that read some contents one after the other.
struct Star {
    hosts: u32,
    contents: u32,
    /// Host of each machine; all start at once.
    machines: Vec<u32>,
    /// Rules that are not the common ones.
    rules: Vec<(&'static str, f64)>,
    extra: ExtraTraffic,
    capacity: u32,
    processor_rate: Option<f64>,
    /// Contents that read-ahead knows.
    profile: Vec<u32>,
    /// Seconds before each read.
    think: f64,
}

impl Star {
    fn new(hosts: u32, contents: u32, machines: &[u32]) -> Star {
        let (machines, extra) = (machines.to_vec(), ExtraTraffic::default());
        Star {
            hosts,
            contents,
            machines,
            rules: Vec::new(),
            extra,
            capacity: 0,
            processor_rate: None,
            profile: Vec::new(),
            think: 0.0,
        }
    }

    fn with(mut self, rules: &[(&'static str, f64)]) -> Star {
        self.rules.extend_from_slice(rules);
        self
    }

    fn rule(&self, name: &str) -> f64 {
        let given = self.rules.iter().rev().find(|(known, _)| *known == name);
        given.map(|(_, number)| *number).unwrap_or(match name {
            "chunk_bytes" => CHUNK,
            "local_latency" => 1e-4,
            "peer_latency" => 3e-4,
            "origin_latency" => ORIGIN_LATENCY,
            "slow_fetch" => 0.005,
            "hedge_min" => 0.02,
            "hedge_share" => 0.05,
            "wire_share" | "connect_timeout" | "hedge_max" | "sample_interval" => 1.0,
            "is_cached" | "uses_peers" | "keep" | "hedge_enabled" | "load_aware" => 1.0,
            "own_link" | "is_elastic" | "compress_ratio" | "origin_ratio" | "classes" => 1.0,
            "sender_stall" => 0.005,
            "socket_bytes" => 32768.0,
            "ahead_budget" => 64e6,
            "peer_deadline" | "candidates_max" => 2.0,
            "previous_rings" => 4.0,
            "origin_deadline" | "report_interval" => 10.0,
            "read_deadline" => 30.0,
            "recent_chunks" => 256.0,
            _ => 0.0,
        })
    }

    fn make(self) -> Simulation {
        let shape = Shape {
            fanout: vec![self.hosts],
            rates: vec![LINK],
            root_rate: None,
            origin_rate: LINK,
            storage_rate: None,
            processor_rate: self.processor_rate,
        };
        let contents = self.contents;
        let programs = Programs {
            first_operation: vec![0, contents],
            think: vec![self.think; contents as usize],
            served: vec![CHUNK; contents as usize],
            first_access: (0..=contents).collect(),
            content: (0..contents).collect(),
            length: vec![CHUNK as u32; contents as usize],
            placement: (0..contents).collect(),
            oids: (0..contents).map(|one| u64::from(one).wrapping_mul(GOLDEN_RATIO)).collect(),
            first_entry: vec![0, self.profile.len() as u32],
            profile: self.profile.clone(),
            is_loop: false,
        };
        let rules = Rules::read(|name| Ok::<_, ()>(self.rule(name))).unwrap();
        let tree = Tree::new(&shape).unwrap();
        let (extra, capacity) = (self.extra, self.capacity);
        let made = Simulation::new(rules, tree, extra, programs, capacity, 100, 1);
        let mut made = made.unwrap();
        let slot = made.install_ring(&ring(1, self.hosts, 1), None, &names(self.hosts)).unwrap();
        made.use_ring(slot);
        let count = self.machines.len();
        made.place_machines(&self.machines, &vec![0; count], &vec![0.0; count]);
        made.set_extra(1.0);
        made
    }
}

fn names(hosts: u32) -> Vec<String> {
    (0..hosts).map(|host| format!("h{host}")).collect()
}

/// A ring in which the hosts from `first` on own everything.
fn ring(generation: u64, hosts: u32, first: u32) -> Ring {
    let hosts = names(hosts)
        .into_iter()
        .zip(0..)
        .map(|(name, host)| Host::new(name, "10.0.0.1:1", if host < first { 0 } else { 100 }));
    RingBuilder::new(7).vnodes(256).generation(generation).hosts(hosts).build().unwrap()
}

fn ended(made: &Simulation) -> Vec<f64> {
    made.machines().ended
}

#[test]
fn equal_inputs_give_equal_runs() {
    let run = || {
        let mut made = Star::new(6, 60, &[0, 1, 2, 3, 4, 5]).with(&[("quantum", 0.002)]).make();
        made.start_reports(&[0.1; 6]);
        made.start_samples();
        made.advance(20.0);
        let Machines { ended, waited, .. } = made.machines();
        (ended, waited, format!("{:?}", made.totals()), made.reports().rates)
    };
    assert_eq!(run(), run());
}

#[test]
fn chunk_takes_the_time_of_its_bytes_and_of_a_round_trip() {
    let mut made = Star::new(2, 1, &[READER]).with(&[("uses_peers", 0.0)]).make();
    made.advance(1.0);
    let expected = ORIGIN_LATENCY + CHUNK / LINK;
    assert!((ended(&made)[0] - expected).abs() < 1e-9, "{:?}", ended(&made));
    assert_eq!(made.counters().moved_in[0], CHUNK);
}

#[test]
fn two_that_want_a_chunk_of_one_link_share_it() {
    let mut made = Star::new(2, 1, &[0, 1]).with(&[("uses_peers", 0.0)]).make();
    made.advance(1.0);
    let expected = ORIGIN_LATENCY + 2.0 * CHUNK / LINK;
    assert!(ended(&made).iter().all(|end| (end - expected).abs() < 1e-9));
}

#[test]
fn each_chunk_leaves_the_origin_once() {
    let mut made = Star::new(6, 40, &[0, 1, 2, 3, 4, 5]).make();
    made.advance(30.0);
    assert_eq!(made.unfinished(), 0);
    assert_eq!(made.totals().origin_bytes, 40.0 * CHUNK);
    assert_eq!(made.totals().origin_again, 0.0);
    assert_eq!(made.totals().read_errors, 0);
}

#[test]
fn chunk_of_a_peer_is_kept_the_second_time() {
    let mut made = Star::new(4, 20, &[READER]).with(&[("recent_chunks", 1.0)]).make();
    made.advance(10.0);
    assert_eq!(made.held().iter().sum::<u32>(), 20, "by its owners");
    assert_eq!(made.held()[READER as usize], 0);
    made.place_machines(&[READER], &[0], &[10.0]);
    made.advance(20.0);
    assert_eq!(made.held()[READER as usize], 20);
    made.place_machines(&[READER], &[0], &[20.0]);
    made.advance(30.0);
    assert_eq!(made.totals().tiers[0][READER as usize], 20.0 * CHUNK, "from its own store");
}

#[test]
fn owner_after_a_remap_asks_the_one_before() {
    let mut made = Star::new(4, 20, &[READER]).make();
    made.advance(10.0);
    let next = made.install_ring(&ring(2, 4, 3), None, &names(4)).unwrap();
    (0..4).for_each(|host| made.follow_ring(host, next, 10.5));
    made.place_machines(&[3], &[0], &[11.0]);
    made.advance(20.0);
    let totals = made.totals();
    assert_eq!(totals.origin_bytes, 20.0 * CHUNK, "nothing is read again");
    assert!(totals.tiers[2][3] > 0.0 && totals.remap_misses > 0);
}

#[test]
fn dead_owners_are_gone_round() {
    let mut made = Star::new(4, 20, &[READER, 2]).make();
    made.leave(1);
    made.leave(2);
    made.advance(60.0);
    assert!(ended(&made)[0] < 30.0);
    assert_eq!(made.machines().state, [MachineState::Ended, MachineState::Broken]);
    assert_eq!(made.totals().read_errors, 0);
    assert!(made.is_alive() == [true, false, false, true]);
}

/// Extra traffic that leaves next to nothing of the link that host 1 sends over.
fn full_link() -> ExtraTraffic {
    ExtraTraffic {
        source: vec![1],
        target: vec![2],
        rate: vec![LINK],
        inelastic: vec![0],
        left_share: LeftShare::Constant(1e-4),
    }
}

/// A reader whose only owner has a full link.
fn behind_a_full_link(rules: &[(&'static str, f64)]) -> Simulation {
    let mut star =
        Star::new(3, 1, &[READER]).with(&[("candidates_max", 1.0), ("quantum", 0.002)]).with(rules);
    star.extra = full_link();
    let mut made = star.make();
    let slot = made.install_ring(&ring(3, 2, 1), None, &names(2)).unwrap();
    made.use_ring(slot);
    made
}

#[test]
fn late_fetch_is_hedged_by_the_origin() {
    let mut made = behind_a_full_link(&[]);
    made.advance(5.0);
    let totals = made.totals();
    assert_eq!((totals.hedges, totals.hedges_won, totals.timeouts), (1, 1, 0));
    assert!((1.0..1.1).contains(&ended(&made)[0]), "after hedge_max: {:?}", ended(&made));
    assert_eq!(totals.origin_again_hedge, CHUNK, "the owner has it");
}

#[test]
fn fetch_is_given_up_at_its_deadline_and_the_next_source_is_asked() {
    let mut made = behind_a_full_link(&[("hedge_enabled", 0.0)]);
    made.advance(5.0);
    let totals = made.totals();
    assert_eq!((totals.hedges, totals.timeouts), (0, 1));
    assert!((2.0..2.1).contains(&ended(&made)[0]), "after peer_deadline: {:?}", ended(&made));
}

#[test]
fn read_fails_when_nobody_serves_it_in_time() {
    let rules = [("uses_peers", 0.0), ("origin_deadline", 1e-4), ("read_deadline", 0.5)];
    let mut made = Star::new(2, 1, &[READER]).with(&rules).make();
    made.advance(5.0);
    assert_eq!(made.machines().state, [MachineState::Broken]);
    assert_eq!(made.totals().read_errors, 1);
    assert!(made.totals().timeouts > 1, "it was repeated");
}

#[test]
fn full_store_holds_no_more_than_it_can() {
    let mut star = Star::new(2, 30, &[READER]).with(&[("uses_peers", 0.0)]);
    star.capacity = 8;
    let mut made = star.make();
    made.advance(10.0);
    assert_eq!(made.held(), [8, 0]);
}

#[test]
fn reports_tell_the_rates_of_extra_traffic() {
    let mut star = Star::new(3, 1, &[]);
    star.extra = ExtraTraffic { inelastic: Vec::new(), rate: vec![1e6], ..full_link() };
    let mut made = star.make();
    made.start_reports(&[1.0; 3]);
    made.start_samples();
    made.advance(30.0);
    let Reports { at, rates } = made.reports();
    assert!(at.iter().all(|at| *at > 20.0));
    assert_eq!([rates[4], rates[5], rates[8], rates[9]], [0.0, 1e6, 1e6, 0.0]);
    let Samples { at, carried } = made.samples();
    assert_eq!(at.len(), 30, "one a second");
    assert_eq!(carried.len(), 30 * 3);
}

/// A reader of 600 chunks of three owners, while extra traffic leaves one hundredth of a link.
fn beside_a_full_link(source: u32, target: u32, rules: &[(&'static str, f64)]) -> Simulation {
    let mut star = Star::new(4, 600, &[READER]).with(&[("quantum", 0.002)]).with(rules);
    let (source, target) = (vec![source], vec![target]);
    star.extra =
        ExtraTraffic { source, target, left_share: LeftShare::Constant(1e-2), ..full_link() };
    star.make()
}

#[test]
fn overloaded_owner_is_passed_over() {
    let mut blind = beside_a_full_link(1, 2, &[("load_aware", 0.0), ("hedge_enabled", 0.0)]);
    let mut aware = beside_a_full_link(1, 2, &[("hedge_enabled", 0.0)]);
    blind.advance(100.0);
    aware.advance(100.0);
    assert_eq!(blind.totals().passed_over, 0);
    assert!(aware.totals().passed_over > 50, "{:?}", aware.totals());
    assert_eq!(aware.totals().slow_links, 0);
    assert!(ended(&aware)[0] < 0.6 * ended(&blind)[0], "{:?} {:?}", ended(&aware), ended(&blind));
}

#[test]
fn nothing_comes_twice_over_a_full_link_of_ones_own() {
    let mut made = beside_a_full_link(1, READER, &[("compress", 1.0), ("compress_ratio", 0.5)]);
    made.advance(100.0);
    let totals = made.totals();
    assert!(totals.slow_links > 400, "{totals:?}");
    assert_eq!(totals.passed_over, 0);
    assert!(totals.packed > 400);
    let moved = made.counters().moved_in[READER as usize];
    assert!(moved < 0.6 * 600.0 * CHUNK, "most of it compressed: {moved}");
    assert!(made.held()[READER as usize] > 400, "and all of it kept");
}

#[test]
fn processors_bound_what_a_host_receives() {
    let mut star = Star::new(2, 1, &[READER]).with(&[("uses_peers", 0.0)]);
    star.processor_rate = Some(LINK / 4.0);
    let mut made = star.make();
    made.advance(1.0);
    let expected = ORIGIN_LATENCY + 4.0 * CHUNK / LINK;
    assert!((ended(&made)[0] - expected).abs() < 1e-9, "{:?}", ended(&made));
}

/// Times at which eight readers have the chunk that one owner holds.
fn eight_of_one(rules: &[(&'static str, f64)]) -> Vec<f64> {
    let mut made = Star::new(10, 1, &[0, 1, 2, 3, 4, 5, 6, 7]).with(rules).make();
    let slot = made.install_ring(&ring(3, 10, 9), None, &names(10)).unwrap();
    made.use_ring(slot);
    made.recover(9, &[0]);
    made.advance(1.0);
    ended(&made)
}

#[test]
fn answers_that_are_sent_whole_arrive_one_after_the_other() {
    let fair = eight_of_one(&[]);
    let last = 3e-4 + 8.0 * CHUNK / LINK;
    assert!(fair.iter().all(|end| (end - last).abs() < 1e-9), "all with the last: {fair:?}");
    let mut whole = eight_of_one(&[("sender_answers", 1.0), ("socket_bytes", 0.0)]);
    whole.sort_by(f64::total_cmp);
    for (number, end) in (1..).zip(&whole) {
        let expected = 3e-4 + f64::from(number) * CHUNK / LINK;
        assert!((end - expected).abs() < 1e-9, "{number}: {whole:?}");
    }
    let sockets = eight_of_one(&[("sender_answers", 1.0)]);
    let mean = |times: &[f64]| times.iter().sum::<f64>() / 8.0;
    assert!(mean(&whole) < mean(&sockets) && mean(&sockets) < mean(&fair), "{sockets:?}");
}

#[test]
fn stalled_receiver_costs_one_stall() {
    // Machine 0 is behind a full link of its own.
    let run = |stall: f64| {
        let rules = [("sender_answers", 1.0), ("sender_stall", stall), ("socket_bytes", 0.0)];
        let plain = [("load_aware", 0.0), ("hedge_enabled", 0.0), ("quantum", 0.001)];
        let mut star = Star::new(4, 1, &[0]).with(&rules).with(&plain);
        star.extra = ExtraTraffic { source: vec![2], target: vec![0], ..full_link() };
        let mut made = star.make();
        let slot = made.install_ring(&ring(3, 4, 3), None, &names(4)).unwrap();
        made.use_ring(slot);
        made.recover(3, &[0]);
        made.place_machines(&[1], &[0], &[0.001]);
        made.advance(30.0);
        ended(&made)[1] - 0.001
    };
    let (held_up, parked) = (run(10.0), run(0.005));
    assert!(held_up > 1.0, "behind whoever had its turn first: {held_up}");
    assert!(parked < 0.01, "{parked}");
}

#[test]
fn reads_of_the_origin_wait_for_their_turn() {
    let mut star = Star::new(2, 4, &[READER]).with(&[("uses_peers", 0.0), ("origin_reads", 1.0)]);
    star.processor_rate = None;
    let mut made = star.make();
    made.place_machines(&[READER], &[0], &[0.0]);
    made.advance(1.0);
    let expected = 4.0 * (ORIGIN_LATENCY + CHUNK / LINK);
    assert!(ended(&made).iter().all(|end| (end - expected).abs() < 1e-9), "{:?}", ended(&made));
}

/// A reader of 64 chunks that thinks for a millisecond before each, with a profile.
fn ahead_of(profile: Vec<u32>, rules: &[(&'static str, f64)]) -> Simulation {
    let mut star = Star::new(4, 128, &[READER]).with(rules);
    star.profile = profile;
    star.think = 0.001;
    star.make()
}

#[test]
fn right_profile_halves_a_boot_and_costs_the_origin_nothing() {
    let boot = |profile, rules: &[(&'static str, f64)]| {
        let mut made = ahead_of(profile, rules);
        made.advance(10.0);
        made
    };
    let plain = ended(&boot(Vec::new(), &[]))[0];
    let rules = [("sender_answers", 4.0), ("origin_reads", 4.0), ("classes", 1.0)];
    let made = boot((0..128).collect(), &rules);
    let found = ended(&made)[0];
    assert!(found < 0.6 * plain, "{found} with, {plain} without");
    assert!(found > 128.0 * 1.1e-3, "its think time and local reads: {found}");
    let totals = made.totals();
    assert_eq!(totals.origin_bytes, 128.0 * CHUNK, "each chunk once");
    assert!(totals.ahead_read > 64.0 * CHUNK && totals.promoted > 0, "{totals:?}");
    assert_eq!(totals.read_errors, 0);
}

#[test]
fn wrong_profile_costs_little() {
    // It names the second half of the contents only, of a machine that reads the first.
    let mut star = Star::new(4, 256, &[READER]);
    star.profile = (128..256).rev().collect();
    star.think = 0.001;
    let mut made = star.make();
    made.advance(10.0);
    let totals = made.totals();
    let wasted = totals.ahead_bytes - totals.ahead_read;
    assert!(wasted <= totals.ahead_read + limits::READ_AHEAD_FLOOR as f64, "{totals:?}");
}

#[test]
fn full_link_of_ones_own_is_kept_busy_ahead_of_the_guest() {
    let boot = |profile: Vec<u32>| {
        let mut star = Star::new(4, 64, &[READER]).with(&[("hedge_enabled", 0.0)]);
        star.profile = profile;
        star.think = 0.005;
        star.extra = ExtraTraffic {
            source: vec![1],
            target: vec![READER],
            left_share: LeftShare::Constant(0.2),
            ..full_link()
        };
        let mut made = star.make();
        made.advance(30.0);
        assert_eq!(made.unfinished(), 0);
        (ended(&made)[0], made.totals().ahead_bytes)
    };
    let (plain, none) = boot(Vec::new());
    let (found, ahead) = boot((0..64).collect());
    assert!(none == 0.0 && ahead > 0.0, "{ahead}");
    assert!(found < 0.8 * plain, "{found} with, {plain} without");
}

#[test]
fn owner_that_reads_ahead_for_a_peer_puts_its_own_demand_first() {
    // With one read of the origin at a time: what somebody waits for goes before 64 chunks ahead.
    let with_classes = |classes: f64| {
        let mut star = Star::new(3, 128, &[READER, 2]).with(&[
            ("origin_reads", 1.0),
            ("classes", classes),
            ("sender_answers", 2.0),
        ]);
        star.profile = (64..128).collect();
        let mut made = star.make();
        made.advance(30.0);
        let machines = made.machines();
        assert!(machines.state.iter().all(|state| *state == MachineState::Ended));
        machines.waited.iter().sum::<f64>()
    };
    assert!(with_classes(1.0) <= with_classes(0.0));
}

#[test]
fn dead_owner_delays_no_read_ahead_for_ever() {
    let mut made = ahead_of((0..128).collect(), &[]);
    made.leave(1);
    made.advance(60.0);
    assert_eq!(made.totals().read_errors, 0);
    assert_eq!(made.unfinished(), 0);
}

/// Machines of one image on hosts that tell each other what they miss, after one of them has booted.
fn told(exchange: f64) -> Simulation {
    let mut star = Star::new(8, 128, &[READER]).with(&[
        ("exchange", exchange),
        ("exchange_fan_out", 2.0),
        ("exchange_unmatched", 4_194_304.0),
        ("hedge_enabled", 0.0),
        ("sender_answers", 4.0),
    ]);
    star.think = 0.001;
    let mut made = star.make();
    made.place_machines(&[2, 3, 4, 5], &[0; 4], &[0.6; 4]);
    made.advance(30.0);
    assert_eq!(made.unfinished(), 0);
    made
}

#[test]
fn hosts_that_are_told_what_is_missed_boot_faster() {
    let last = |made: &Simulation| {
        let machines = made.machines();
        let times = machines.ended.iter().zip(&machines.started).map(|(end, start)| end - start);
        times.skip(1).fold(0.0, f64::max)
    };
    let alone = told(0.0);
    assert_eq!(alone.totals().hints, 0);
    for exchange in [1.0, 2.0, 3.0] {
        let made = told(exchange);
        let totals = made.totals();
        assert!(last(&made) < 0.95 * last(&alone), "{exchange}: {} {}", last(&made), last(&alone));
        assert!(totals.hints >= 128 && totals.ahead_read > 0.0, "{exchange}: {totals:?}");
        assert_eq!(totals.origin_bytes, 128.0 * CHUNK, "{exchange}");
        assert!(made.exchange.is_on() && totals.read_errors == 0);
    }
}
