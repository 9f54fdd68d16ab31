//! The order of answers: by example, and against a model under any steps.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;

const CHUNK: usize = 64 << 10;
const SLOTS: usize = 4;

fn rules() -> Rules {
    Rules {
        slots_max: SLOTS,
        slot_bytes: CHUNK,
        slot_time_min: Duration::from_millis(5),
        preload_interval: Duration::from_secs(1),
    }
}

fn host(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, number as u8])
}

/// A scheduler, and what a connection does: it writes at once whatever it may.
struct Link {
    scheduler: Scheduler,
    now: RunInstant,
    granted: Vec<PortId>,
}

impl Link {
    fn new() -> Link {
        Link {
            scheduler: Scheduler::new(rules()),
            now: RunInstant::unmeasured(),
            granted: Vec::new(),
        }
    }

    fn offer(&mut self, id: PortId, class: RequestClass, ticket: Ticket) -> bool {
        self.scheduler.offer(id, class, (ticket, CHUNK), self.now)
    }

    /// Ends the slot of `id`; returns the answers that may be written then.
    fn finish(&mut self, id: PortId) -> Vec<Ticket> {
        self.scheduler.finish(id, self.now, &mut self.granted);
        self.written()
    }

    fn written(&mut self) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        for id in std::mem::take(&mut self.granted) {
            self.scheduler.take_granted(id, &mut tickets);
        }
        tickets
    }

    /// Returns ports of other hosts that hold all slots.
    fn fill(&mut self) -> Vec<PortId> {
        (0..SLOTS)
            .map(|number| {
                let id = self.scheduler.join(host(100 + number));
                assert!(self.offer(id, RequestClass::Ahead, 1000 + number as u64));
                id
            })
            .collect()
    }
}

#[test]
fn test_offer_nobody_competes_goes_at_once() {
    let mut link = Link::new();
    let id = link.scheduler.join(host(1));
    for ticket in 0..100 {
        assert!(link.offer(id, RequestClass::Ahead, ticket));
        assert_eq!(link.finish(id), []);
    }
    assert_eq!(link.scheduler.queued(), [0; 3]);
}

#[test]
fn test_demand_behind_many_ahead_is_the_next_to_go() {
    let mut link = Link::new();
    let busy = link.fill();
    let other = link.scheduler.join(host(1));
    let ours = link.scheduler.join(host(2));
    for ticket in 0..64 {
        assert!(!link.offer(other, RequestClass::Ahead, ticket));
    }
    assert!(!link.offer(ours, RequestClass::Demand, 64));
    assert_eq!(link.scheduler.queued(), [1, 64, 0]);
    assert_eq!(link.finish(busy[2]), [64], "it waited for one slot");
    assert_eq!(link.finish(busy[0]), [0]);
}

#[test]
fn test_promote_overtakes_its_former_class() {
    let mut link = Link::new();
    let busy = link.fill();
    let other = link.scheduler.join(host(1));
    for ticket in 0..8 {
        link.offer(other, RequestClass::Ahead, ticket);
    }
    assert!(link.scheduler.promote(other, 6, RequestClass::Demand));
    assert!(!link.scheduler.promote(other, 77, RequestClass::Demand), "no such answer");
    assert_eq!(link.finish(busy[0]), [6]);
    assert_eq!(link.finish(other), [0], "its own slot was free, and nobody else waited");
}

#[test]
fn test_hosts_take_turns_within_a_class() {
    let mut link = Link::new();
    let busy = link.fill();
    let many: Vec<PortId> = (0..3).map(|_| link.scheduler.join(host(1))).collect();
    let one = link.scheduler.join(host(2));
    for (number, id) in many.iter().enumerate() {
        for ticket in 0..4 {
            link.offer(*id, RequestClass::Demand, 10 * number as u64 + ticket);
        }
    }
    for ticket in 100..104 {
        link.offer(one, RequestClass::Demand, ticket);
    }
    let order: Vec<Vec<Ticket>> = busy[..2].iter().map(|id| link.finish(*id)).collect();
    assert_eq!(order, [[0], [100]]);
    assert_eq!(link.finish(one), [10], "another connection of the first host");
    assert_eq!(link.finish(busy[2]), [101], "and the second host again");
}

#[test]
fn test_overrun_gives_the_slot_to_the_next_and_takes_no_other() {
    let mut link = Link::new();
    let busy = link.fill();
    let other = link.scheduler.join(host(1));
    for ticket in 0..2 {
        link.offer(busy[1], RequestClass::Demand, 50 + ticket);
        link.offer(other, RequestClass::Demand, ticket);
    }
    let due = link.scheduler.slot_due(busy[1]).unwrap();
    assert_eq!(due - link.now, rules().slot_time_min);
    link.scheduler.overrun(busy[1], link.now, &mut link.granted);
    assert_eq!(link.written(), [0]);
    assert_eq!(link.scheduler.slot_due(busy[1]), None);
    assert_eq!(link.finish(other), [1], "not those of the connection that does not move");
    assert_eq!(link.finish(other), []);
    assert_eq!(link.finish(busy[1]), [50], "it moved, and may go on");
    assert_eq!(link.scheduler.overruns(), 1);
}

