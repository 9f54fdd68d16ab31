//! The reports on an epoch, and the verdict on it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::draw::is_drawn;
use crate::limits::{HEARD_MIN, JUDGED_AFTER, LOSS_QUANTILE, MEMBERS_MAX, SILENT_EPOCHS_MAX};

/// Verdict on an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The epoch.
    pub epoch: u32,
    /// Packets sent in it.
    pub sent: u32,
    /// Share lost, of the quantile [`LOSS_QUANTILE`] of the members drawn.
    pub loss: f64,
    /// Share lost, of the median of the members drawn.
    pub median_loss: f64,
    /// Greatest share of a link in use that a drawn member told; 0 where none did.
    pub link_used: f64,
    /// True if at least half of the members drawn heard [`HEARD_MIN`] of it.
    pub is_heard: bool,
}

/// Outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// It counts.
    Taken,
    /// It came too late, twice, or from a member that was not drawn.
    Ignored,
    /// It cannot be true: the member is barred for the rest of the session.
    Barred,
    /// It is of no member, or of one that is barred.
    Stranger,
}

#[derive(Clone, Debug)]
struct Member {
    host: IpAddr,
    is_barred: bool,
    /// Epochs in a row for which it was drawn and silent.
    silent: u32,
}

#[derive(Clone, Debug)]
struct Epoch {
    number: u32,
    sent: u32,
    drawn: u16,
    /// Packets received and link in use, by member.
    reports: HashMap<u32, (u32, f64)>,
}

/// Members of a session and their reports; memory bounded by [`MEMBERS_MAX`].
#[derive(Clone, Debug)]
pub struct Judge {
    session: u64,
    next_member: u32,
    members: HashMap<u32, Member>,
    /// Those that have ended and are not judged.
    epochs: VecDeque<Epoch>,
}

impl Judge {
    /// Returns the judge of a session without members.
    pub fn new(session: u64) -> Judge {
        Judge { session, next_member: 0, members: HashMap::new(), epochs: VecDeque::new() }
    }

    /// Takes a host in as a member; `None` where the session is full.
    pub fn join(&mut self, host: IpAddr) -> Option<u32> {
        if self.members.len() >= MEMBERS_MAX {
            return None;
        }
        let member = self.next_member;
        self.next_member = member.checked_add(1)?;
        self.members.insert(member, Member { host, is_barred: false, silent: 0 });
        Some(member)
    }

    /// Forgets a member that leaves; of another host's nothing is changed.
    pub fn leave(&mut self, host: IpAddr, member: u32) {
        if self.members.get(&member).is_some_and(|known| known.host == host) {
            self.members.remove(&member);
        }
    }

    /// Number of members, barred ones left out.
    pub fn members(&self) -> usize {
        self.members.values().filter(|member| !member.is_barred).count()
    }

    /// Number of members barred.
    pub fn barred(&self) -> usize {
        self.members.values().filter(|member| member.is_barred).count()
    }

    /// Notes the end of an epoch in which `sent` packets went out, with the share of members drawn for it.
    pub fn end_epoch(&mut self, number: u32, sent: u32, drawn: u16) {
        self.epochs.push_back(Epoch { number, sent, drawn, reports: HashMap::new() });
    }

    /// Takes the report of a member on an epoch while `open` is under way.
    pub fn report(
        &mut self,
        (host, member): (IpAddr, u32),
        (epoch, packets): (u32, u32),
        link_used: Option<f64>,
        open: u32,
    ) -> ReportOutcome {
        let known = self.members.get_mut(&member).filter(|known| known.host == host);
        let Some(known) = known.filter(|known| !known.is_barred) else {
            return ReportOutcome::Stranger;
        };
        let ended = self.epochs.iter_mut().find(|ended| ended.number == epoch);
        // Nobody can know how an epoch ends that has not.
        let is_possible = epoch < open && ended.as_ref().is_none_or(|ended| packets <= ended.sent);
        if !is_possible {
            known.is_barred = true;
            return ReportOutcome::Barred;
        }
        let Some(ended) = ended else { return ReportOutcome::Ignored };
        if !is_drawn(self.session, epoch, member, ended.drawn)
            || ended.reports.contains_key(&member)
        {
            return ReportOutcome::Ignored;
        }
        ended.reports.insert(member, (packets, link_used.unwrap_or(0.0)));
        ReportOutcome::Taken
    }

