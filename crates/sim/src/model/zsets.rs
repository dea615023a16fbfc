//! The effects of commands on sorted sets in the model.

use std::{collections::BTreeMap, rc::Rc};

use wire::Value;

use super::{
    Key, Model,
    collections::{bulks, collection, count, wrong_type},
    stored::Stored,
};
use crate::ZsetOperation;

type Scores = BTreeMap<Vec<u8>, i64>;

impl Model {
    pub(super) fn operate_zset(&mut self, key: Key, operation: &ZsetOperation, now_ms: u64) -> Value {
        if let ZsetOperation::StoreUnion(sources) = operation {
            return self.store_sums(key, sources, now_ms);
        }
        let mut zset = collection!(self.live(&key, now_ms), Zset);
        let scores: &mut Scores = Rc::make_mut(&mut zset);
        let reply = match operation {
            ZsetOperation::Put(scored) => {
                let is_new =
                    |(score, member): &&(i64, Vec<u8>)| scores.insert(member.clone(), *score).is_none();
                count(scored.iter().filter(is_new).count())
            }
            ZsetOperation::Increment(increment, member) => {
                let score = scores.entry(member.clone()).or_default();
                *score += increment;
                Value::Bulk(score.to_string().into_bytes())
            }
            ZsetOperation::Remove(removed) => {
                self.remove_if_expired(&key, now_ms);
                count(removed.iter().filter(|member| scores.remove(*member).is_some()).count())
            }
            ZsetOperation::RemoveRanks(start, stop) => {
                let removed = ranking(scores).into_iter().take(stop + 1).skip(*start);
                count(removed.filter(|(member, _)| scores.remove(member).is_some()).count())
            }
            ZsetOperation::PopLowest(wanted) => {
                let lowest: Vec<_> = ranking(scores).into_iter().take(*wanted).collect();
                lowest.iter().for_each(|(member, _)| _ = scores.remove(member));
                show(lowest)
            }
            ZsetOperation::Ranking => show(ranking(scores)),
            ZsetOperation::StoreUnion(_) => unreachable!("answered above"),
        };
        self.put_back(key, Stored::Zset(zset), now_ms);
        reply
    }

    /// Stores the union of sorted sets and sets; members of sets have score 1.
    fn store_sums(&mut self, key: Key, sources: &[Vec<u8>], now_ms: u64) -> Value {
        let mut sums = Scores::new();
        for source in sources {
            let members: Scores = match self.live(&(key.0, source.clone()), now_ms).map(|entry| &entry.value)
            {
                None => Scores::new(),
                Some(Stored::Zset(zset)) => (**zset).clone(),
                Some(Stored::Set(set)) => set.iter().map(|member| (member.clone(), 1)).collect(),
                Some(_) => return wrong_type(),
            };
            members.into_iter().for_each(|(member, score)| *sums.entry(member).or_default() += score);
        }
        let reply = count(sums.len());
        self.store(key, Stored::Zset(sums.into()), now_ms);
        reply
    }
}

/// The members ordered by score, then by name.
fn ranking(scores: &Scores) -> Vec<(Vec<u8>, i64)> {
    let mut ranking: Vec<_> = scores.iter().map(|(member, score)| (member.clone(), *score)).collect();
    ranking.sort_by(|(one, low), (other, high)| (low, one).cmp(&(high, other)));
    ranking
}

fn show(ranking: Vec<(Vec<u8>, i64)>) -> Value {
    bulks(ranking.into_iter().flat_map(|(member, score)| [member, score.to_string().into_bytes()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, ModelSession, Operation, SetOperation};

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn members_are_ranked_by_score_and_name() {
        let (mut model, mut session) = (Model::default(), ModelSession::default());
        let mut run = |key: &str, operation| {
            let command = Command::Collection(key.into(), operation);
            model.execute(&mut session, &command, 0, &Value::Null).reply
        };
        run("s", Operation::Set(SetOperation::Add(words("a"))));
        let scored = vec![(2, b"a".to_vec()), (1, b"c".to_vec()), (1, b"b".to_vec()), (3, b"a".to_vec())];
        let table = [
            (ZsetOperation::Put(scored), count(3), "b 1 c 1 a 3"),
            (ZsetOperation::Increment(-3, b"c".to_vec()), Value::Bulk(b"-2".to_vec()), "c -2 b 1 a 3"),
            (ZsetOperation::RemoveRanks(1, 1), count(1), "c -2 a 3"),
            (ZsetOperation::StoreUnion(words("z s z")), count(2), "c -4 a 7"),
            (ZsetOperation::PopLowest(1), bulks(words("c -4")), "a 7"),
            (ZsetOperation::Remove(words("b a")), count(1), ""),
        ];
        for (operation, reply, left) in table {
            assert_eq!(run("z", Operation::Zset(operation.clone())), reply, "{operation:?}");
            assert_eq!(
                run("z", Operation::Zset(ZsetOperation::Ranking)),
                bulks(words(left)),
                "{operation:?}"
            );
        }
        assert_eq!(run("s", Operation::Zset(ZsetOperation::Ranking)), wrong_type());
    }
}
