//! Randomness is the system's: the seeded one is for sweeps alone.

#![cfg(target_os = "linux")]

#[path = "../../entropy/tests/support/symbols.rs"]
mod symbols;

#[test]
fn the_program_brings_no_getrandom_of_its_own() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_applecart"));
    assert!(!symbols::defines(program, "getrandom"));
}
