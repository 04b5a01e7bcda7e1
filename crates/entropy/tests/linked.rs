//! A program that links this crate is seen to define `getrandom`: so that programs that must not
//! can be tested for it.

#![cfg(target_os = "linux")]

#[path = "support/symbols.rs"]
mod symbols;

#[test]
fn a_program_that_links_this_crate_defines_getrandom() {
    applecart_entropy::seed(1);
    let this = std::env::current_exe().unwrap();
    assert!(symbols::defines(&this, "getrandom"));
}
