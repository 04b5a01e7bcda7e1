//! What can be had: images and kinds of servers, as the real one offers them.

use serde_json::{Value, json};

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub id: String,
    pub name: &'static str,
    label: &'static str,
    family: &'static str,
    version: &'static str,
    xcode: &'static str,
    kinds: &'static [&'static str],
}

impl Image {
    pub(super) fn runs_on(&self, kind: &str) -> bool {
        self.kinds.contains(&kind)
    }

    /// A host is macOS for life, or Linux.
    pub(super) fn is_linux(&self) -> bool {
        self.family == "Linux"
    }

    fn bare(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "label": self.label, "family": self.family,
            "version": self.version, "xcode_version": self.xcode, "is_beta": false,
            "image_url": "https://scw-apple-silicon.s3.fr-par.scw.cloud/images/macos.png",
            "release_notes_url": "", "description": "", "tags": [],
            "compatible_server_types": self.kinds,
        })
    }

    /// As it is listed.
    pub(super) fn to_json(&self) -> Value {
        let supported = |kind: &&str| {
            let fast = kind_of(kind).is_some_and(|kind| kind.default_image == self.name);
            json!({"server_type": kind, "fast_delivery_available": fast})
        };
        let mut value = self.bare();
        value["supported_server_types"] = self.kinds.iter().map(supported).collect();
        value
    }

    /// As it looks inside a server.
    pub(super) fn inside_server(&self) -> Value {
        let mut value = self.bare();
        value["supported_server_types"] = json!([]);
        value
    }
}

const SEQUOIA: &str = "macos-sequoia-15.6";
const TAHOE: &str = "macos-tahoe-26.0";
const ASAHI: &str = "fedora-asahi-remix";
const MACS: &[&str] = &["M1-M", "M2-M", "M2-L", "M4-S", "M4-M", "M4-L", "M4-XL"];

/// All images of a new world.
pub(super) fn images() -> Vec<Image> {
    [
        (SEQUOIA, "macOS Sequoia 15.6", "Sequoia", "15.6.1", "16", MACS),
        (TAHOE, "macOS Tahoe 26.0", "Tahoe", "26.0", "26", MACS),
        ("devos-sequoia-15.6", "DevOS Sequoia 15.6", "DevOS", "15.6", "16", MACS),
        (ASAHI, "Fedora Asahi Remix", "Linux", "42", "None", &["M2-L-ASAHI"]),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, (name, label, family, version, xcode, kinds))| {
        let id = format!("05000000-0000-4000-8000-{:012x}", number + 1);
        Image { id, name, label, family, version, xcode, kinds }
    })
    .collect()
}

/// A kind of server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub name: &'static str,
    pub zone: &'static str,
    pub default_image: &'static str,
    cpu: &'static str,
    cores: u32,
    memory_gb: u64,
    disk_gb: u64,
    gigabits: u64,
}

const GB: u64 = 1_000_000_000;

#[rustfmt::skip]
const KINDS: &[Kind] = &[
    kind("M1-M", "fr-par-3", SEQUOIA, "Apple M1", 8, 8, 256, 1),
    kind("M2-M", "fr-par-1", SEQUOIA, "Apple M2", 8, 16, 256, 1),
    kind("M2-L", "fr-par-1", SEQUOIA, "Apple M2 Pro", 10, 16, 512, 1),
    kind("M2-L-ASAHI", "fr-par-1", ASAHI, "Apple M2 Pro", 10, 16, 512, 1),
    kind("M4-S", "fr-par-1", SEQUOIA, "Apple M4", 10, 16, 256, 1),
    kind("M4-M", "fr-par-1", SEQUOIA, "Apple M4", 10, 32, 1_024, 10),
    kind("M4-L", "fr-par-1", SEQUOIA, "Apple M4 Pro", 12, 24, 512, 10),
    kind("M4-XL", "fr-par-1", SEQUOIA, "Apple M4 Pro", 14, 64, 2_048, 10),
];

#[allow(clippy::too_many_arguments, reason = "one row of the table above")]
const fn kind(
    name: &'static str,
    zone: &'static str,
    default_image: &'static str,
    cpu: &'static str,
    cores: u32,
    memory_gb: u64,
    disk_gb: u64,
    gigabits: u64,
) -> Kind {
    Kind { name, zone, default_image, cpu, cores, memory_gb, disk_gb, gigabits }
}

/// The kind of that name.
pub(super) fn kind_of(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// The kind of that name, or which names there are.
pub(super) fn known(name: &str) -> Result<&'static Kind, String> {
    let names = || server_types().collect::<Vec<_>>().join(", ");
    kind_of(name).ok_or_else(|| format!("type: there is no {name:?}; the types are {}", names()))
}

/// The names of all kinds of servers, wherever they stand.
pub fn server_types() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// All kinds that stand in a zone.
pub(super) fn kinds_in(zone: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |kind| kind.zone == zone)
}

impl Kind {
    /// Rented for a day at least: Apple's licence, which does not bind Linux.
    pub(super) fn has_floor(&self) -> bool {
        self.default_image != ASAHI
    }

    /// The bandwidth that this kind has if `wanted` is asked for: 0 asks for the default.
    pub(super) fn bandwidth(&self, wanted: u64) -> Option<u64> {
        match wanted {
            0 => Some(GB),
            _ => self.bandwidths().find(|offered| *offered == wanted),
        }
    }

    fn bandwidths(&self) -> impl Iterator<Item = u64> {
        (1..=self.gigabits).map(|step| step * GB)
    }

    pub(super) fn to_json(self, stock: &str, default_os: Option<&Image>) -> Value {
        let lease = if self.has_floor() { "86400s" } else { "0s" };
        let steps: Vec<u64> = self.bandwidths().collect();
        json!({
            "name": self.name, "stock": stock, "minimum_lease_duration": lease,
            "cpu": {"name": self.cpu, "core_count": self.cores, "frequency": 3_500_000_000_u64,
                    "sockets": 1, "threads_per_core": 1},
            "disk": {"capacity": self.disk_gb * GB, "type": "SSD"},
            "memory": {"capacity": self.memory_gb * GB, "type": "LPDDR5"},
            "gpu": {"count": 10}, "npu": {"count": 16},
            "network": {"public_bandwidth_bps": GB, "supported_bandwidth": steps,
                        "default_public_bandwidth": GB},
            "default_os": default_os.map(Image::to_json),
        })
    }
}
