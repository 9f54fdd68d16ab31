//! The class of a pack: whose chunks it holds.

/// Class of a pack by its chunks; packs of different classes may be kept apart in the origin.
///
/// Hosts write the packs of volumes and only read those of images, so a store with rights for each
/// class bounds what one host can damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PackClass {
    /// Of images; written by registrars.
    Image = 1,
    /// Of volumes; written by the hosts that serve them.
    Volume = 2,
}

impl PackClass {
    /// Every class.
    pub const ALL: [PackClass; 2] = [PackClass::Image, PackClass::Volume];

    /// The class of a number; `None` where this build knows none.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(PackClass::Image),
            2 => Some(PackClass::Volume),
            _ => None,
        }
    }

    /// The class's name as commands and Python write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            PackClass::Image => "image",
            PackClass::Volume => "volume",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PackClass;

    #[test]
    fn from_number_knows_every_class_and_no_other() {
        for class in PackClass::ALL {
            assert_eq!(PackClass::from_number(class as u8), Some(class));
        }
        for number in [0, 3, 0xff] {
            assert_eq!(PackClass::from_number(number), None);
        }
    }
}
