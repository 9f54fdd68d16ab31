//! The part of a link that chunks get beside traffic that fills it without regard to others.

use crate::tree::Direction;

/// Part of a full link that is left to chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeftShare {
    /// This part, whatever moves over the link.
    Constant(f64),
    /// As measured, by the number of chunks that move over the link and by its direction.
    ///
    /// `python -m bench.acstor left-share`, 2026-11-22: the mean of the medians of CUBIC and BBR, of
    /// UDP at 100 and at 110 % of a link, by connections.
    Measured,
}

impl Default for LeftShare {
    fn default() -> LeftShare {
        LeftShare::Constant(0.0)
    }
}

/// Numbers of connections that were measured.
const CONNECTIONS: [f64; 3] = [1.0, 4.0, 16.0];
/// Of a link over which a host fetches.
const FETCHING: [f64; 3] = [0.116, 0.152, 0.446];
/// Of a link over which a host serves.
const SERVING: [f64; 3] = [0.051, 0.079, 0.190];

impl LeftShare {
    /// Returns the part of a link over which so many chunks move.
    pub(crate) fn of(self, chunks: u32, direction: Direction) -> f64 {
        match self {
            LeftShare::Constant(share) => share,
            LeftShare::Measured => match direction {
                Direction::Up => between(&SERVING, chunks),
                Direction::Down => between(&FETCHING, chunks),
            },
        }
    }

    /// Returns the largest part that a link may have left.
    pub(crate) fn most(self) -> f64 {
        match self {
            LeftShare::Constant(share) => share,
            LeftShare::Measured => FETCHING[2].max(SERVING[2]),
        }
    }
}

/// Returns a share by the number of connections: a power of it between two that were measured,
/// beyond them the nearest.
fn between(shares: &[f64; 3], chunks: u32) -> f64 {
    let count = f64::from(chunks).clamp(CONNECTIONS[0], CONNECTIONS[2]);
    let at = usize::from(count > CONNECTIONS[1]);
    let part = (count / CONNECTIONS[at]).ln() / (CONNECTIONS[at + 1] / CONNECTIONS[at]).ln();
    shares[at] * (shares[at + 1] / shares[at]).powf(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_shares_are_met_and_grow_between_them() {
        let of = |chunks, direction| LeftShare::Measured.of(chunks, direction);
        for (direction, shares) in [(Direction::Up, SERVING), (Direction::Down, FETCHING)] {
            for (count, share) in [1, 4, 16].into_iter().zip(shares) {
                assert!((of(count, direction) - share).abs() < 1e-12, "{count}");
            }
            assert!((0..40).all(|count| of(count, direction) <= of(count + 1, direction)));
            assert_eq!(of(0, direction), of(1, direction));
            assert_eq!(of(100, direction), of(16, direction));
            assert!(of(16, direction) <= LeftShare::Measured.most());
        }
    }

    #[test]
    fn constant_is_one_for_all() {
        let share = LeftShare::Constant(0.17);
        assert_eq!((share.of(1, Direction::Up), share.of(99, Direction::Down)), (0.17, 0.17));
        assert_eq!(share.most(), 0.17);
    }
}
