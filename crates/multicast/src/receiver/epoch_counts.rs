//! The packets of each epoch, and the reports that are due.

use std::time::Duration;

use crate::limits::REPORT_DELAY;
use crate::sender::is_drawn;
use crate::wire::PacketHeader;

/// Report to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueReport {
    /// The epoch.
    pub epoch: u32,
    /// Different packets of it that came.
    pub packets: u32,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    epoch: u32,
    drawn: u16,
    packets: u32,
}

/// Counts of the epoch under way and of the one before.
#[derive(Clone, Debug)]
pub struct EpochCounts {
    session: u64,
    member: u32,
    current: Option<Counted>,
    /// The one before, and the time at which it is reported.
    previous: Option<(Counted, Duration)>,
}

impl EpochCounts {
    /// Returns the counts of a member that has heard nothing.
    pub fn new(session: u64, member: u32) -> EpochCounts {
        EpochCounts { session, member, current: None, previous: None }
    }

    /// Counts a packet that came at `now` for the first time. Of an epoch that was reported it is lost.
    pub fn count(&mut self, header: &PacketHeader, now: Duration) {
        let PacketHeader { epoch, drawn, .. } = *header;
        match &mut self.current {
            Some(current) if current.epoch == epoch => current.packets += 1,
            Some(current) if current.epoch < epoch => {
                self.previous = Some((*current, now + REPORT_DELAY));
                self.current = Some(Counted { epoch, drawn, packets: 1 });
            }
            Some(_) => match &mut self.previous {
                Some((previous, _)) if previous.epoch == epoch => previous.packets += 1,
                _ => {}
            },
            None => self.current = Some(Counted { epoch, drawn, packets: 1 }),
        }
    }

    /// Returns the time at which the next report is due.
    pub fn due_at(&self) -> Option<Duration> {
        self.previous.map(|(_, at)| at)
    }

    /// Takes the report that is due at `now`; `None` where none is, or the member was not drawn.
    pub fn take_due(&mut self, now: Duration) -> Option<DueReport> {
        let (Counted { epoch, drawn, packets }, _) = self.previous.take_if(|(_, at)| *at <= now)?;
        let is_drawn = is_drawn(self.session, epoch, self.member, drawn);
        is_drawn.then_some(DueReport { epoch, packets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(epoch: u32, drawn: u16) -> PacketHeader {
        PacketHeader { drawn, epoch, session: 1, number: 0 }
    }

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn test_take_due_an_epoch_is_reported_once_after_those_that_overtook() {
        let mut counts = EpochCounts::new(1, 0);
        let all = u16::MAX;
        for (epoch, at) in [(4, 0), (4, 1), (5, 100), (4, 110), (5, 120)] {
            counts.count(&header(epoch, all), milliseconds(at));
        }
        assert_eq!(counts.due_at(), Some(milliseconds(150)));
        assert_eq!(counts.take_due(milliseconds(149)), None);
        let report = DueReport { epoch: 4, packets: 3 };
        assert_eq!(counts.take_due(milliseconds(150)), Some(report));
        assert_eq!(counts.take_due(milliseconds(151)), None);
        counts.count(&header(4, all), milliseconds(160));
        counts.count(&header(6, all), milliseconds(200));
        let report = DueReport { epoch: 5, packets: 2 };
        assert_eq!(counts.take_due(milliseconds(300)), Some(report));
    }

    #[test]
    fn test_take_due_a_member_that_was_not_drawn_is_silent() {
        let mut counts = EpochCounts::new(1, 0);
        counts.count(&header(0, 0), milliseconds(0));
        counts.count(&header(1, 0), milliseconds(100));
        assert_eq!(counts.take_due(milliseconds(500)), None);
        assert_eq!(counts.due_at(), None);
    }
}
