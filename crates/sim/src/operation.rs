//! What simulated clients do with the collection at one key.
//!
//! What it is: a few commands per type, so that every effect on collections is made: at both ends, in part and in whole, with
//! values of every form.
//! What it is not: what they mean; see `model`.

/// One command on one collection, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// `LPUSH key element ...`
    PushLeft(Vec<Vec<u8>>),
    /// `RPUSH key element ...`
    PushRight(Vec<Vec<u8>>),
    /// `LPOP key`
    PopLeft,
    /// `RPOP key`
    PopRight,
    /// `LTRIM key start stop`, both counted from the start
    Trim(usize, usize),
    /// `LRANGE key 0 -1`
    Elements,
    /// `SADD key member ...`
    AddMembers(Vec<Vec<u8>>),
    /// `SREM key member ...`
    RemoveMembers(Vec<Vec<u8>>),
    /// `SPOP key`
    PopMember,
    /// `SISMEMBER key member`
    HasMember(Vec<u8>),
    /// `ZADD key score member ...`
    Score(Vec<(i64, Vec<u8>)>),
    /// `ZREM key member ...`
    RemoveScored(Vec<Vec<u8>>),
    /// `ZPOPMIN key`
    PopLowest,
    /// `ZRANGE key 0 -1 WITHSCORES`
    Ranking,
    /// `HSET key field value ...`
    SetFields(Vec<(Vec<u8>, Vec<u8>)>),
    /// `HDEL key field ...`
    RemoveFields(Vec<Vec<u8>>),
    /// `HPEXPIRE key ms FIELDS count field ...`
    ExpireFields(u64, Vec<Vec<u8>>),
    /// `HGET key field`
    Field(Vec<u8>),
}

impl Operation {
    /// Whether it changes nothing.
    pub fn reads(&self) -> bool {
        matches!(
            self,
            Operation::Elements | Operation::HasMember(_) | Operation::Ranking | Operation::Field(_)
        )
    }

    /// The words of the request.
    pub(crate) fn words(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let (name, args): (&str, Vec<Vec<u8>>) = match self {
            Operation::PushLeft(elements) => ("LPUSH", elements.clone()),
            Operation::PushRight(elements) => ("RPUSH", elements.clone()),
            Operation::PopLeft => ("LPOP", vec![]),
            Operation::PopRight => ("RPOP", vec![]),
            Operation::Trim(start, stop) => ("LTRIM", vec![number(start), number(stop)]),
            Operation::Elements => ("LRANGE", vec![number(0), number(-1)]),
            Operation::AddMembers(members) => ("SADD", members.clone()),
            Operation::RemoveMembers(members) => ("SREM", members.clone()),
            Operation::PopMember => ("SPOP", vec![]),
            Operation::HasMember(member) => ("SISMEMBER", vec![member.clone()]),
            Operation::Score(members) => {
                let pair = |(score, member): &(i64, Vec<u8>)| [number(score), member.clone()];
                ("ZADD", members.iter().flat_map(pair).collect())
            }
            Operation::RemoveScored(members) => ("ZREM", members.clone()),
            Operation::PopLowest => ("ZPOPMIN", vec![]),
            Operation::Ranking => ("ZRANGE", vec![number(0), number(-1), b"WITHSCORES".to_vec()]),
            Operation::SetFields(pairs) => {
                ("HSET", pairs.iter().flat_map(|(field, value)| [field.clone(), value.clone()]).collect())
            }
            Operation::RemoveFields(fields) => ("HDEL", fields.clone()),
            Operation::ExpireFields(ms, fields) => {
                let mut words = vec![number(ms), b"FIELDS".to_vec(), number(fields.len())];
                words.extend_from_slice(fields);
                ("HPEXPIRE", words)
            }
            Operation::Field(field) => ("HGET", vec![field.clone()]),
        };
        [name.into(), key.to_vec()].into_iter().chain(args).collect()
    }
}

fn number(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_command() {
        let words = |operation: Operation| operation.words(b"k").join(&b' ');
        assert_eq!(words(Operation::PopLeft), b"LPOP k");
        assert_eq!(
            words(Operation::Score(vec![(-1, b"m".to_vec()), (2, b"n".to_vec())])),
            b"ZADD k -1 m 2 n"
        );
        let expires = Operation::ExpireFields(5, vec![b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(words(expires), b"HPEXPIRE k 5 FIELDS 2 a b");
    }
}
