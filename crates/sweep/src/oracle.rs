//! What must hold at the end of a run; what must hold after every effect is
//! `applecart_sim::oracle`. Each finding begins with the oracle's name.

mod counts;
mod end;

pub use counts::{Counts, Limits};
pub use end::{at_end, on_the_way};
