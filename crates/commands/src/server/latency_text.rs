//! The texts of LATENCY GRAPH and LATENCY DOCTOR.

use std::fmt::Write as _;

use engine::observe::{LatencyEvent, Sample, Series};

/// The maximum number of samples in a graph: the width of a terminal line.
const COLUMNS_MAX: usize = 80;
/// The height of the graph in lines.
const LINES: u64 = 4;
/// The top character of a column that fills one, two or three thirds of its highest line.
const TOPS: [char; 3] = ['_', 'o', '#'];

/// Draws the newest samples as columns, the oldest at the left, with the age of each below it, written
/// downwards.
pub(super) fn graph(event: LatencyEvent, series: &Series, now_s: u64) -> String {
    let skipped = series.samples.len().saturating_sub(COLUMNS_MAX);
    let samples: Vec<Sample> = series.samples.iter().skip(skipped).copied().collect();
    let high = samples.iter().map(|sample| sample.ms).max().unwrap_or(0);
    let low = samples.iter().map(|sample| sample.ms).min().unwrap_or(0);
    // A height is the number of thirds of a line that a column fills, minus one. The highest column fills all
    // lines.
    let steps = LINES * TOPS.len() as u64 - 1;
    let height = |sample: &Sample| match high - low {
        0 => steps,
        range => (sample.ms - low).saturating_mul(steps) / range,
    };
    let name = event.name();
    let mut lines =
        vec![format!("{name} - high {high} ms, low {low} ms (all time high {} ms)", series.max_ms)];
    lines.push("-".repeat(COLUMNS_MAX));
    let thirds = TOPS.len() as u64;
    lines.extend((0..LINES).rev().map(|line| {
        let cell = |sample: &Sample| match height(sample) {
            height if height / thirds > line => '|',
            height if height / thirds == line => TOPS[(height % thirds) as usize],
            _ => ' ',
        };
        samples.iter().map(cell).collect()
    }));
    lines.push(String::new());
    let ages: Vec<String> = samples.iter().map(|sample| age(now_s.saturating_sub(sample.unix_s))).collect();
    let longest = ages.iter().map(String::len).max().unwrap_or(0);
    let letter = |age: &String, at: usize| age.as_bytes().get(at).map_or(' ', |&letter| letter.into());
    lines.extend((0..longest).map(|at| ages.iter().map(|age| letter(age, at)).collect()));
    lines.into_iter().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Describes each event: how often it was slow, how slow, and the advice.
pub(super) fn diagnosis(is_on: bool, noted: &[(LatencyEvent, Series)]) -> String {
    let mut text = String::new();
    if noted.is_empty() {
        text += if is_on {
            "Nothing has reached latency-monitor-threshold since the history was reset.\n"
        } else {
            "Latency is not monitored. To note what takes 100 ms or longer: \
             CONFIG SET latency-monitor-threshold 100\n"
        };
        return text;
    }
    for (event, series) in noted {
        let count = series.samples.len() as u64;
        let sum: u64 = series.samples.iter().map(|sample| sample.ms).sum();
        let seconds = match (series.samples.front(), series.samples.back()) {
            (Some(first), Some(last)) => last.unix_s - first.unix_s + 1,
            _ => 0,
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{}: in {count} of {seconds} seconds, {} ms on average, {} ms at worst.\n  {}\n",
            event.name(),
            sum / count.max(1),
            series.max_ms,
            advice(*event),
        );
    }
    text
}

fn advice(event: LatencyEvent) -> &'static str {
    match event {
        LatencyEvent::Command => {
            "Commands that work on many elements take long. SLOWLOG GET names them; ask for less at a time (SCAN \
             instead of KEYS, ranges instead of whole collections) or split the largest keys."
        }
        LatencyEvent::FastCommand => {
            "Commands that take no time by themselves waited: for a slot that a long command had locked (see command), \
             or for a processor. Compare `workers` with the cores that are free, and look for swapping."
        }
        LatencyEvent::ExpireCycle => {
            "Many keys expire in the same moment. Add some randomness to their times to live."
        }
        LatencyEvent::EvictionCycle => {
            "Keys are evicted while commands wait, several for each. Raise maxmemory, let keys expire sooner, or store \
             smaller values."
        }
        LatencyEvent::LogSync => {
            "The disk takes long to make writes durable. See that nothing else uses it heavily (iostat -x 1); a drive with \
             power-loss protection syncs in microseconds. durability interval does not wait for it."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(u64, u64)]) -> Series {
        let samples = samples.iter().map(|&(unix_s, ms)| Sample { unix_s, ms });
        Series { samples: samples.collect(), max_ms: 900 }
    }

    #[test]
    fn columns_rise_from_the_least_to_the_most() {
        let series = series(&[(10, 100), (3_000, 155), (3_590, 210), (3_600, 320)]);
        let drawn = graph(LatencyEvent::Command, &series, 3_610);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[0], "command - high 320 ms, low 100 ms (all time high 900 ms)");
        assert_eq!(lines[1..6], [&"-".repeat(80), "   #", "   |", "  #|", "_#||"]);
        assert_eq!(lines[6..], ["", "1121", "h000", " mss"]);
    }

    #[test]
    fn only_the_newest_columns_fit() {
        let many: Vec<(u64, u64)> = (0..100).map(|second| (second, second)).collect();
        let drawn = graph(LatencyEvent::LogSync, &series(&many), 100);
        assert!(drawn.starts_with("log-sync - high 99 ms, low 20 ms"));
        assert!(drawn.lines().all(|line| line.len() <= COLUMNS_MAX), "{drawn}");
    }

    #[test]
    fn the_diagnosis_describes_each_slow_event() {
        assert!(diagnosis(false, &[]).contains("CONFIG SET latency-monitor-threshold 100"));
        assert!(diagnosis(true, &[]).starts_with("Nothing"));
        for event in LatencyEvent::ALL {
            let text = diagnosis(true, &[(event, series(&[(10, 100), (19, 300)]))]);
            let head = format!("{}: in 2 of 10 seconds, 200 ms on average, 900 ms at worst.\n", event.name());
            assert!(text.starts_with(&head) && text.len() > head.len() + 40, "{text}");
        }
    }
}
