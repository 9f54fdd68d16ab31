//! The volumes that are open on this host: their overlays, their NBD servers.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acstor_nbd::{Export, ExportToken, NbdServer, RateLimits, ServerConfig};
use acstor_overlay::{
    Durability, Folded, LogRange, Opening, OriginSink, PushPoint, Volume, VolumeState, adopt_log,
};
use acstor_readpath::DiskManifest;
use acstor_types::{Digest, DiskId};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::failover_device::FailoverDevice;
use super::{Host, HostError};

/// Longest wait for requests under way when clients are disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Specification that a volume is opened with; the dictionary `VolumeSpec` of
/// `acstor.dataplane.volumes.runtime`.
#[derive(Debug, Deserialize)]
pub struct VolumeSpec {
    directory: PathBuf,
    epoch: u32,
    next: u64,
    size_bytes: u64,
    manifest_path: Option<PathBuf>,
    /// Name of the manifest there.
    manifest: Option<String>,
    logs: Vec<LogRangeSpec>,
    durability: Value,
    iops: u64,
    bytes_per_s: u64,
    reserve_bytes: u64,
    /// Epoch in which this host closed the log that is there.
    adopts: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct LogRangeSpec {
    volume: String,
    epoch: u32,
    first: u64,
    last: u64,
}

/// An open volume.
pub(super) struct OpenVolume {
    pub(super) device: FailoverDevice,
    pub(super) export: Arc<Export>,
    pub(super) server: Mutex<Option<NbdServer>>,
    /// Absent while another host owns the volume.
    owned: Mutex<Option<Arc<OwnedVolume>>>,
}

/// Parts of a volume while this host owns it.
pub(super) struct OwnedVolume {
    pub(super) overlay: Arc<Volume>,
    /// Manifest below the overlay, one use of it.
    pub(super) base: Mutex<Option<DiskManifest>>,
    /// As the caller gave it.
    durability: Mutex<Value>,
    /// A fold that the caller has not installed yet.
    pub(super) folded: Mutex<Option<Folded>>,
    /// True once a fold found the manifest below damaged.
    pub(super) is_base_damaged: AtomicBool,
}

impl OpenVolume {
    fn clients(&self) -> usize {
        self.server.lock().as_ref().map_or(0, NbdServer::clients)
    }

    pub(super) fn owned(&self) -> Option<Arc<OwnedVolume>> {
        self.owned.lock().clone()
    }
}

fn limits(iops: u64, bytes_per_s: u64) -> RateLimits {
    let limit = |value: u64| (value > 0).then_some(value);
    RateLimits { requests_per_s: limit(iops), bytes_per_s: limit(bytes_per_s) }
}

fn durability(value: &Value) -> Result<Durability, HostError> {
    Ok(Durability::parse(&value.to_string())?)
}

fn manifest_of(spec: &VolumeSpec) -> Result<Option<(&Path, Digest)>, HostError> {
    let Some(path) = spec.manifest_path.as_deref() else { return Ok(None) };
    let given = spec.manifest.as_deref().unwrap_or_default();
    let name = given.parse().map_err(|_| HostError::Argument {
        name: "manifest",
        value: given.to_owned(),
        allowed: "64 hexadecimal digits",
    })?;
    Ok(Some((path, name)))
}

fn log_ranges(specs: &[LogRangeSpec]) -> Result<Vec<LogRange>, HostError> {
    let range = |spec: &LogRangeSpec| {
        let volume = spec.volume.parse().map_err(|_| HostError::Argument {
            name: "logs",
            value: spec.volume.clone(),
            allowed: "ids of volumes",
        })?;
        Ok(LogRange { volume, epoch: spec.epoch, first: spec.first, last: spec.last })
    };
    specs.iter().map(range).collect()
}

impl Host {
    pub(super) fn volume(&self, volume: DiskId) -> Result<Arc<OpenVolume>, HostError> {
        let volumes = self.parts.volumes.read();
        volumes.get(&volume).cloned().ok_or(HostError::VolumeNotOpen(volume))
    }

    pub(super) fn owned_volume(&self, volume: DiskId) -> Result<Arc<OwnedVolume>, HostError> {
        self.volume(volume)?.owned().ok_or(HostError::VolumeNotOwned(volume))
    }

