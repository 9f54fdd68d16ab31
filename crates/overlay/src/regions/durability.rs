//! Durability in a volume's record: a class for the disk, others for regions of it.
//!
//! Source: Capo (FAST 2011) §5, differential durability.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{OverlayError, limits};

/// Durability class: the moment at which a write is acknowledged, and whether it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityClass {
    /// Acknowledged when durable here and on the origin.
    WriteThrough,
    /// Acknowledged when in the local log; pushed every period, in order.
    WriteBack,
    /// Never leaves the host.
    None,
}

/// Storage that a flush waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushTarget {
    /// The local disk.
    #[default]
    Local,
    /// The local disk and, but for regions of class `none`, the origin.
    Origin,
}

/// A part of a disk with a class of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionSpec {
    /// First byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// First byte after the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Instead of bytes: name of a GPT partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The region's class.
    pub class: DurabilityClass,
    /// Seconds between two pushes; the disk's where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_s: Option<f64>,
}

/// Durability of a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Durability {
    /// Class of whatever no region covers.
    pub default: DurabilityClass,
    /// Seconds between two pushes of class write-back.
    #[serde(default = "default_period")]
    pub period_s: f64,
    /// Regions; where two overlap, the later one counts.
    #[serde(default)]
    pub regions: Vec<RegionSpec>,
    /// Target that a flush waits for.
    #[serde(default)]
    pub flush: FlushTarget,
    /// Seconds that a request waits for an origin that does nothing before it fails; 0: without
    /// limit. Absent: as the host says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_timeout_s: Option<f64>,
}

/// Longest limit of a request that waits for the origin, seconds.
const IO_TIMEOUT_S_MAX: f64 = 86_400.0;
/// Shortest and longest period, seconds.
const PERIOD_S: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

fn default_period() -> f64 {
    30.0
}

impl Default for Durability {
    /// Write-back every 30 seconds.
    fn default() -> Durability {
        Durability {
            default: DurabilityClass::WriteBack,
            period_s: default_period(),
            regions: Vec::new(),
            flush: FlushTarget::Local,
            io_timeout_s: None,
        }
    }
}

impl Durability {
    /// Reads the JSON object `durability` of a volume's record.
    ///
    /// # Errors
    /// [`OverlayError::Invalid`] when it is none, or a value is out of range.
    pub fn parse(json: &str) -> Result<Durability, OverlayError> {
        let durability: Durability = serde_json::from_str(json)
            .map_err(|error| OverlayError::Invalid(format!("durability {json}: {error}")))?;
        durability.check()?;
        Ok(durability)
    }

    /// Returns whether a part of the disk is on this host alone.
    pub(crate) fn has_none(&self) -> bool {
        let classes = self.regions.iter().map(|region| region.class);
        classes.chain([self.default]).any(|class| class == DurabilityClass::None)
    }

    /// Checks ranges of values.
    ///
    /// # Errors
    /// [`OverlayError::Invalid`].
    pub fn check(&self) -> Result<(), OverlayError> {
        let invalid = |what: String| Err(OverlayError::Invalid(format!("durability: {what}")));
        if self.regions.len() > limits::REGIONS_MAX {
            return invalid(format!("more than {} regions", limits::REGIONS_MAX));
        }
        let periods = self.regions.iter().filter_map(|region| region.period_s);
        if let Some(period) = periods.chain([self.period_s]).find(|p| !PERIOD_S.contains(p)) {
            return invalid(format!("a period of {period} s is not from 0.1 to 86400 s"));
        }
        if let Some(limit) = self.io_timeout_s.filter(|s| !(0.0..=IO_TIMEOUT_S_MAX).contains(s)) {
            return invalid(format!("an I/O timeout of {limit} s is not from 0 to 86400 s"));
        }
        for region in &self.regions {
            match (region.first, region.last, &region.partition) {
                (None, None, Some(name)) if !name.is_empty() => {}
                (Some(first), Some(last), None)
                    if first < last && first % 512 == 0 && last % 512 == 0 => {}
                _ => {
                    return invalid(format!(
                        "a region has either a partition or first < last, multiples of 512: \
                         {region:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns how long a request waits for an origin that does nothing before it fails, `host`
    /// being the host's own limit; `None`: without limit.
    pub(crate) fn io_timeout(&self, host: Option<Duration>) -> Option<Duration> {
        match self.io_timeout_s {
            Some(seconds) => (seconds > 0.0).then(|| Duration::from_secs_f64(seconds)),
            None => host,
        }
    }

    /// Returns whether a region is named by a partition.
    pub(crate) fn has_partitions(&self) -> bool {
        self.regions.iter().any(|region| region.partition.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_record_holds() {
        let durability = Durability::parse(
            r#"{"default": "write-through", "period_s": 10, "regions": [
                {"first": 1048576, "last": 2097152, "class": "none"},
                {"partition": "swap", "class": "write-back", "period_s": 60}]}"#,
        );
        let durability = durability.unwrap();
        assert_eq!(durability.default, DurabilityClass::WriteThrough);
        assert_eq!(durability.flush, FlushTarget::Local);
        assert_eq!(durability.regions[1].period_s, Some(60.0));
        assert!(durability.has_partitions());
    }

    #[test]
    fn requests_wait_without_limit_unless_somebody_says_so() {
        let limit = |json: &str, host| Durability::parse(json).unwrap().io_timeout(host);
        let host = Some(Duration::from_secs(60));
        assert_eq!(limit(r#"{"default": "none"}"#, None), None);
        assert_eq!(limit(r#"{"default": "none"}"#, host), host);
        assert_eq!(limit(r#"{"default": "none", "io_timeout_s": 0}"#, host), None);
        let seconds = Some(Duration::from_secs_f64(1.5));
        assert_eq!(limit(r#"{"default": "none", "io_timeout_s": 1.5}"#, host), seconds);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for json in [
            r#"{"default": "write-behind"}"#,
            r#"{"default": "none", "period_s": 0}"#,
            r#"{"default": "none", "io_timeout_s": -1}"#,
            r#"{"default": "none", "io_timeout_s": 100000}"#,
            r#"{"default": "none", "regions": [{"class": "none"}]}"#,
            r#"{"default": "none", "regions": [{"first": 512, "last": 512, "class": "none"}]}"#,
            r#"{"default": "none", "regions": [{"first": 0, "last": 513, "class": "none"}]}"#,
            r#"{"default": "none", "regions": [{"first": 0, "last": 512, "partition": "a",
                "class": "none"}]}"#,
            r#"{"default": "none", "regions": [{"partition": "", "class": "none"}]}"#,
        ] {
            assert!(Durability::parse(json).is_err(), "{json}");
        }
    }
}