    /// Judges the epoch that is due while `open` is under way; `None`: none is, or nobody was drawn.
    pub fn judge(&mut self, open: u32) -> Option<Verdict> {
        let is_due = |ended: &Epoch| ended.number.saturating_add(JUDGED_AFTER) <= open;
        if !self.epochs.front().is_some_and(is_due) {
            return None;
        }
        let ended = self.epochs.pop_front()?;
        let (mut lost, mut drawn, mut hearing) = (Vec::new(), 0_usize, 0_usize);
        for (number, member) in self.members.iter_mut().filter(|(_, member)| !member.is_barred) {
            if !is_drawn(self.session, ended.number, *number, ended.drawn) {
                continue;
            }
            drawn += 1;
            let report = ended.reports.get(number);
            member.silent = if report.is_some() { 0 } else { member.silent.saturating_add(1) };
            let received = report.map_or(0, |(packets, _)| *packets);
            hearing += usize::from(f64::from(received) >= HEARD_MIN * f64::from(ended.sent));
            if member.silent < SILENT_EPOCHS_MAX {
                lost.push(ended.sent.saturating_sub(received));
            }
        }
        if drawn == 0 {
            return None;
        }
        lost.sort_unstable();
        let share = |lost: u32| f64::from(lost) / f64::from(ended.sent.max(1));
        let links = ended.reports.values().map(|(_, link_used)| *link_used);
        Some(Verdict {
            epoch: ended.number,
            sent: ended.sent,
            // One packet is no sign: in an epoch of 86 it is more than the loss that is clean.
            loss: Some(quantile(&lost, LOSS_QUANTILE)).filter(|lost| *lost > 1).map_or(0.0, share),
            median_loss: share(quantile(&lost, 0.5)),
            link_used: links.fold(0.0, f64::max),
            is_heard: hearing * 2 >= drawn,
        })
    }
}

