//! Bytes that do not print. No I/O.

use std::fmt;

use bytes::Bytes;

/// Bytes that may be secret: cheap to clone, shown by their length alone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hidden(Bytes);

impl Hidden {
    /// The bytes themselves. What they are put into must not print them either.
    #[must_use]
    pub fn expose(&self) -> &Bytes {
        &self.0
    }
}

impl<T: Into<Bytes>> From<T> for Hidden {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}
