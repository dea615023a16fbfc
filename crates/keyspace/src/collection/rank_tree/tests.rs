//! Rank trees against a sorted list, and their memory.

use proptest::prelude::*;

use super::node::LEN_MAX;
use super::*;
use prng::Prng;

const NAME_COUNT: usize = 1 << 16;

/// Names of members, ascending with their index.
static NAMES: [[u8; 2]; NAME_COUNT] = {
    let mut names = [[0; 2]; NAME_COUNT];
    let mut number = 0;
    while number < NAME_COUNT {
        names[number] = (number as u16).to_be_bytes();
        number += 1;
    }
    names
};

type Name = &'static [u8; 2];

impl Member for Name {
    fn bytes(&self) -> &[u8] {
        &self[..]
    }
}

fn name(number: usize) -> Name {
    &NAMES[number % NAME_COUNT]
}

fn owned((score, name): (f64, &Name)) -> (f64, Name) {
    (score, *name)
}

/// Items 0, 1, 2... with the scores that `score` gives.
fn items(count: usize, score: impl Fn(usize) -> f64) -> impl Iterator<Item = (f64, Name)> {
    (0..count).map(move |number| (score(number), name(number)))
}

fn filled(items: impl Iterator<Item = (f64, Name)>) -> RankTree<Name> {
    let mut tree = RankTree::new();
    for (score, name) in items {
        tree.insert(score, name);
    }
    tree.check();
    tree
}

/// Items with distinct random scores.
fn shuffled(count: usize) -> Vec<(f64, Name)> {
    let mut sequence = Prng::new(5);
    items(count, |_| 0.0).map(|(_, name)| (sequence.next_u64() as f64, name)).collect()
}

fn bytes_per_item(tree: &RankTree<Name>) -> f64 {
    tree.bytes() as f64 / tree.len() as f64
}

#[test]
fn an_empty_tree_has_nothing_and_gives_nothing() {
    let mut tree = RankTree::<Name>::new();
    tree.check();
    assert_eq!((tree.len(), tree.bytes()), (0, size_of::<Leaf<Name>>()));
    assert_eq!((tree.rank(0.0, b"none"), tree.get(0), tree.partition_point(|_, _| true)), (None, None, 0));
    assert_eq!((tree.remove(0.0, b"none"), tree.remove_at(0)), (None, None));
    assert_eq!((tree.pop_first(), tree.pop_last()), (None, None));
    assert_eq!(
        (tree.range(0..5).len(), tree.range(0..5).next(), tree.range(2..5).next_back()),
        (0, None, None)
    );
}

#[test]
fn nodes_fill_the_size_classes_of_the_allocator() {
    assert_eq!(
        (size_of::<Item<Name>>(), size_of::<Leaf<Name>>(), size_of::<Inner<Name>>()),
        (16, 1016, 2544)
    );
}

#[test]
fn infinite_scores_and_both_zeros_have_their_places() {
    let scores = [f64::INFINITY, 0.0, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE, -1.5];
    let mut tree = filled(items(scores.len(), |number| scores[number]));
    let ranks: Vec<_> = (0..scores.len()).map(|n| tree.rank(scores[n], name(n).bytes())).collect();
    assert_eq!(ranks, [5, 2, 0, 3, 4, 1].map(Some));
    // 0.0 and -0.0 are one score, and keep their signs.
    assert_eq!((tree.rank(-0.0, name(1).bytes()), tree.rank(0.0, name(3).bytes())), (Some(2), Some(3)));
    assert_eq!(tree.get(3).map(|(score, _)| score.is_sign_negative()), Some(true));
    assert_eq!(tree.remove(0.0, name(3).bytes()), Some(name(3)));
    assert_eq!(tree.rank(1.0, name(3).bytes()), None);
    let below = [-0.0, 0.0, f64::INFINITY].map(|bound| tree.partition_by_score(|score| score < bound));
    assert_eq!(below, [2, 2, 4]);
    assert_eq!((tree.partition_by_score(|_| false), tree.partition_by_score(|_| true)), (0, 5));
}

