//! Splitting a process in two: what many runs have in common happens once, and each goes on from
//! there by itself. Here because it cannot be done without `unsafe`.

use std::io;

mod system {
    unsafe extern "C" {
        pub fn fork() -> i32;
        pub safe fn _exit(code: i32) -> !;
    }
}

/// Which of two processes this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that was there before; the other has this id.
    Parent(i32),
    /// The new one.
    Child,
}

/// Splits this process in two that are alike, draws of randomness included.
///
/// # Assumptions
/// - The child goes on with the calling thread alone: other threads hold no lock that it needs.
///   They are parked, or there are none.
pub fn fork() -> io::Result<Side> {
    // SAFETY: fork has no conditions of its own; what a lone thread may do is said above.
    match unsafe { system::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        child => Ok(Side::Parent(child)),
    }
}

/// Ends this process at once: nothing that it has from its parent is flushed, told or dropped.
pub fn end(code: i32) -> ! {
    system::_exit(code)
}
