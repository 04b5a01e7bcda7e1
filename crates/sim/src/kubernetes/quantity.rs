//! Kubernetes' quantities: `250m`, `8`, `16Gi`, `1.5e3`. No I/O.

/// A quantity in thousandths, rounded up; nothing if the text is none.
pub(crate) fn thousandths(text: &str) -> Option<i128> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')));
    let (number, suffix) = text.split_at(digits.unwrap_or(text.len()));
    let factor: f64 = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        // Not `inf`, which is a number to others.
        _ if number.is_empty() => return None,
        _ => return text.parse::<f64>().ok().map(to_thousandths),
    };
    number.parse::<f64>().ok().map(|number| to_thousandths(number * factor))
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a float that is too large saturates, and no Node is that large"
)]
fn to_thousandths(number: f64) -> i128 {
    (number * 1e3).ceil() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, value) in [
            ("0", Some(0)),
            ("250m", Some(250)),
            ("8", Some(8_000)),
            ("1.5", Some(1_500)),
            ("1Ki", Some(1_024_000)),
            ("16Gi", Some(16 * 1024 * 1024 * 1024 * 1000)),
            ("1e3", Some(1_000_000)),
            ("2k", Some(2_000_000)),
            ("1u", Some(1)),
            ("500mb", None),
            ("lots", None),
            ("inf", None),
            ("", None),
        ] {
            assert_eq!(thousandths(text), value, "{text:?}");
        }
    }
}
