//! The table: a line about the group, and one per member.

use std::fmt::Write;

use super::overview::{Member, Overview};

/// Shown for a value that the server does not know.
const UNKNOWN: &str = "-";

/// The columns: their titles, and whether they hold numbers, which stand on the right.
const COLUMNS: [(&str, bool); 9] = [
    ("ID", false),
    ("ADDRESS", false),
    ("KIND", false),
    ("ROLE", false),
    ("EPOCH", true),
    ("DURABLE", true),
    ("COMMITTED", true),
    ("LAG", true),
    ("HEARD", true),
];

impl Overview {
    /// The group as lines of text.
    pub(super) fn table(&self) -> String {
        let rows: Vec<_> = [COLUMNS.map(|(title, _)| title.to_string())]
            .into_iter()
            .chain(self.members.iter().map(cells))
            .collect();
        let mut out = self.heading();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
        for row in &rows {
            let mut line = String::new();
            for ((cell, (_, is_number)), width) in row.iter().zip(COLUMNS).zip(&widths) {
                // Writing to a string does not fail.
                let _ = match is_number {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    fn heading(&self) -> String {
        let Overview { name, term, voters, members, .. } = self;
        match self.state.as_deref() {
            Some("joining") => return format!("group {name}: this server asks to be added to it\n"),
            Some("removed") => {
                return format!("group {name}: this server was removed from it (GROUP REMOVE)\n");
            }
            _ => {}
        }
        let leader = match &self.leader {
            Some((id, address)) => format!("leader {address} ({id})"),
            None => "no known leader".into(),
        };
        format!("group {name}, term {term}, {leader}, members {}, voters {voters}\n", members.len())
    }
}

fn cells(member: &Member) -> [String; COLUMNS.len()] {
    let known = |number: Option<String>| number.unwrap_or_else(|| UNKNOWN.into());
    let heard = match member.heard_ms {
        _ if member.is_asked => "(asked)".into(),
        Some(heard_ms) => shown_ms(heard_ms),
        None => "never".into(),
    };
    [
        member.id.clone(),
        member.address.clone(),
        member.kind.clone(),
        member.role.clone(),
        known(member.epoch.map(|epoch| epoch.to_string())),
        known(member.durable.map(|position| position.to_string())),
        known(member.committed.map(|position| position.to_string())),
        known(member.lag_bytes.map(shown_bytes)),
        heard,
    ]
}

/// A time, to the millisecond below a second, else to a tenth of a second.
fn shown_ms(ms: i64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

/// A number of bytes in the largest unit that leaves at least one.
fn shown_bytes(bytes: i64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1i64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, address: &str) -> Member {
        Member {
            id: id.into(),
            address: address.into(),
            kind: "voter".into(),
            role: "follower".into(),
            is_asked: false,
            epoch: None,
            durable: None,
            committed: None,
            lag_bytes: None,
            heard_ms: None,
        }
    }

    #[test]
    fn each_member_is_a_line_of_the_table() {
        let leader = Member {
            role: "leader".into(),
            is_asked: true,
            epoch: Some(7),
            durable: Some(8_392_704),
            committed: Some(8_388_608),
            lag_bytes: Some(0),
            ..member("00000000000000a1", "127.0.0.1:7001")
        };
        let voter = Member {
            epoch: Some(7),
            durable: Some(8_388_608),
            committed: Some(4096),
            lag_bytes: Some(4096),
            heard_ms: Some(12),
            ..member("00000000000000b2", "db2.example:7002")
        };
        let learner = Member { kind: "learner".into(), ..member("00000000000000c3", "[::1]:7003") };
        let mut overview = Overview {
            name: "shop".into(),
            state: Some("member".into()),
            term: 7,
            leader: Some(("00000000000000a1".into(), "127.0.0.1:7001".into())),
            voters: 2,
            members: vec![leader, voter, learner],
        };
        let table = "\
group shop, term 7, leader 127.0.0.1:7001 (00000000000000a1), members 3, voters 2
ID                ADDRESS           KIND     ROLE      EPOCH  DURABLE  COMMITTED      LAG    HEARD
00000000000000a1  127.0.0.1:7001    voter    leader        7  8392704    8388608      0 B  (asked)
00000000000000b2  db2.example:7002  voter    follower      7  8388608       4096  4.0 KiB    12 ms
00000000000000c3  [::1]:7003        learner  follower      -        -          -        -    never
";
        assert_eq!(overview.table(), table);
        overview.leader = None;
        let table = overview.table();
        assert!(
            table.starts_with("group shop, term 7, no known leader, members 3, voters 2\nID "),
            "{table}"
        );
        for (state, shown) in [("joining", "asks to be added"), ("removed", "was removed from it")] {
            overview.state = Some(state.into());
            assert!(overview.table().lines().next().is_some_and(|line| line.contains(shown)), "{state}");
        }
    }

    #[test]
    fn times_and_sizes_are_short() {
        assert_eq!([0, 999, 1000, 65_490].map(shown_ms), ["0 ms", "999 ms", "1.0 s", "65.4 s"]);
        let sizes = [0, 1023, 1024, 1536, 1 << 20, 5 << 30];
        assert_eq!(sizes.map(shown_bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 GiB"]);
    }
}
