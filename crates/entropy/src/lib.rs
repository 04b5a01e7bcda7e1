//! A seeded getrandom, for the sweep binary alone: same seed, same schedule; and the one way to
//! split its process.
//!
//! Hash maps inside dependencies take their keys from the system's `getrandom`, and their order
//! decides which of two things happens first. Linking this crate replaces that function: each
//! thread draws from its own seed. A program that needs real randomness must never link it.

mod fork;

use std::cell::Cell;

pub use fork::{Side, end, fork};

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Everything that this thread draws from now on follows from `seed`.
pub fn seed(seed: u64) {
    STATE.with(|state| state.set(seed));
}

/// `SplitMix64`: one multiplication chain a draw, and every seed a good one.
fn next() -> u64 {
    STATE.with(|state| {
        let drawn = state.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        state.set(drawn);
        let mixed = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    })
}

/// Replaces the C library's `getrandom`.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes, as for the original.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    for offset in 0..length {
        let byte = next().to_le_bytes()[0];
        // SAFETY: the caller promises `length` writable bytes, and `offset` is below it.
        unsafe { buffer.add(offset).write(byte) };
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    fn order(seed: u64) -> Vec<u32> {
        let on_fresh_thread = std::thread::spawn(move || {
            super::seed(seed);
            let map: HashMap<u32, ()> = (0..100).map(|n| (n, ())).collect();
            map.into_keys().collect()
        });
        on_fresh_thread.join().unwrap()
    }

    #[test]
    fn the_same_seed_gives_hash_maps_the_same_order() {
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8), "the system's own getrandom is still in use");
    }
}
