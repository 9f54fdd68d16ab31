//! The rate of a session: additive increase, multiplicative decrease.

use std::collections::VecDeque;

use super::judge::Verdict;
use super::state::SessionEnd;
use crate::limits::{
    LINK_BUSY, LOSS_CARRIED_MAX, LOSS_CLEAN_MAX, LOSSY_EPOCHS, LOSSY_EPOCHS_MIN, RATE_BACK_OFF,
    RATE_MAX, RATE_MIN, RATE_START, RATE_STEP,
};

/// Rate of a session.
///
/// Source: Capo, section 4.2.1 ("additive increase / multiplicative decrease with aggressive back-off"). Differs:
/// the loss is that of the quantile [`crate::limits::LOSS_QUANTILE`] of the members that report; a link that its
/// host tells to be full counts like loss, since TCP on it gives way before packets are lost; a decrease is not
/// repeated for what was sent before it; and loss of the median that does not give way to any rate ends the session.
#[derive(Clone, Debug)]
pub struct RateLaw {
    link: f64,
    share: f64,
    /// Greatest share.
    share_max: f64,
    /// Loss above which the session has no use.
    carried: f64,
    /// Epoch that was open at the last decrease.
    cut_in: Option<u32>,
    /// Packets sent and lost in the last judged epochs.
    recent: VecDeque<(f64, f64)>,
    cuts: u64,
}

impl RateLaw {
    /// Returns the law of a sender with a link of so many bytes per second.
    pub fn new(link_bytes_per_s: u64, has_parity: bool) -> RateLaw {
        RateLaw {
            link: link_bytes_per_s.max(1) as f64,
            share: RATE_START,
            share_max: RATE_MAX,
            carried: if has_parity { LOSS_CARRIED_MAX } else { LOSS_CLEAN_MAX },
            cut_in: None,
            recent: VecDeque::with_capacity(LOSSY_EPOCHS),
            cuts: 0,
        }
    }

    /// Returns the law with a rate of at most so many bytes per second, or the least rate where that is more.
    pub fn limited_to(mut self, bytes_per_s: u64) -> RateLaw {
        self.share_max = (bytes_per_s as f64 / self.link).clamp(RATE_MIN, RATE_MAX);
        self.share = self.share.min(self.share_max);
        self
    }

    /// Bytes per second, headers included.
    pub fn rate(&self) -> f64 {
        self.link * self.share
    }

    /// Share of the link.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Number of decreases.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Takes the verdict on an epoch while `open` is under way; returns whether the session must end.
    pub fn judge(&mut self, verdict: &Verdict, open: u32) -> Option<SessionEnd> {
        self.remember(verdict);
        if self.is_hopeless() {
            return Some(SessionEnd::Lossy);
        }
        // Sent at a rate that is no more.
        if self.cut_in.is_some_and(|cut_in| verdict.epoch <= cut_in) {
            return None;
        }
        if verdict.loss > LOSS_CLEAN_MAX || verdict.link_used > LINK_BUSY {
            self.share = (self.share * RATE_BACK_OFF).max(RATE_MIN);
            self.cut_in = Some(open);
            self.cuts += 1;
        } else {
            self.share = (self.share + RATE_STEP).min(self.share_max);
        }
        None
    }

    fn remember(&mut self, verdict: &Verdict) {
        if self.recent.len() == LOSSY_EPOCHS {
            self.recent.pop_front();
        }
        let sent = f64::from(verdict.sent);
        self.recent.push_back((sent, sent * verdict.median_loss));
    }

