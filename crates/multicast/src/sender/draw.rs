//! The draw of the members that report an epoch.

use acstor_types::Digest;

use crate::limits::REPORTERS;

/// Returns the share of `members` that reports an epoch, in 65,535ths: all of few, [`REPORTERS`] of many.
pub fn drawn_share(members: usize) -> u16 {
    let share = u64::from(REPORTERS) * u64::from(u16::MAX) / (members.max(1) as u64);
    u16::try_from(share).unwrap_or(u16::MAX)
}

/// Returns whether a member reports an epoch of a session. Sender and members come to the same, and no member
/// is drawn always or never.
pub fn is_drawn(session: u64, epoch: u32, member: u32, share: u16) -> bool {
    if share == u16::MAX {
        return true;
    }
    let (session, epoch, member) =
        (session.to_le_bytes(), epoch.to_le_bytes(), member.to_le_bytes());
    let drawn = Digest::of_parts(&[&session, &epoch, &member]).prefix_u64();
    drawn % u64::from(u16::MAX) < u64::from(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_is_drawn_all_of_few_report() {
        assert_eq!(drawn_share(0), u16::MAX);
        assert_eq!(drawn_share(16), u16::MAX);
        assert!((0..16).all(|member| is_drawn(1, 2, member, drawn_share(16))));
    }

    #[test]
    fn test_is_drawn_about_sixteen_of_many_report_in_turn() {
        let members = 1_000;
        let share = drawn_share(members as usize);
        let mut by_member = vec![0; members as usize];
        for epoch in 0..1_000 {
            let drawn = (0..members).filter(|member| is_drawn(7, epoch, *member, share));
            let drawn: Vec<_> = drawn.collect();
            assert!((1..45).contains(&drawn.len()), "{epoch}: {}", drawn.len());
            drawn.iter().for_each(|member| by_member[*member as usize] += 1);
        }
        assert!(by_member.iter().all(|count| (1..50).contains(count)), "{by_member:?}");
    }
}
