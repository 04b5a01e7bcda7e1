//! Everything that would be random: a function of the seed and of what it is for.

use std::fmt::Display;
use std::net::Ipv4Addr;

use applecart_api::ids::ServerId;
use sha2::{Digest, Sha256};

/// Whose project it is. Like the project's id it does not depend on the seed.
pub(super) const ORGANIZATION: &str = "06000000-0000-4000-8000-00000000c0de";

/// The source of ids, addresses, passwords and host keys. Same seed, same values, in any order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeded(pub u64);

impl Seeded {
    fn bytes(self, what: &str, which: impl Display) -> [u8; 32] {
        Sha256::digest(format!("{}/{what}/{which}", self.0)).into()
    }

    /// A version 4 UUID.
    pub(super) fn uuid(self, what: &str, which: impl Display) -> String {
        let mut bytes = self.bytes(what, which);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let number = u128::from_be_bytes(bytes[..16].try_into().expect("sixteen bytes"));
        let hex = format!("{number:032x}");
        let (a, b, c) = (&hex[..8], &hex[8..12], &hex[12..16]);
        format!("{a}-{b}-{c}-{}-{}", &hex[16..20], &hex[20..])
    }

    /// Twelve letters and digits, other ones after every wipe.
    pub(super) fn password(self, id: &ServerId, wipe: u64) -> String {
        const ALPHABET: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
        let bytes = self.bytes("password", format_args!("{id}/{wipe}"));
        let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
        bytes[..12].iter().map(letter).collect()
    }

    /// What a Mac's host key is made from, another one after every wipe.
    pub(super) fn host_key(self, id: &ServerId, wipe: u64) -> [u8; 32] {
        self.bytes("host key", format_args!("{id}/{wipe}"))
    }
}

/// The address of the n-th host.
pub(super) fn address(first: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(first).wrapping_add(number % (1 << 17)))
}
