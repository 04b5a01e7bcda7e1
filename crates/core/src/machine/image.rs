//! Which image a host is installed with.

use applecart_api::os_pin::OsPin;

use super::observed::Image;

/// P32, S14: a released host must fit the fleet that released it, so it gets the newest image that
/// the pin accepts; `None`, the type's default, if there is none any more.
pub(super) fn newest(images: &[Image], pin: &OsPin) -> Option<String> {
    let fitting = images.iter().filter(|image| pin.accepts(&image.name, &image.family));
    let newest = fitting.max_by_key(|image| (!image.beta, release_order(&image.version)));
    newest.map(|image| image.id.clone())
}

/// `26.10` comes after `26.9`.
fn release_order(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}