    /// Makes a volume known that another host owns: requests wait until it is opened here.
    ///
    /// # Errors
    /// [`HostError::VolumeOpen`], or [`HostError::Nbd`] for a size that no disk has.
    pub fn volume_follow(&self, volume: DiskId, size_bytes: u64) -> Result<(), HostError> {
        let mut volumes = self.parts.volumes.write();
        if volumes.contains_key(&volume) {
            return Err(HostError::VolumeOpen(volume));
        }
        let device = FailoverDevice::standby(size_bytes);
        let export = Arc::new(Export::new(&volume.to_string(), Arc::new(device.clone()))?);
        let (server, owned) = (Mutex::default(), Mutex::default());
        volumes.insert(volume, Arc::new(OpenVolume { device, export, server, owned }));
        Ok(())
    }

    /// Opens a volume that this host owns; requests that wait for it go on.
    ///
    /// # Errors
    /// [`HostError`]; a volume that was not known before is not then.
    pub fn volume_open(
        &self,
        volume: DiskId,
        spec: &VolumeSpec,
        sink: Arc<dyn OriginSink>,
    ) -> Result<(), HostError> {
        let is_new = match self.volume_follow(volume, spec.size_bytes) {
            Ok(()) => true,
            Err(HostError::VolumeOpen(_)) => false,
            Err(error) => return Err(error),
        };
        let open = self.volume(volume)?;
        let opened = match open.owned() {
            Some(_) => Err(HostError::VolumeOpen(volume)),
            None => self.open_overlay(volume, spec, sink),
        };
        match opened {
            Ok(owned) => {
                open.export.set_limits(limits(spec.iops, spec.bytes_per_s));
                open.device.activate(owned.overlay.clone());
                *open.owned.lock() = Some(Arc::new(owned));
                Ok(())
            }
            Err(error) => {
                if is_new {
                    self.parts.volumes.write().remove(&volume);
                }
                Err(error)
            }
        }
    }

    fn open_overlay(
        &self,
        volume: DiskId,
        spec: &VolumeSpec,
        sink: Arc<dyn OriginSink>,
    ) -> Result<OwnedVolume, HostError> {
        let (logs, durability) = (log_ranges(&spec.logs)?, durability(&spec.durability)?);
        let below = manifest_of(spec)?;
        if let Some(closed) = spec.adopts {
            adopt_log(&spec.directory, volume, closed, spec.epoch)?;
        }
        let base = below.map(|(path, name)| self.attach_base(path, name)).transpose()?;
        let (manifest, view) = base.map(|base| (base.manifest, base.view)).unzip();
        let opening = Opening {
            volume,
            epoch: spec.epoch,
            next: spec.next,
            size_bytes: spec.size_bytes,
            manifest: manifest.clone(),
            logs,
            durability,
        };
        let config = self.volume_config(&spec.directory, spec.reserve_bytes);
        match Volume::open(config, opening, view, sink, self.handle.clone()) {
            Ok(overlay) => Ok(OwnedVolume {
                overlay,
                base: Mutex::new(manifest),
                durability: Mutex::new(spec.durability.clone()),
                folded: Mutex::default(),
                is_base_damaged: AtomicBool::default(),
            }),
            Err(error) => {
                self.give_back(manifest);
                Err(error.into())
            }
        }
    }

    /// Serves clients that know `token` on `listener`, instead of any other.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn volume_serve(
        &self,
        volume: DiskId,
        listener: UnixListener,
        token: &str,
    ) -> Result<(), HostError> {
        let (open, token) = (self.volume(volume)?, ExportToken::new(token)?);
        self.stop_serving(&open);
        let mut config = ServerConfig::new(self.parts.nbd_memory.clone());
        config.token = Some(token);
        let server = NbdServer::start(listener, open.export.clone(), config, &self.handle)?;
        *open.server.lock() = Some(server);
        Ok(())
    }

    /// Serves nobody any more.
    ///
    /// # Errors
    /// [`HostError::VolumeInUse`] while clients are connected, without `force`.
    pub fn volume_unserve(&self, volume: DiskId, force: bool) -> Result<(), HostError> {
        let open = self.volume(volume)?;
        let clients = open.clients();
        if clients > 0 && !force {
            return Err(HostError::VolumeInUse { volume, clients });
        }
        self.stop_serving(&open);
        Ok(())
    }

    fn stop_serving(&self, open: &OpenVolume) {
        let server = open.server.lock().take();
        if let Some(server) = server
            && !self.handle.block_on(server.stop(DRAIN_TIMEOUT))
        {
            tracing::warn!(volume = open.export.name(), "requests of clients were cut off");
        }
    }