    fn is_hopeless(&self) -> bool {
        let sum = |(sent, lost): (f64, f64), one: &(f64, f64)| (sent + one.0, lost + one.1);
        let (sent, lost) = self.recent.iter().fold((0.0, 0.0), sum);
        let is_lossy = |(sent, lost): &&(f64, f64)| *lost > sent * self.carried;
        self.recent.len() == LOSSY_EPOCHS
            && lost > sent * self.carried
            && self.recent.iter().filter(is_lossy).count() >= LOSSY_EPOCHS_MIN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINK: u64 = 125_000_000;

    fn verdict(epoch: u32, loss: f64, link_used: f64) -> Verdict {
        Verdict { epoch, sent: 100, loss, median_loss: loss, link_used, is_heard: true }
    }

    /// The law after `epochs` of which each has the loss and link that `network` gives for the share.
    fn run(law: &mut RateLaw, epochs: u32, network: impl Fn(u32, f64) -> (f64, f64)) -> Vec<f64> {
        let mut shares = Vec::new();
        for open in 2..epochs + 2 {
            shares.push(law.share());
            let (loss, used) = network(open - 2, law.share());
            if law.judge(&verdict(open - 2, loss, used), open).is_some() {
                break;
            }
        }
        shares
    }

    #[test]
    fn test_judge_clean_epochs_add_a_hundredth_each_up_to_half_of_the_link() {
        let mut law = RateLaw::new(LINK, true);
        assert_eq!(law.rate(), 1_250_000.0);
        let shares = run(&mut law, 100, |_, _| (0.0, 0.3));
        assert!((shares[10] - 0.11).abs() < 1e-9);
        assert_eq!(law.share(), RATE_MAX);
    }

    #[test]
    fn test_judge_a_limit_is_kept() {
        let mut law = RateLaw::new(LINK, true).limited_to(LINK / 10);
        run(&mut law, 100, |_, _| (0.0, 0.0));
        assert_eq!(law.rate(), LINK as f64 / 10.0);
        assert_eq!(RateLaw::new(LINK, true).limited_to(0).share(), RATE_MIN);
    }

    #[test]
    fn test_judge_one_loss_halves_once() {
        let mut law = RateLaw::new(LINK, true);
        run(&mut law, 20, |_, _| (0.0, 0.0));
        let before = law.share();
        assert_eq!(law.judge(&verdict(20, 0.1, 0.0), 22), None);
        // What was sent until the decrease is lost as well, and changes nothing more.
        assert_eq!(law.judge(&verdict(21, 0.1, 0.0), 23), None);
        assert_eq!(law.judge(&verdict(22, 0.1, 0.0), 24), None);
        assert_eq!(law.share(), before / 2.0);
        assert_eq!(law.judge(&verdict(23, 0.1, 0.0), 25), None);
        assert_eq!((law.share(), law.cuts()), (before / 4.0, 2));
    }

    #[test]
    fn test_judge_a_full_link_counts_like_loss() {
        let mut law = RateLaw::new(LINK, true);
        run(&mut law, 20, |_, _| (0.0, 0.0));
        let before = law.share();
        law.judge(&verdict(20, 0.0, 0.95), 22);
        assert_eq!(law.share(), before / 2.0);
    }

    #[test]
    fn test_judge_loss_by_its_own_rate_finds_the_free_share() {
        // A fifth of the link is free; what is above is lost.
        let network = |_, share: f64| (((share - 0.2) / share).max(0.0), 0.0);
        let mut law = RateLaw::new(LINK, true);
        let shares = run(&mut law, 1_000, network);
        assert_eq!(shares.len(), 1_000, "such loss never ends a session");
        let late = &shares[500..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert!((0.12..0.2).contains(&mean), "{mean}");
        assert!(late.iter().all(|share| *share <= 0.2 + 2.0 * RATE_STEP + 1e-9));
    }

    #[test]
    fn test_judge_loss_that_no_rate_cures_ends_what_parity_does_not_carry() {
        for (loss, has_parity, ends) in
            [(0.01, true, false), (0.03, true, true), (0.01, false, true), (0.004, false, false)]
        {
            let mut law = RateLaw::new(LINK, has_parity);
            let epochs = run(&mut law, 300, |_, _| (loss, 0.0)).len();
            assert_eq!(epochs < 300, ends, "{loss} {has_parity}");
        }
    }

    #[test]
    fn test_judge_a_burst_of_loss_ends_nothing() {
        let mut law = RateLaw::new(LINK, true);
        let network = |epoch, _| (if epoch % 40 < 3 { 0.9 } else { 0.0 }, 0.0);
        assert_eq!(run(&mut law, 400, network).len(), 400);
    }

    proptest! {
        #[test]
        fn test_judge_any_reports_keep_the_rate_between_its_bounds(
            reports in prop::collection::vec((0.0_f64..=1.0, 0.0_f64..=1.0), 1..400),
        ) {
            let mut law = RateLaw::new(LINK, true);
            for (open, (loss, used)) in (2..).zip(reports) {
                let before = law.share();
                let is_clean = loss <= LOSS_CLEAN_MAX && used <= LINK_BUSY;
                if law.judge(&verdict(open - 2, loss, used), open).is_some() {
                    break;
                }
                prop_assert!((RATE_MIN..=RATE_MAX).contains(&law.share()));
                prop_assert!(law.share() <= before + RATE_STEP);
                prop_assert!(is_clean || law.share() <= before, "no loss ever adds");
            }
        }
    }
}
