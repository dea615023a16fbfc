//! The replies of GROUP INFO and GROUP MEMBERS.

use wire::Value;

use super::plain;

/// A group, as one of its members sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overview {
    pub(super) name: String,
    /// The standing of the asked server in its group, such as `joining`; `None` from a server of an earlier
    /// version.
    pub(super) state: Option<String>,
    pub(super) term: i64,
    /// The id and the address of the leader; `None`: none is known.
    pub(super) leader: Option<(String, String)>,
    pub(super) voters: i64,
    pub(super) members: Vec<Member>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) address: String,
    pub(super) kind: String,
    pub(super) role: String,
    /// Whether the member is the server that was asked.
    pub(super) is_asked: bool,
    pub(super) epoch: Option<i64>,
    pub(super) durable: Option<i64>,
    pub(super) committed: Option<i64>,
    pub(super) lag_bytes: Option<i64>,
    pub(super) heard_ms: Option<i64>,
}

impl Overview {
    /// Reads the replies; `None` if they are not as expected.
    pub(super) fn of(info: &Value, members: &Value) -> Option<Overview> {
        let Value::Array(members) = members else { return None };
        Some(Overview {
            name: text(info, "name")?,
            state: text(info, "state"),
            term: number(info, "term")?,
            leader: text(info, "leader").zip(text(info, "leader-address")),
            voters: number(info, "voters")?,
            members: members.iter().map(Member::of).collect::<Option<_>>()?,
        })
    }
}

impl Overview {
    /// The reason why the asked server knows no leader; only for a server that knows none.
    pub(super) fn why_no_leader(&self) -> &'static str {
        match self.state.as_deref() {
            Some("removed") => "it was removed from it. Ask a member of the group",
            Some("joining") => {
                "it asks to be added; its log says what keeps it out. Ask a member of the group"
            }
            _ => "a majority of the voters must be reachable",
        }
    }
}

impl Member {
    fn of(value: &Value) -> Option<Member> {
        Some(Member {
            id: text(value, "id")?,
            address: text(value, "address")?,
            kind: text(value, "kind")?,
            role: text(value, "role")?,
            is_asked: number(value, "self")? == 1,
            epoch: number(value, "epoch"),
            durable: number(value, "durable"),
            committed: number(value, "committed"),
            lag_bytes: number(value, "lag-bytes"),
            heard_ms: number(value, "heard-ms"),
        })
    }
}

/// The value of a field of a map. Fields of later versions are passed over.
fn field<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(pairs) = map else { return None };
    let is_named =
        |(key, _): &&(Value, Value)| matches!(key, Value::Bulk(bytes) if *bytes == name.as_bytes());
    pairs.iter().find(is_named).map(|(_, value)| value)
}

fn text(map: &Value, name: &str) -> Option<String> {
    match field(map, name)? {
        Value::Bulk(bytes) => Some(plain(bytes)),
        _ => None,
    }
}

fn number(map: &Value, name: &str) -> Option<i64> {
    match field(map, name)? {
        Value::Integer(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, Value)]) -> Value {
        let pair = |(name, value): &(&str, Value)| (bulk(name), value.clone());
        Value::Map(pairs.iter().map(pair).collect())
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn info(leader: Value, address: Value) -> Value {
        map(&[
            ("name", bulk("shop")),
            ("id", bulk("0123456789abcdef0123456789abcdef")),
            ("term", Value::Integer(7)),
            ("leader", leader),
            ("leader-address", address),
            ("members", Value::Integer(1)),
            ("voters", Value::Integer(1)),
        ])
    }

    #[test]
    fn replies_are_read_and_unknown_fields_passed_over() {
        let member = map(&[
            ("later", bulk("x")),
            ("id", bulk("00000000000000a1")),
            ("address", bulk("127.0.0.1:7001")),
            ("http-port", Value::Integer(7101)),
            ("kind", bulk("voter\x1b")),
            ("role", bulk("leader")),
            ("self", Value::Integer(1)),
            ("durable", Value::Integer(4096)),
            ("committed", Value::Integer(4096)),
            ("lag-bytes", Value::Null),
            ("heard-ms", Value::Null),
        ]);
        let members = Value::Array(vec![member.clone()]);
        let overview = Overview::of(&info(bulk("00000000000000a1"), bulk("127.0.0.1:7001")), &members);
        let expected = Overview {
            name: "shop".into(),
            state: None,
            term: 7,
            leader: Some(("00000000000000a1".into(), "127.0.0.1:7001".into())),
            voters: 1,
            members: vec![Member {
                id: "00000000000000a1".into(),
                address: "127.0.0.1:7001".into(),
                kind: "voter?".into(),
                role: "leader".into(),
                is_asked: true,
                epoch: None,
                durable: Some(4096),
                committed: Some(4096),
                lag_bytes: None,
                heard_ms: None,
            }],
        };
        assert_eq!(overview, Some(expected));
        let leaderless = Overview::of(&info(Value::Null, Value::Null), &members).unwrap();
        assert_eq!(leaderless.leader, None);
    }

    #[test]
    fn other_replies_are_not_understood() {
        let info = info(Value::Null, Value::Null);
        assert_eq!(Overview::of(&info, &Value::Null), None);
        assert_eq!(Overview::of(&info, &Value::Array(vec![Value::Null])), None);
        assert_eq!(Overview::of(&Value::Array(Vec::new()), &Value::Array(Vec::new())), None);
    }
}
