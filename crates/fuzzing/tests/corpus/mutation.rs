//! Inputs made from those of a corpus: each follows from the generator's state.

use prng::Prng;

/// The longest input, in bytes: in hexadecimal it still fits into an environment variable.
pub const INPUT_BYTES_MAX: usize = 32 << 10;
/// The longest input of random bytes alone: longer ones are refused at the same places.
const RANDOM_BYTES_MAX: usize = 200;
/// Pieces that decoders of text and of binary formats treat specially.
const PIECES: [&[u8]; 14] = [
    b"\r\n",
    b"\n",
    b"\0",
    b"\xff",
    b" ",
    b"\"",
    b"\\u0000",
    b"\\",
    b"[",
    b"{\"a\":",
    b"*-1",
    b"$99999999999",
    b"-9223372036854775809",
    b"1e999",
];

/// An input of random bytes, or one of the corpus after a few mutations.
pub fn input(random: &mut Prng, corpus: &[Vec<u8>]) -> Vec<u8> {
    if random.chance(5) {
        let mut bytes = vec![0; random.index(RANDOM_BYTES_MAX)];
        random.fill(&mut bytes);
        return bytes;
    }
    let mut input = corpus[random.index(corpus.len())].clone();
    // Most inputs stay close to a valid one: more damage is found at the first check.
    let count = if random.chance(70) { 1 + random.below(2) } else { 3 + random.below(6) };
    for _ in 0..count {
        mutate(random, &mut input, &corpus[random.clone().index(corpus.len())]);
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

fn mutate(random: &mut Prng, input: &mut Vec<u8>, other: &[u8]) {
    let at = random.index(input.len() + 1);
    match random.below(11) {
        0 | 1 => change(input, at, |byte| byte ^ (1 << random.below(8))),
        2 => change(input, at, |_| random.below(256) as u8),
        3 => change(input, at, |byte| byte.wrapping_add(1).wrapping_sub(2 * random.below(2) as u8)),
        4 => {
            let number = number(random);
            let end = input.len().min(at + number.len());
            input.splice(at..end, number);
        }
        5 => drop(input.splice(at..at, number(random))),
        6 => drop(input.splice(at..at, PIECES[random.index(PIECES.len())].iter().copied())),
        7 => input.truncate(at),
        8 => drop(input.drain(range(random, at, input.len()))),
        9 => {
            let piece = input[range(random, at, input.len())].to_vec();
            let times =
                1 + random.index(1 + INPUT_BYTES_MAX / 8 / (piece.len() + 1)).min(1 << random.below(12));
            input.splice(at..at, piece.repeat(times));
        }
        _ => {
            // The rest of another input, or a piece of it.
            let from = random.index(other.len() + 1);
            let piece = if random.chance(50) { from..other.len() } else { range(random, from, other.len()) };
            let end = if random.chance(50) { input.len() } else { at };
            input.splice(at..end, other[piece].iter().copied());
        }
    }
}

fn change(input: &mut [u8], at: usize, to: impl FnOnce(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = to(*byte);
    }
}

/// A range from `at` on, more often a short one.
fn range(random: &mut Prng, at: usize, end: usize) -> std::ops::Range<usize> {
    let longest = (end - at).min(1 << random.below(13));
    at..at + random.index(longest + 1)
}

/// A length or count: at the edge of a type (all bits, the highest, or all below it), small, or any; in 1, 2,
/// 4 or 8 bytes of either order, or in LEB128.
fn number(random: &mut Prng) -> Vec<u8> {
    let bits = [8, 16, 32, 64][random.index(4)];
    let highest = 1u64 << (bits - 1);
    let number = match random.below(5) {
        0 => u64::MAX >> (64 - bits),
        1 => highest,
        2 => highest - 1,
        3 => random.below(300),
        _ => random.next_u64() >> random.below(64),
    };
    let bytes = &number.to_le_bytes()[..bits / 8];
    match random.below(3) {
        0 => bytes.to_vec(),
        1 => bytes.iter().rev().copied().collect(),
        _ => {
            let digits = 1 + (63 - (number | 1).leading_zeros() as usize) / 7;
            let digit = |index: usize| (number >> (7 * index)) as u8 & 0x7f;
            (0..digits).map(|index| digit(index) | if index + 1 < digits { 0x80 } else { 0 }).collect()
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_inputs() {
    let corpus = [b"first".to_vec(), b"second".to_vec(), Vec::new()];
    let made = |seed| {
        let mut random = Prng::new(seed);
        (0..2000).map(|_| input(&mut random, &corpus)).collect::<Vec<_>>()
    };
    assert_eq!(made(1), made(1));
    assert_ne!(made(1), made(2));
    assert!(made(1).iter().all(|input| input.len() <= INPUT_BYTES_MAX));
}
