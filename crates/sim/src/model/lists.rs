//! The effects of commands on lists in the model.

use std::rc::Rc;

use keyspace::ListEnd;
use wire::Value;

use super::{
    Key, Model,
    collections::{bulks, collection, count},
    ok,
    stored::Stored,
};
use crate::ListOperation;

impl Model {
    pub(super) fn operate_list(&mut self, key: Key, operation: &ListOperation, now_ms: u64) -> Value {
        if let ListOperation::Move(destination, from, to) = operation {
            let destination = (key.0, destination.clone());
            return self.move_element(key, destination, *from, *to, now_ms);
        }
        let mut list = collection!(self.live(&key, now_ms), List);
        let elements = Rc::make_mut(&mut list);
        let reply = match operation {
            ListOperation::Push(end, pushed) => {
                pushed.iter().for_each(|element| push(elements, *end, element.clone()));
                count(elements.len())
            }
            ListOperation::Pop(..) if elements.is_empty() => Value::Null,
            ListOperation::Pop(end, wanted) => {
                let popped: Vec<_> = (0..*wanted).map_while(|_| pop(elements, *end)).collect();
                bulks(popped)
            }
            ListOperation::Trim(start, stop) => {
                elements.truncate(stop + 1);
                elements.drain(..elements.len().min(*start));
                ok()
            }
            ListOperation::Set(..) if elements.is_empty() => Value::Error(b"ERR no such key".to_vec()),
            ListOperation::Set(index, element) => match elements.get_mut(*index) {
                Some(place) => {
                    place.clone_from(element);
                    self.write_back(key, Stored::List(list), now_ms);
                    return ok();
                }
                None => Value::Error(b"ERR index out of range".to_vec()),
            },
            ListOperation::InsertBefore(..) if elements.is_empty() => count(0),
            ListOperation::InsertBefore(pivot, element) => {
                match elements.iter().position(|other| other == pivot) {
                    Some(index) => {
                        elements.insert(index, element.clone());
                        count(elements.len())
                    }
                    None => Value::Integer(-1),
                }
            }
            ListOperation::Remove(wanted, element) => {
                self.remove_if_expired(&key, now_ms);
                count(remove(elements, *wanted, element))
            }
            ListOperation::Elements => bulks(elements.iter().cloned()),
            ListOperation::Move(..) => unreachable!("answered above"),
        };
        self.put_back(key, Stored::List(list), now_ms);
        reply
    }

    fn move_element(&mut self, from: Key, to: Key, take: ListEnd, put: ListEnd, now_ms: u64) -> Value {
        let mut source = collection!(self.live(&from, now_ms), List);
        if source.is_empty() {
            return Value::Null;
        }
        let mut destination = collection!(self.live(&to, now_ms), List);
        let element = pop(Rc::make_mut(&mut source), take).expect("there is one");
        if from == to {
            destination = source;
        } else {
            self.put_back(from, Stored::List(source), now_ms);
        }
        push(Rc::make_mut(&mut destination), put, element.clone());
        self.write_back(to, Stored::List(destination), now_ms);
        Value::Bulk(element)
    }
}

fn push(elements: &mut Vec<Vec<u8>>, end: ListEnd, element: Vec<u8>) {
    let index = if end == ListEnd::Head { 0 } else { elements.len() };
    elements.insert(index, element);
}

fn pop(elements: &mut Vec<Vec<u8>>, end: ListEnd) -> Option<Vec<u8>> {
    match end {
        ListEnd::Head => (!elements.is_empty()).then(|| elements.remove(0)),
        ListEnd::Tail => elements.pop(),
    }
}

/// Removes up to `wanted` elements that equal `element`: 0 removes all, negative numbers count from the tail.
/// Returns the number of removed elements.
fn remove(elements: &mut Vec<Vec<u8>>, wanted: i64, element: &[u8]) -> usize {
    let mut indices: Vec<usize> = (0..elements.len()).filter(|index| elements[*index] == element).collect();
    // From the tail, so that the remaining indices stay valid.
    indices.reverse();
    let max = if wanted == 0 { usize::MAX } else { wanted.unsigned_abs() as usize };
    let spared = indices.len().saturating_sub(max);
    let removed = if wanted < 0 { &indices[..indices.len() - spared] } else { &indices[spared..] };
    removed.iter().for_each(|index| drop(elements.remove(*index)));
    removed.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, ModelSession, Operation};

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn lists_are_changed_at_both_ends_and_between() {
        let (mut model, mut session) = (Model::default(), ModelSession::default());
        let (head, tail) = (ListEnd::Head, ListEnd::Tail);
        let table = [
            (ListOperation::Push(head, words("b a")), count(2), "a b"),
            (ListOperation::Push(tail, words("c b d b")), count(6), "a b c b d b"),
            (ListOperation::Remove(-1, b"b".to_vec()), count(1), "a b c b d"),
            (ListOperation::Remove(1, b"b".to_vec()), count(1), "a c b d"),
            (ListOperation::Remove(0, b"x".to_vec()), count(0), "a c b d"),
            (ListOperation::InsertBefore(b"b".to_vec(), b"c".to_vec()), count(5), "a c c b d"),
            (ListOperation::Remove(0, b"c".to_vec()), count(2), "a b d"),
            (ListOperation::Set(1, b"e".to_vec()), ok(), "a e d"),
            (ListOperation::Move(b"l".to_vec(), tail, head), Value::Bulk(b"d".to_vec()), "d a e"),
            (ListOperation::Move(b"other".to_vec(), head, head), Value::Bulk(b"d".to_vec()), "a e"),
            (ListOperation::Pop(tail, 1), bulks(words("e")), "a"),
            (ListOperation::Push(tail, words("b c d")), count(4), "a b c d"),
            (ListOperation::Trim(1, 2), ok(), "b c"),
            (ListOperation::Pop(head, 3), bulks(words("b c")), ""),
            (ListOperation::Pop(head, 3), Value::Null, ""),
        ];
        for (operation, reply, left) in table {
            let mut run = |operation| {
                let command = Command::Collection(b"l".to_vec(), Operation::List(operation));
                model.execute(&mut session, &command, 0, &Value::Null).reply
            };
            assert_eq!(run(operation.clone()), reply, "{operation:?}");
            assert_eq!(run(ListOperation::Elements), bulks(words(left)), "{operation:?}");
        }
        assert_eq!(model.content().len(), 1, "an empty list is no key, but one was moved to");
    }
}