#[test]
fn test_preloads_get_one_slot_in_an_interval_while_others_wait() {
    let mut link = Link::new();
    let busy = link.fill();
    let [preloads, demands] = [1, 2].map(|number| link.scheduler.join(host(number)));
    for ticket in 0..3 {
        link.offer(preloads, RequestClass::Preload, ticket);
    }
    for ticket in 10..20 {
        link.offer(demands, RequestClass::Demand, ticket);
    }
    assert_eq!(link.finish(busy[0]), [10]);
    link.now += rules().preload_interval;
    assert_eq!(link.finish(demands), [0], "it waited long enough");
    assert_eq!(link.finish(preloads), [11]);
    assert_eq!(link.finish(demands), [12], "and waits again");
}

#[test]
fn test_small_answers_share_a_slot() {
    let mut link = Link::new();
    let id = link.scheduler.join(host(1));
    for ticket in 0..40 {
        link.scheduler.offer(id, RequestClass::Demand, (ticket, 4 << 10), link.now);
    }
    assert_eq!(link.finish(id), (1..17).collect::<Vec<_>>());
    assert_eq!(link.finish(id), (17..33).collect::<Vec<_>>());
    assert_eq!(link.finish(id), (33..40).collect::<Vec<_>>());
}

#[test]
fn test_demand_wait_counts_the_demands_before() {
    let mut link = Link::new();
    assert_eq!(link.scheduler.demand_wait(), Duration::ZERO);
    link.fill();
    let one = link.scheduler.demand_wait();
    assert!(one > Duration::ZERO);
    let other = link.scheduler.join(host(1));
    for ticket in 0..7 {
        link.offer(other, RequestClass::Demand, ticket);
        link.offer(other, RequestClass::Ahead, 100 + ticket);
    }
    let eight = link.scheduler.demand_wait();
    assert!(eight >= 8 * one && eight < 9 * one, "{one:?} {eight:?}");
}

/// Step of a test.
#[derive(Clone, Debug)]
enum Step {
    Join(usize),
    Leave(usize),
    Offer(usize, usize, usize),
    Finish(usize),
    Overrun(usize),
    Promote(usize, usize),
    Withdraw(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>;
    prop_oneof![
        1 => (0..3_usize).prop_map(Step::Join),
        1 => any().prop_map(Step::Leave),
        12 => (any(), 0..3_usize, prop_oneof![Just(4 << 10), Just(CHUNK), Just(1 << 20)])
            .prop_map(|(port, class, bytes)| Step::Offer(port, class, bytes)),
        8 => any().prop_map(Step::Finish),
        1 => any().prop_map(Step::Overrun),
        2 => (any(), 0..3_usize).prop_map(|(pick, class)| Step::Promote(pick, class)),
        2 => any().prop_map(Step::Withdraw),
        2 => (0..700_u64).prop_map(Step::Pass),
    ]
}

/// Any user of a scheduler, with a model of what it must do.
#[derive(Default)]
struct Model {
    /// Answers that wait: of whom, in which class.
    queued: HashMap<Ticket, (PortId, RequestClass)>,
    /// Connections, and whether they may write.
    ports: HashMap<PortId, bool>,
    next_ticket: Ticket,
    /// Slots granted to another class while a demand could have had it, since the last interval.
    preloads_first: u32,
}

impl Model {
    fn port(&self, pick: usize) -> Option<PortId> {
        let ports: BTreeSet<PortId> = self.ports.keys().copied().collect();
        ports.iter().nth(pick % ports.len().max(1)).copied()
    }

    fn ticket(&self, pick: usize) -> Option<Ticket> {
        let tickets: BTreeSet<Ticket> = self.queued.keys().copied().collect();
        tickets.iter().nth(pick % tickets.len().max(1)).copied()
    }

