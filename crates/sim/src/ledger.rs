//! Invariants of the elements of queues. Every element is pushed once, so it is identifiable.
//!
//! ```text
//! in memory      lists + popped = pushed, each once
//! after a crash  certainly pushed, and not popped                 -> in a list
//!                certainly popped, or popped in its push's record -> in no list
//! ```
//! Certainly: the reply that says so was delivered.
//!
//! The ledger does not model the commands; `model` does.

use std::collections::BTreeSet;

use crate::Violation;

/// An element, identified by its number.
pub type Element = u64;

/// The pushed and popped elements, and the delivered replies about them.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pushed: BTreeSet<Element>,
    push_delivered: BTreeSet<Element>,
    popped: BTreeSet<Element>,
    pop_delivered: BTreeSet<Element>,
    /// Elements popped in the record that pushed them.
    passed_on: BTreeSet<Element>,
}

impl Ledger {
    /// The number of popped elements, and how many of them are known to have gone directly to waiting
    /// clients.
    pub fn popped(&self) -> (usize, usize) {
        (self.popped.len(), self.passed_on.len())
    }

    pub(crate) fn pushes(&mut self, elements: &[Element]) {
        self.pushed.extend(elements);
    }

    pub(crate) fn delivers_push(&mut self, elements: &[Element]) {
        self.push_delivered.extend(elements);
    }

    pub(crate) fn pops(&mut self, element: Element) -> Result<(), Violation> {
        if !self.popped.insert(element) {
            return Err(Violation::Protocol(format!("{element} was popped twice")));
        }
        Ok(())
    }

    pub(crate) fn delivers_pop(&mut self, element: Element) {
        self.pop_delivered.insert(element);
    }

    pub(crate) fn passes_on(&mut self, element: Element) {
        self.passed_on.insert(element);
    }

    /// Checks the lists in memory.
    ///
    /// # Errors
    /// If an element is missing, unexpected or duplicated.
    pub fn check(&self, lists: &[Element]) -> Result<(), Violation> {
        let held = distinct(lists)?;
        let expected: BTreeSet<Element> = self.pushed.difference(&self.popped).copied().collect();
        if held != expected || !self.popped.is_subset(&self.pushed) {
            let missing: Vec<_> = expected.difference(&held).collect();
            let added: Vec<_> = held.difference(&expected).collect();
            return Err(Violation::Protocol(format!(
                "the lists lack {missing:?} and have {added:?} too much"
            )));
        }
        Ok(())
    }

    /// Checks the lists after a crash.
    ///
    /// # Errors
    /// If an invariant is broken.
    pub fn judge(&self, lists: &[Element]) -> Result<(), Violation> {
        let held = distinct(lists)?;
        let complain = |what: &str, elements: Vec<&Element>| {
            if elements.is_empty() {
                return Ok(());
            }
            Err(Violation::Protocol(format!("{what}: {elements:?}")))
        };
        complain("never pushed", held.difference(&self.pushed).collect())?;
        complain("popped, and there again", held.intersection(&self.pop_delivered).collect())?;
        complain("there without its pop", held.intersection(&self.passed_on).collect())?;
        let must = self.push_delivered.difference(&self.popped);
        complain("lost", must.filter(|element| !held.contains(element)).collect())
    }
}

fn distinct(lists: &[Element]) -> Result<BTreeSet<Element>, Violation> {
    let held: BTreeSet<Element> = lists.iter().copied().collect();
    if held.len() < lists.len() {
        return Err(Violation::Protocol(format!("an element is there twice: {lists:?}")));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broken_promise_is_found() {
        let mut ledger = Ledger::default();
        ledger.pushes(&[1, 2, 3, 4, 5]);
        ledger.delivers_push(&[1, 2, 3]);
        ledger.pops(2).unwrap();
        ledger.delivers_pop(2);
        ledger.pops(3).unwrap();
        ledger.pops(5).unwrap();
        ledger.passes_on(5);
        assert!(ledger.pops(5).is_err());
        assert!(ledger.check(&[1, 4]).is_ok());
        for wrong in [&[1][..], &[1, 4, 4], &[1, 2, 4], &[1, 4, 9]] {
            assert!(ledger.check(wrong).is_err(), "{wrong:?}");
        }
        // Operations without a delivered reply may or may not have happened.
        for possible in [&[1][..], &[1, 3], &[1, 4], &[4, 3, 1]] {
            assert!(ledger.judge(possible).is_ok(), "{possible:?}");
        }
        for broken in [&[][..], &[1, 1], &[1, 2], &[1, 5], &[1, 9]] {
            assert!(ledger.judge(broken).is_err(), "{broken:?}");
        }
    }
}
