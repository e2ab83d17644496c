//! Numbers and names as the report prints them, in one way everywhere.

/// Stands where a table has no value.
pub(crate) const NONE: &str = "–";

/// Three significant digits, plain decimal between 0.001 and 100,000, else scientific; a rate of
/// exactly 0 or 1 keeps its short form.
pub(crate) fn number(value: f64) -> String {
    if value.is_nan() {
        return NONE.to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "−∞" }.to_owned();
    }
    let magnitude = value.abs();
    let text = if magnitude == 0.0 {
        "0".to_owned()
    } else if (100.0..1e5).contains(&magnitude) {
        group(&format!("{magnitude:.0}"))
    } else if (1e-3..100.0).contains(&magnitude) {
        let scientific = format!("{magnitude:.2e}");
        let exponent: i32 = scientific
            .rsplit('e')
            .next()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0);
        let decimals = usize::try_from(2 - exponent).unwrap_or(0);
        trim(&format!("{magnitude:.decimals$}"))
    } else {
        let scientific = format!("{magnitude:.2e}");
        match scientific.split_once('e') {
            Some((digits, exponent)) => {
                format!("{}e{}", trim(digits), exponent.replace('-', "−"))
            }
            None => scientific,
        }
    };
    if value < 0.0 {
        format!("−{text}")
    } else {
        text
    }
}

/// A number that may be missing.
pub(crate) fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), number)
}

/// `[low, high]`.
pub(crate) fn interval(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("[{}, {}]", number(low), number(high)),
        _ => NONE.to_owned(),
    }
}

/// `estimate [low, high]`.
pub(crate) fn with_interval(estimate: f64, low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(_), Some(_)) => format!("{} {}", number(estimate), interval(low, high)),
        _ => number(estimate),
    }
}

/// A p value: never 0.
pub(crate) fn p_value(p: Option<f64>) -> String {
    match p {
        None => NONE.to_owned(),
        Some(p) if p < 1e-4 => "< 0.0001".to_owned(),
        Some(p) => number(p),
    }
}

/// A count with a comma every three digits.
pub(crate) fn count(value: u64) -> String {
    group(&value.to_string())
}

/// `1 document`, `2 documents`.
pub(crate) fn plural(value: u64, noun: &str) -> String {
    let s = if value == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(value))
}

/// Seconds in words.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{} seconds", number(seconds))
    } else if seconds < 7200.0 {
        format!("{} minutes", number(seconds / 60.0))
    } else {
        format!("{} hours", number(seconds / 3600.0))
    }
}

/// Parameters in millions or billions.
pub(crate) fn parameters(count: u64) -> String {
    let count = count as f64;
    if count >= 1e9 {
        format!("{} billion", number(count / 1e9))
    } else if count >= 1e6 {
        format!("{} million", number(count / 1e6))
    } else {
        group(&format!("{count:.0}"))
    }
}

/// The share as a whole percentage, `95 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

fn group(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn trim(decimal: &str) -> String {
    if decimal.contains('.') {
        decimal
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    } else {
        decimal.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (0.654_32, "0.654"),
            (0.065_432, "0.0654"),
            (-0.5, "−0.5"),
            (9.999, "10"),
            (12.345, "12.3"),
            (1234.5, "1,234"),
            (1.0e-5, "1e−5"),
            (3.456e7, "3.46e7"),
            (f64::NAN, NONE),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn intervals_stand_in_brackets() {
        assert_eq!(
            with_interval(0.65, Some(0.47), Some(0.79)),
            "0.65 [0.47, 0.79]"
        );
        assert_eq!(with_interval(0.65, None, Some(0.79)), "0.65");
    }

    #[test]
    fn a_p_value_is_never_zero() {
        assert_eq!(p_value(Some(0.0)), "< 0.0001");
        assert_eq!(p_value(Some(0.031_25)), "0.0312");
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(plural(1, "cluster"), "1 cluster");
        assert_eq!(plural(24, "cluster"), "24 clusters");
    }
}
