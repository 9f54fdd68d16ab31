//! Boot profiles of the disks below volumes, which they have from the disks that they were made from.
//!
//! Boots are learnt by image. A volume over an image is the same disk here, and has the image's profile; one that
//! was folded, and a version, has a manifest of its own. Chunks that are still those of the image keep their
//! rank in it. To find them means to read all of both manifests, so it is done beside, and whoever opens the
//! volume does not wait for it.

use std::sync::{Arc, Weak};

use acstor_readpath::DiskManifest;
use acstor_types::{Digest, DiskId};

use super::{Host, Parts};

impl Parts {
    /// The image whose manifest has this name.
    fn image_of(&self, manifest: &Digest) -> Option<DiskId> {
        let images = self.images.lock();
        let mut found = images.iter().filter(|(_, image)| image.has_manifest(manifest));
        found.next().map(|(disk, _)| *disk)
    }

    /// Blocks while manifests are read.
    fn inherit_boots(&self, from: DiskId, to: DiskId) {
        match self.read_path.inherit_boot_profile(&from, &to) {
            Ok(true) => tracing::info!(%from, %to, "boots are expected as those of the other disk"),
            Ok(false) => {}
            // What is detached meanwhile is booted here by nobody.
            Err(error) => tracing::debug!(%from, %to, %error, "no boot profile is inherited"),
        }
    }
}

impl Host {
    /// Has the base of a volume inherit the boot profile of the image that it is a delta of, where that is
    /// attached here.
    pub(super) fn inherit_from_image(&self, base: &DiskManifest) {
        let to = base.shape().disk_id;
        let names = base.base_names();
        let Some(from) = names.iter().find_map(|name| self.parts.image_of(name)) else { return };
        if from != to {
            let parts = Arc::downgrade(&self.parts);
            self.beside(move || with(&parts, |parts| parts.inherit_boots(from, to)));
        }
    }

    /// Has the new base of a volume inherit the boot profile of the one before, which is given back then.
    pub(super) fn inherit_from_former(&self, former: DiskManifest, now: DiskId) {
        let from = former.shape().disk_id;
        if from == now {
            return self.parts.detach_base(from);
        }
        let parts = Arc::downgrade(&self.parts);
        self.beside(move || {
            with(&parts, |parts| {
                parts.inherit_boots(from, now);
                parts.detach_base(from);
            });
        });
    }

    /// Has the bases of all volumes that are deltas of an image inherit its boot profile, which is news.
    pub(super) fn inherit_news(&self, image: DiskId) {
        let volumes: Vec<_> = self.parts.volumes.read().values().cloned().collect();
        let bases = volumes.iter().filter_map(|open| open.owned()?.base.lock().clone());
        let is_heir = |base: &DiskManifest| {
            base.base_names().iter().any(|name| self.parts.image_of(name) == Some(image))
        };
        bases.filter(is_heir).for_each(|base| self.inherit_from_image(&base));
    }

    fn beside(&self, work: impl FnOnce() + Send + 'static) {
        drop(self.handle.spawn_blocking(work));
    }
}

/// Does something with a data plane that is still there.
fn with(parts: &Weak<Parts>, act: impl FnOnce(&Parts)) {
    if let Some(parts) = parts.upgrade() {
        act(&parts);
    }
}