    /// The most urgent class of a connection that waits for a slot.
    fn most_urgent(&self) -> Option<RequestClass> {
        let waiting = self.queued.values().filter(|(port, _)| !self.ports[port]);
        waiting.map(|(_, class)| *class).max()
    }
}

fn check(model: &mut Model, link: &mut Link) -> Result<(), TestCaseError> {
    for id in std::mem::take(&mut link.granted) {
        let urgent = model.most_urgent();
        let mut tickets = Vec::new();
        link.scheduler.take_granted(id, &mut tickets);
        prop_assert!(!tickets.is_empty());
        prop_assert_eq!(model.ports.insert(id, true), Some(false), "one slot at a time");
        let mut class = None;
        for ticket in tickets {
            let (port, of) =
                model.queued.remove(&ticket).expect("granted once, and only if queued");
            prop_assert_eq!(port, id);
            prop_assert_eq!(*class.get_or_insert(of), of, "one class a slot");
        }
        if class != urgent {
            prop_assert_eq!(class, Some(RequestClass::Preload));
            model.preloads_first += 1;
        }
    }
    prop_assert!(model.preloads_first <= 1, "a preload goes first once in an interval");
    let scheduler = &link.scheduler;
    let held =
        scheduler.ports.iter().flatten().filter(|port| matches!(port.slot, Slot::Held { .. }));
    prop_assert_eq!(scheduler.slots_held, held.count());
    prop_assert!(scheduler.slots_held <= SLOTS);
    if scheduler.slots_held < SLOTS {
        prop_assert_eq!(model.most_urgent(), None, "a slot is free and somebody waits");
    }
    for class in RequestClass::ALL {
        let count = model.queued.values().filter(|(_, of)| *of == class).count();
        prop_assert_eq!(scheduler.queued()[class.index()], count);
    }
    Ok(())
}

fn take(step: Step, model: &mut Model, link: &mut Link) {
    let now = link.now;
    let (scheduler, granted) = (&mut link.scheduler, &mut link.granted);
    match step {
        Step::Join(number) => {
            model.ports.insert(scheduler.join(host(number)), false);
        }
        Step::Leave(pick) => {
            let Some(id) = model.port(pick) else { return };
            model.ports.remove(&id);
            model.queued.retain(|_, (port, _)| *port != id);
            scheduler.leave(id, now, granted);
        }
        Step::Offer(pick, class, bytes) => {
            let Some(id) = model.port(pick) else { return };
            let (ticket, class) = (model.next_ticket, RequestClass::ALL[class]);
            model.next_ticket += 1;
            if scheduler.offer(id, class, (ticket, bytes), now) {
                assert_eq!(model.ports.insert(id, true), Some(false), "one slot at a time");
            } else {
                model.queued.insert(ticket, (id, class));
            }
        }
        Step::Finish(pick) => {
            let Some(id) = model.port(pick) else { return };
            model.ports.insert(id, false);
            scheduler.finish(id, now, granted);
        }
        Step::Overrun(pick) => {
            let Some(id) = model.port(pick) else { return };
            scheduler.overrun(id, now, granted);
        }
        Step::Promote(pick, class) => {
            let Some(ticket) = model.ticket(pick) else { return };
            let (id, class) = (model.queued[&ticket].0, RequestClass::ALL[class]);
            if class > model.queued[&ticket].1 {
                assert!(scheduler.promote(id, ticket, class));
                model.queued.insert(ticket, (id, class));
            }
        }
        Step::Withdraw(pick) => {
            let Some(ticket) = model.ticket(pick) else { return };
            let (id, _) = model.queued.remove(&ticket).expect("picked among them");
            assert!(scheduler.withdraw(id, ticket));
            assert!(!scheduler.withdraw(id, ticket), "once");
        }
        Step::Pass(millis) => {
            link.now += Duration::from_millis(millis);
            // At least one interval lies between two such steps' sums; the count starts anew.
            model.preloads_first = 0;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever comes: never more slots than allowed, none free while somebody waits, the most urgent
    /// first, and each answer granted, withdrawn or dropped with its connection exactly once.
    #[test]
    fn proptest_order_holds_under_any_steps(steps in prop::collection::vec(step(), 1..200)) {
        let (mut link, mut model) = (Link::new(), Model::default());
        for step in steps {
            take(step, &mut model, &mut link);
            check(&mut model, &mut link)?;
        }
        // Whoever may write is done, and the others, until nothing waits.
        while let Some(id) = model.ports.iter().find_map(|(id, may)| may.then_some(*id)) {
            model.ports.insert(id, false);
            link.now += rules().preload_interval;
            model.preloads_first = 0;
            link.scheduler.finish(id, link.now, &mut link.granted);
            check(&mut model, &mut link)?;
        }
        prop_assert!(model.queued.is_empty());
        for id in model.ports.keys() {
            link.scheduler.leave(*id, link.now, &mut link.granted);
        }
        prop_assert!(link.granted.is_empty());
        prop_assert_eq!(link.scheduler.slots_held, 0);
        prop_assert!(link.scheduler.waiting.iter().all(RoundRobin::is_empty));
    }

    /// A demand that comes to full slots waits for those before it, one host's turn each, and for no
    /// other: at most one of each other host goes before the first of a host that had none.
    #[test]
    fn proptest_demand_is_not_starved(ahead in 0_usize..200, before in 0_usize..20, hosts in 1_usize..10) {
        let mut link = Link::new();
        let mut busy = link.fill();
        let others: Vec<PortId> = (0..hosts).map(|number| link.scheduler.join(host(number))).collect();
        for ticket in 0..ahead {
            link.offer(others[ticket % hosts], RequestClass::Ahead, ticket as u64);
        }
        for ticket in 0..before {
            link.offer(others[ticket % hosts], RequestClass::Demand, 1000 + ticket as u64);
        }
        let ours = link.scheduler.join(host(50));
        prop_assert!(!link.offer(ours, RequestClass::Demand, 9999));
        let mut waited = 0;
        loop {
            link.scheduler.finish(busy.remove(0), link.now, &mut link.granted);
            busy.append(&mut link.granted.clone());
            waited += 1;
            if link.written().contains(&9999) {
                break;
            }
        }
        prop_assert!(waited <= 1 + before.min(hosts));
    }
}