#[test]
#[should_panic(expected = "a score is NaN")]
fn a_score_that_is_not_a_number_has_no_place() {
    RankTree::new().insert(f64::NAN, name(1));
}

#[test]
fn a_range_ends_at_the_end_and_meets_in_the_middle() {
    let tree = filled(items(1000, |number| number as f64));
    for (from, to) in [(0, 1000), (0, 1), (999, 1000), (62, 64), (63, 63), (100, 5000), (1000, 1001)] {
        let expected: Vec<_> = items(1000, |number| number as f64).take(to).skip(from).collect();
        let range = tree.range(from..to);
        assert_eq!(range.len(), expected.len());
        assert_eq!(range.map(owned).collect::<Vec<_>>(), expected);
        let backwards: Vec<_> = tree.range(from..to).rev().map(owned).collect();
        assert!(backwards.iter().eq(expected.iter().rev()));
    }
    let mut range = tree.range(10..400);
    let mut left = 390;
    while let Some((score, _)) = range.next() {
        let (back, _) = range.next_back().expect("an even number of items");
        left -= 2;
        assert_eq!((score + back, range.len()), (409.0, left));
    }
    assert_eq!((left, range.next_back()), (0, None));
}

#[test]
fn items_cost_little_more_than_sixteen_bytes() {
    let count = 60_000;
    let mut random = filled(shuffled(count).into_iter());
    assert!(bytes_per_item(&random) < 21.0, "{}", bytes_per_item(&random));
    for tree in [
        filled(items(count, |number| number as f64)),
        filled(items(count, |number| -(number as f64))),
        filled(items(count, |_| 7.0)),
        RankTree::from_sorted(items(count, |number| number as f64)),
    ] {
        tree.check();
        assert_eq!((tree.len(), bytes_per_item(&tree) < 17.8), (count, true), "{}", bytes_per_item(&tree));
    }
    // After nine of ten items are removed, the nodes of the rest are merged.
    for (score, name) in shuffled(count).into_iter().take(count / 10 * 9) {
        assert_eq!(random.remove(score, name.bytes()), Some(name));
    }
    random.check();
    assert!(bytes_per_item(&random) < 28.0, "{}", bytes_per_item(&random));
}

#[test]
fn a_tree_that_is_emptied_gives_its_nodes_back() {
    type Pop = fn(&mut RankTree<Name>) -> Option<(f64, Name)>;
    let middle: Pop = |tree| tree.remove_at(tree.len() / 2);
    for pop in [RankTree::pop_first, RankTree::pop_last, middle] {
        let mut tree = filled(shuffled(10_000).into_iter());
        for left in (0..10_000).rev() {
            assert!(pop(&mut tree).is_some());
            assert_eq!(tree.len(), left);
            if left % 500 == 0 {
                tree.check();
            }
        }
        assert_eq!(tree.bytes(), size_of::<Leaf<Name>>());
    }
}

#[test]
fn a_queue_keeps_its_size() {
    let mut tree = filled(items(2 * LEN_MAX, |number| number as f64));
    let bytes = tree.bytes();
    for number in 2 * LEN_MAX..5000 {
        tree.insert(number as f64, name(number));
        assert_eq!(tree.pop_first().map(|(score, _)| score), Some((number - 2 * LEN_MAX) as f64));
        assert!(tree.bytes() <= bytes + 2 * size_of::<Leaf<Name>>());
    }
    tree.check();
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u16),
    Append(u16),
    InsertRun(u8, u16, u16),
    Remove(usize),
    RemoveAbsent(u8, u16),
    RemoveRun(usize, usize),
    PopFirst,
    PopLast,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<u8>(), any::<u16>()).prop_map(|(score, name)| Step::Insert(score, name)),
        4 => any::<u16>().prop_map(Step::Append),
        6 => any::<usize>().prop_map(Step::Remove),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(score, name)| Step::RemoveAbsent(score, name)),
        1 => (any::<u8>(), any::<u16>(), 0..300u16).prop_map(|(score, name, n)| Step::InsertRun(score, name, n)),
        1 => (any::<usize>(), 0..1500usize).prop_map(|(rank, count)| Step::RemoveRun(rank, count)),
        1 => Just(Step::PopFirst),
        1 => Just(Step::PopLast),
    ]
}

