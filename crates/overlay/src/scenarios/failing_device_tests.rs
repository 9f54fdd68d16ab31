//! A log on a real file system whose device fails: what a sync has covered is there, whenever and
//! however the log is opened again.

use std::sync::Arc;

use acstor_testkit::seeded_rng;
use acstor_types::DiskId;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::OverlayError;
use crate::log::LocalLog;
use crate::regions::RegionMap;
use crate::regions::durability::Durability;
use crate::scenarios::failing_device::FailingDevice;
use crate::scenarios::log_crash::seeds;
use crate::scenarios::write_history::{SECTORS, WriteHistory};
use crate::segments::disk::{HostDirectory, LogDisk};
use crate::segments::quota::LogConfig;
use crate::segments::recovery::{create_log, open_log};

const CONFIG: LogConfig =
    LogConfig { segment_bytes: 256 << 10, quota_bytes: 8 << 20, reserve_bytes: 0 };
const VOLUME: DiskId = DiskId::from_bytes([3; 16]);
const STEPS: u32 = 160;

/// Circumstances in which a log is opened again.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Its process was killed; the device still fails.
    Killed,
    /// The device was healed first.
    Healed,
    /// The file system was unmounted, while the device still failed.
    Unmounted,
    /// The host lost its power.
    PowerLost,
}

struct Run {
    rng: ChaCha8Rng,
    /// Before the device: what is open keeps it.
    log: Option<LocalLog>,
    device: FailingDevice,
    history: WriteHistory,
    failures: u32,
}

fn regions() -> Arc<RegionMap> {
    Arc::new(RegionMap::new(&Durability::default(), &[]))
}

impl Run {
    fn new(mut rng: ChaCha8Rng) -> Result<Run, String> {
        let errors = ["continue", "remount-ro"][rng.random_range(0..2)];
        let device = FailingDevice::new(errors)?;
        let disk: Arc<dyn LogDisk> =
            Arc::new(HostDirectory::open(&device.mounted().join("log")).unwrap());
        let log = create_log(&disk, CONFIG, regions()).unwrap();
        log.checkpoint(VOLUME, 1).unwrap();
        let log = Some(log);
        Ok(Run { rng, device, log, history: WriteHistory::new(), failures: 0 })
    }

    /// Writes and syncs, with a device that fails from some moment on, or for some time.
    fn go_on(&mut self) {
        let fails_at = self.rng.random_range(0..STEPS);
        let heals_at = fails_at + self.rng.random_range(1..STEPS);
        for step in 0..STEPS {
            if step == fails_at {
                self.device.fail(self.rng.random_range(0..4) * self.rng.random_range(0..40));
            }
            if step == heals_at {
                self.device.heal();
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let Some(log) = &self.log else { return };
        let is_done = match self.rng.random_range(0..100) {
            0..60 => {
                let start = self.rng.random_range(0..SECTORS);
                let end = (start + self.rng.random_range(1..=120)).min(SECTORS);
                self.history.write(log, start, end, self.rng.random_bool(0.1))
            }
            60..85 => self.history.sync(log),
            85..90 => log.checkpoint(VOLUME, 1).is_ok(),
            90..94 => log.keep(VOLUME, 1, 64 << 10).is_ok(),
            94..97 => log.make_room(VOLUME, 1).is_ok(),
            _ => {
                let later = std::time::Instant::now() + std::time::Duration::from_secs(60);
                log.upkeep.writeback.start(&log.records, later);
                true
            }
        };
        self.failures += u32::from(!is_done);
    }

    fn end(&mut self) -> End {
        self.log = None;
        let ends = [End::Killed, End::Healed, End::Unmounted, End::PowerLost];
        let end = ends[self.rng.random_range(0..ends.len())];
        match end {
            End::Killed => {}
            End::Healed => self.device.heal(),
            End::Unmounted => self.remount(false),
            End::PowerLost => self.remount(true),
        }
        end
    }

    fn remount(&mut self, is_power_lost: bool) {
        if is_power_lost {
            self.device.lose_power();
        }
        self.device.unmount().unwrap();
        self.device.heal();
        self.device.mount().unwrap();
    }

    /// Opens the log; where the file system lets nobody write any more once more after the disk was
    /// repaired.
    fn open(&mut self) {
        let recovered = match self.open_once() {
            Err(
                OverlayError::Io { .. } | OverlayError::NoSpace(_) | OverlayError::Unavailable(_),
            ) => {
                self.remount(false);
                self.open_once().unwrap()
            }
            outcome => outcome.unwrap(),
        };
        self.history.check(&recovered, false);
        self.log = Some(recovered);
    }

    fn open_once(&self) -> Result<LocalLog, OverlayError> {
        let path = self.device.mounted().join("log");
        let disk = HostDirectory::open(&path).map_err(|e| OverlayError::io("open", e))?;
        let disk: Arc<dyn LogDisk> = Arc::new(disk);
        Ok(open_log(&disk, CONFIG, regions())?.expect("a log that was created is there").log)
    }
}

#[test]
fn what_was_synced_outlasts_a_device_that_fails() {
    let (mut failures, mut runs) = (0, 0);
    for seed in seeds(12) {
        let mut run = match Run::new(seeded_rng(seed)) {
            Ok(run) => run,
            Err(why) => {
                assert!(std::env::var("CI").is_err(), "skipped in CI: {why}");
                eprintln!("skipped: a failing device cannot be made here: {why}");
                return;
            }
        };
        for _ in 0..3 {
            run.go_on();
            let end = run.end();
            eprintln!("seed {seed}: {end:?}, {} failures", run.failures);
            run.open();
        }
        run.log = None;
        run.remount(false);
        run.open();
        (failures, runs) = (failures + run.failures, runs + 1);
    }
    assert!(failures > runs || runs == 1, "the device failed {failures} times in {runs} runs");
}
