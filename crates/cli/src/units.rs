//! Times and sizes as people write and read them.

use std::time::Duration;

/// Longest duration that is read: decades, and far from what instants can hold.
const MOST_SECONDS: f64 = 1e9;

/// Reads `90s`, `2m`, `1.5h`, `500ms`, `20us`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{text}` needs a unit: 500ms, 90s, 2m or 1h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{text}` is not a number and a unit"))?;
    match number * factor {
        seconds if seconds <= MOST_SECONDS => {
            Duration::try_from_secs_f64(seconds).map_err(|e| format!("`{text}`: {e}"))
        }
        _ => Err(format!("`{text}` needs to be at most {MOST_SECONDS:.0} seconds")),
    }
}

/// Reads a number of threads: at least 1.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err(format!("`{text}` needs to be a number from 1 to 1024")),
    }
}

/// `12.3 ms`.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        n if n.is_nan() => "unknown".to_owned(),
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// `12.3 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `25.6 M`.
pub(crate) fn count(n: u64) -> String {
    match n {
        n if n < 10_000 => n.to_string(),
        n if n < 1_000_000 => format!("{:.1} k", n as f64 / 1e3),
        n if n < 1_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        n => format!("{:.2} G", n as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_written() {
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("20us"), Ok(Duration::from_micros(20)));
        assert!(duration("90").is_err() && duration("s").is_err() && duration("1e99h").is_err());
        // More than an instant can be moved by, and more than a duration can hold.
        for long in ["10000000000000000000s", "1000000001s", "999999999999999999999999h"] {
            assert!(duration(long).unwrap_err().contains("at most 1000000000 seconds"), "{long}");
        }
        assert_eq!(duration("1000000000s"), Ok(Duration::from_secs(1_000_000_000)));
        assert!(threads("0").is_err() && threads("2") == Ok(2));
        assert_eq!(
            (time(1.5e6), bytes(1536), count(25_600_000)),
            ("1.50 ms".into(), "1.5 KiB".into(), "25.6 M".into())
        );
    }
}