    /// Pushes what is left and writes no more; requests from now on wait, until the volume is
    /// opened again. After an error it goes on as before.
    ///
    /// # Errors
    /// [`HostError::Overlay`], [`HostError::VolumeNotOwned`].
    pub fn volume_release(&self, volume: DiskId) -> Result<PushPoint, HostError> {
        let open = self.volume(volume)?;
        let owned = open.owned().ok_or(HostError::VolumeNotOwned(volume))?;
        // Requests go on while most of it is pushed.
        let release = owned.overlay.prepare_release()?;
        open.device.stand_by();
        match release.finish() {
            Ok(point) => {
                *open.owned.lock() = None;
                open.device.given_back();
                self.give_back(owned.base.lock().take());
                Ok(point)
            }
            Err(error) => {
                open.device.activate(owned.overlay.clone());
                Err(error.into())
            }
        }
    }

    /// Pushes, while requests go on, until a release would hold them up for a moment only; returns
    /// whether the volume should be folded first, for the next owner's sake.
    ///
    /// # Errors
    /// [`HostError::Overlay`], [`HostError::VolumeNotOwned`].
    pub fn volume_push_ahead(&self, volume: DiskId) -> Result<bool, HostError> {
        Ok(self.owned_volume(volume)?.overlay.push_ahead()?)
    }

    /// Forgets a volume; its local log stays.
    pub fn volume_close(&self, volume: DiskId) {
        let Some(open) = self.parts.volumes.write().remove(&volume) else { return };
        self.stop_serving(&open);
        open.device.fence("the volume is closed");
        if let Some(owned) = open.owned() {
            owned.overlay.close();
            self.give_back(owned.base.lock().take());
        }
    }

    fn give_back(&self, base: Option<DiskManifest>) {
        base.into_iter().for_each(|manifest| self.parts.detach_base(manifest.shape().disk_id));
    }

    /// Fails every request from now on.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`].
    pub fn volume_fence(&self, volume: DiskId, why: &str) -> Result<(), HostError> {
        let open = self.volume(volume)?;
        if let Some(owned) = open.owned() {
            owned.overlay.fence(why);
        }
        open.device.fence(why);
        Ok(())
    }

    /// Ids of the open volumes, ordered.
    pub fn volume_list(&self) -> Vec<String> {
        let mut ids: Vec<DiskId> = self.parts.volumes.read().keys().copied().collect();
        ids.sort();
        ids.iter().map(DiskId::to_string).collect()
    }

    /// A snapshot of an open volume.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`].
    pub fn volume_status(&self, volume: DiskId) -> Result<Value, HostError> {
        let open = self.volume(volume)?;
        let limits = open.export.limits();
        let mut value = json!({
            "state": "standby",
            "epoch": null,
            "size_bytes": open.export.device().size_bytes(),
            "clients": open.clients(),
            "iops": limits.requests_per_s.unwrap_or(0),
            "bytes_per_s": limits.bytes_per_s.unwrap_or(0),
            "is_wanted": open.device.is_wanted(),
            "is_head_wanted": open.device.is_head_wanted(),
            "error": null,
        });
        if let (Some(owned), Value::Object(fields)) = (open.owned(), &mut value)
            && let Value::Object(more) = self.owned_status(&open, &owned)
        {
            fields.extend(more);
        }
        Ok(value)
    }

    fn owned_status(&self, open: &OpenVolume, owned: &OwnedVolume) -> Value {
        let status = owned.overlay.status();
        if status.state == VolumeState::Fenced {
            // Reads too: what this host has is not what the disk is any more.
            open.device.fence("another host owns the volume");
        }
        let settings = &self.parts.settings;
        let (bytes, objects) = (settings.volumes_fold_bytes, settings.volumes_fold_objects);
        json!({
            "state": status.state.as_str(),
            "epoch": status.epoch,
            "size_bytes": status.size_bytes,
            "pushed_sequence": status.pushed_sequence,
            "dirty_bytes": status.dirty_bytes,
            "recovery_point_age_s": status.recovery_point_age.map_or(0.0, |age| age.as_secs_f64()),
            "recovery_point_late_s": status.recovery_point_late.as_secs_f64(),
            "held_back_s_per_mib": status.held_back_per_mib.as_secs_f64(),
            "waiting_requests": status.waiting_requests,
            "waiting_s": status.waiting_age.map_or(0.0, |age| age.as_secs_f64()),
            "log_bytes": status.log_bytes,
            "origin_log_bytes": status.origin_log_bytes,
            "origin_log_objects": status.origin_log_objects,
            "durability": *owned.durability.lock(),
            "manifest": owned.base.lock().as_ref().map(|base| base.digest().to_string()),
            "error": status.error,
            "is_fold_due": owned.overlay.fold_due(bytes, objects),
            "is_manifest_damaged": self.is_base_damaged(owned),
        })
    }