/// A sorted list, as the model of a tree.
#[derive(Default)]
struct Model(Vec<(f64, Name)>);

impl Model {
    fn place(&self, score: f64, name: Name) -> Result<usize, usize> {
        self.0.binary_search_by(|item| item.0.partial_cmp(&score).expect("no NaN").then(item.1.cmp(name)))
    }

    fn insert(&mut self, tree: &mut RankTree<Name>, score: f64, name: Name) {
        match self.place(score, name) {
            Ok(rank) => assert_eq!(tree.rank(score, name), Some(rank)),
            Err(rank) => {
                assert_eq!((tree.rank(score, name), tree.insert(score, name)), (None, rank));
                self.0.insert(rank, (score, name));
            }
        }
    }

    fn remove_at(&mut self, tree: &mut RankTree<Name>, rank: usize) {
        if !self.0.is_empty() {
            let (score, name) = self.0.remove(rank % self.0.len());
            assert_eq!(tree.remove(score, name), Some(name));
        }
    }

    fn run(&mut self, tree: &mut RankTree<Name>, step: &Step, scores: u8) {
        let score = |number: u8| f64::from(number % scores) - 3.0;
        match *step {
            Step::Insert(number, member) => self.insert(tree, score(number), name(member.into())),
            Step::Append(member) => {
                let last = self.0.last().map_or(0.0, |item| item.0);
                self.insert(tree, last, name(member.into()));
            }
            Step::InsertRun(number, first, count) => {
                for member in 0..count {
                    self.insert(tree, score(number), name(first.wrapping_add(member).into()));
                }
            }
            Step::Remove(rank) => self.remove_at(tree, rank),
            Step::RemoveAbsent(number, member) => {
                let (score, name) = (score(number), name(member.into()));
                if self.place(score, name).is_err() {
                    assert_eq!(tree.remove(score, name), None);
                }
            }
            Step::RemoveRun(rank, count) => (0..count).for_each(|_| self.remove_at(tree, rank)),
            Step::PopFirst => {
                let expected = (!self.0.is_empty()).then(|| self.0.remove(0));
                assert_eq!(tree.pop_first(), expected);
            }
            Step::PopLast => assert_eq!(tree.pop_last(), self.0.pop()),
        }
    }
}

proptest! {
    #[test]
    fn a_tree_is_a_sorted_list(
        start in 0..9000usize,
        scores in prop::sample::select(&[1u8, 2, 7, 255][..]),
        steps in prop::collection::vec(step(), 0..100),
        from in 0..9000usize,
        len in 0..6000usize,
    ) {
        let mut model = Model::default();
        for number in 0..start {
            let score = number * usize::from(scores) / start;
            model.0.push((score as f64 - 3.0, name(number * 7)));
        }
        let mut tree = RankTree::from_sorted(model.0.iter().copied());
        for step in &steps {
            model.run(&mut tree, step, scores);
        }
        tree.check();
        let model = model.0;
        prop_assert_eq!(tree.len(), model.len());
        for (rank, &(score, name)) in model.iter().enumerate() {
            prop_assert_eq!(tree.rank(score, name), Some(rank));
            prop_assert_eq!(tree.get(rank), Some((score, name)));
            let before = |s: f64, n: Name| s < score || s == score && n < name;
            prop_assert_eq!(tree.partition_point(before), rank);
            for pred in [|a: f64, b: f64| a < b, |a, b| a <= b] {
                let expected = model.partition_point(|item| pred(item.0, score));
                prop_assert_eq!(tree.partition_by_score(|other| pred(other, score)), expected);
            }
        }
        prop_assert_eq!(tree.get(model.len()), None);
        let expected = model.iter().copied().skip(from).take(len);
        let range = || tree.range(from..from + len).map(owned);
        prop_assert!(range().eq(expected.clone()));
        prop_assert!(range().rev().eq(expected.collect::<Vec<_>>().into_iter().rev()));
    }
}