/// A quantile of ascending numbers, by the nearest rank; 0 of none.
fn quantile(ascending: &[u32], quantile: f64) -> u32 {
    let rank = (ascending.len() as f64 * quantile).ceil() as usize;
    ascending.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn host(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    fn judge_of(members: u32) -> Judge {
        let mut judge = Judge::new(1);
        (0..members).for_each(|number| assert_eq!(judge.join(host(number)), Some(number)));
        judge
    }

    /// Ends `epoch` with 1,000 packets of which each member receives what `received` says, and judges it.
    fn epoch(
        judge: &mut Judge,
        epoch: u32,
        received: impl Fn(u32) -> Option<u32>,
    ) -> Option<Verdict> {
        judge.end_epoch(epoch, 1_000, u16::MAX);
        for member in 0..judge.next_member {
            if let Some(packets) = received(member) {
                judge.report((host(member), member), (epoch, packets), None, epoch + 1);
            }
        }
        judge.judge(epoch + JUDGED_AFTER)
    }

    #[test]
    fn test_judge_the_slowest_tenth_is_left_out() {
        let mut judge = judge_of(10);
        let one = epoch(&mut judge, 0, |member| Some(if member == 4 { 0 } else { 1_000 }));
        assert_eq!(one.unwrap().loss, 0.0);
        let two = epoch(&mut judge, 1, |member| Some(if member < 2 { 900 } else { 1_000 }));
        assert_eq!(two.unwrap().loss, 0.1);
    }

    #[test]
    fn test_judge_is_due_two_epochs_later() {
        let mut judge = judge_of(1);
        judge.end_epoch(0, 10, u16::MAX);
        judge.end_epoch(1, 10, u16::MAX);
        assert_eq!(judge.clone().judge(1), None);
        assert_eq!(judge.judge(2).unwrap().epoch, 0);
    }

    #[test]
    fn test_judge_a_report_outside_of_what_was_sent_bars_its_host() {
        let mut judge = judge_of(3);
        judge.end_epoch(0, 1_000, u16::MAX);
        let mut report = |member, epoch, packets| {
            judge.report((host(member), member), (epoch, packets), None, 1)
        };
        assert_eq!(report(0, 0, 1_001), ReportOutcome::Barred);
        assert_eq!(report(0, 0, 1_000), ReportOutcome::Stranger);
        assert_eq!(report(1, 1, 0), ReportOutcome::Barred, "of an epoch that has not ended");
        assert_eq!(report(2, 0, 1_000), ReportOutcome::Taken);
        assert_eq!(report(2, 0, 0), ReportOutcome::Ignored, "the second one");
        assert_eq!((judge.members(), judge.barred()), (1, 2));
        assert!(judge.judge(2).unwrap().is_heard);
    }

    #[test]
    fn test_judge_nobody_reports_in_the_name_of_another() {
        let mut judge = judge_of(2);
        judge.end_epoch(0, 1_000, u16::MAX);
        let forged = judge.report((host(0), 1), (0, 5_000), None, 1);
        assert_eq!((forged, judge.barred()), (ReportOutcome::Stranger, 0));
        judge.leave(host(0), 1);
        assert_eq!(judge.members(), 2);
        judge.leave(host(1), 1);
        assert_eq!(judge.members(), 1);
    }

    #[test]
    fn test_judge_silence_is_loss_for_a_second_and_deafness_for_ever() {
        let mut judge = judge_of(4);
        for number in 0..20 {
            let verdict = epoch(&mut judge, number, |member| (member > 0).then_some(1_000));
            let verdict = verdict.unwrap();
            assert_eq!(verdict.loss > 0.0, number + 1 < SILENT_EPOCHS_MAX, "{number}");
            assert!(verdict.is_heard);
        }
        let mut judge = judge_of(4);
        for number in 0..20 {
            let verdict = epoch(&mut judge, number, |member| (member > 2).then_some(1_000));
            assert!(!verdict.unwrap().is_heard);
        }
    }

    #[test]
    fn test_judge_half_that_hear_nine_tenths_are_enough() {
        for (hears, is_heard) in [(900, true), (899, false)] {
            let mut judge = judge_of(4);
            let verdict = epoch(&mut judge, 0, |member| Some(if member < 2 { hears } else { 0 }));
            assert_eq!(verdict.unwrap().is_heard, is_heard);
        }
    }

    #[test]
    fn test_judge_one_packet_is_no_loss_and_counts_for_the_median() {
        let mut judge = judge_of(3);
        let verdict = epoch(&mut judge, 0, |_| Some(999)).unwrap();
        assert_eq!((verdict.loss, verdict.median_loss), (0.0, 0.001));
        let verdict = epoch(&mut judge, 1, |member| (member > 0).then_some(990)).unwrap();
        assert_eq!((verdict.loss, verdict.median_loss), (1.0, 0.01));
    }

    #[test]
    fn test_judge_takes_the_fullest_link() {
        let mut judge = judge_of(2);
        judge.end_epoch(0, 10, u16::MAX);
        judge.report((host(0), 0), (0, 10), Some(0.4), 1);
        judge.report((host(1), 1), (0, 10), Some(0.95), 1);
        assert_eq!(judge.judge(2).unwrap().link_used, 0.95);
    }

    proptest! {
        #[test]
        fn test_judge_any_reports_give_shares(
            reports in prop::collection::vec((0_u32..30, 0_u32..4, 0_u32..3_000), 0..200),
            members in 0_u32..30,
        ) {
            let mut judge = judge_of(members);
            for open in 0_u32..4 {
                for (member, epoch, packets) in &reports {
                    judge.report((host(*member), *member), (*epoch, *packets), None, open);
                }
                judge.end_epoch(open, 1_000, u16::MAX);
                if let Some(verdict) = judge.judge(open) {
                    prop_assert!((0.0..=1.0).contains(&verdict.loss));
                    prop_assert_eq!(verdict.sent, 1_000);
                }
            }
            prop_assert!(judge.epochs.len() <= 1 + JUDGED_AFTER as usize);
        }
    }
}
