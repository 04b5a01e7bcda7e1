//! Nouns: the custom resources, names, labels and ids that Applecart speaks. No async, no I/O.

pub mod clock;
pub mod ids;
pub mod keys;
pub mod name_class;