    /// Waits until everything acknowledged before is on the origin.
    ///
    /// # Errors
    /// [`HostError::Overlay`].
    pub fn volume_push(&self, volume: DiskId) -> Result<PushPoint, HostError> {
        Ok(self.owned_volume(volume)?.overlay.push_now()?)
    }

    /// Holds writes for at most `timeout`.
    ///
    /// # Errors
    /// [`HostError::Overlay`].
    pub fn volume_freeze(&self, volume: DiskId, timeout: Duration) -> Result<(), HostError> {
        Ok(self.owned_volume(volume)?.overlay.freeze(timeout)?)
    }

    /// Lets writes go on.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`].
    pub fn volume_thaw(&self, volume: DiskId) -> Result<(), HostError> {
        self.owned_volume(volume)?.overlay.thaw();
        Ok(())
    }

    /// Grows a volume and disconnects its clients, so that they find the new size.
    ///
    /// # Errors
    /// [`HostError::Overlay`].
    pub fn volume_resize(&self, volume: DiskId, size_bytes: u64) -> Result<(), HostError> {
        let (open, owned) = (self.volume(volume)?, self.owned_volume(volume)?);
        if owned.overlay.status().size_bytes == size_bytes {
            return Ok(());
        }
        owned.overlay.resize(size_bytes)?;
        // Not held while clients are waited for: who asks for the status needs it.
        let server = open.server.lock().take();
        if let Some(server) = server {
            self.handle.block_on(server.disconnect_clients(DRAIN_TIMEOUT));
            *open.server.lock() = Some(server);
        }
        Ok(())
    }

    /// Changes when writes are on the origin.
    ///
    /// # Errors
    /// [`HostError::Overlay`].
    pub fn volume_set_durability(&self, volume: DiskId, value: &Value) -> Result<(), HostError> {
        let owned = self.owned_volume(volume)?;
        owned.overlay.set_durability(&durability(value)?)?;
        *owned.durability.lock() = value.clone();
        Ok(())
    }

    /// Limits the requests of all clients together; 0: no limit.
    ///
    /// # Errors
    /// [`HostError::VolumeNotOpen`].
    pub fn volume_set_limits(
        &self,
        volume: DiskId,
        iops: u64,
        bytes_per_s: u64,
    ) -> Result<(), HostError> {
        self.volume(volume)?.export.set_limits(limits(iops, bytes_per_s));
        Ok(())
    }

    /// Puts the manifest in the file at `path`, which the volume's record names, below the log:
    /// that of the last fold, of one whose maker did not come to do this, or the same one in a file
    /// that is whole.
    ///
    /// # Errors
    /// [`HostError`] when it cannot be attached; nothing is changed then.
    pub fn volume_set_base(
        &self,
        volume: DiskId,
        path: &Path,
        digest: Digest,
    ) -> Result<(), HostError> {
        let owned = self.owned_volume(volume)?;
        let base = self.attach_base(path, digest)?;
        let folded = owned.folded.lock().take_if(|folded| folded.digest == digest);
        match folded {
            Some(folded) => owned.overlay.set_base(base.view, base.manifest.clone(), &folded),
            None => owned.overlay.replace_base(base.view, base.manifest.clone()),
        }
        let now = base.manifest.shape().disk_id;
        let former = owned.base.lock().replace(base.manifest);
        former.into_iter().for_each(|former| self.inherit_from_former(former, now));
        owned.is_base_damaged.store(false, Ordering::Release);
        Ok(())
    }

    /// Ends all volumes within about `timeout`; the next process goes on with them.
    pub(super) fn stop_volumes(&self, timeout: Duration) {
        let volumes = std::mem::take(&mut *self.parts.volumes.write());
        let servers: Vec<NbdServer> =
            volumes.values().filter_map(|open| open.server.lock().take()).collect();
        self.handle.block_on(async {
            // All at once: the time is for all of them.
            let stopping: Vec<_> =
                servers.into_iter().map(|server| tokio::spawn(server.stop(timeout))).collect();
            for server in stopping {
                let _ = server.await;
            }
        });
        for owned in volumes.values().filter_map(|open| open.owned()) {
            owned.overlay.close();
        }
    }
}
