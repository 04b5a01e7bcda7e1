//! Waiting for a level: until something is so, however it came to be.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::time::{Instant, sleep};

/// Longest wait for any level. Everything here takes seconds; a loaded machine takes longer.
const PATIENCE: Duration = Duration::from_mins(3);
/// Between two looks: short for a person, long for two cores.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks until there is something to see. A look that fails means "not yet"; its error is told if
/// the time runs out.
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(PATIENCE, what, look).await
}

/// [`until`] with another limit.
pub async fn until_within<T>(
    patience: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + patience;
    loop {
        let seen = look().await;
        if let Ok(Some(seen)) = seen {
            return Ok(seen);
        }
        if Instant::now() > end {
            let cause = seen.err().unwrap_or_else(|| anyhow!("it is still not so"));
            return Err(cause)
                .with_context(|| format!("waited {} s for {what}", patience.as_secs()));
        }
        sleep(PAUSE).await;
    }
}
