//! Arbitrary arguments to all commands: no panic, decodable replies, a log that replays.

use env::Prng;
use sim::{SingleServer, rounds, seed_or};

/// The number of commands per server: enough to fill a few keys with all types, few enough to be repeated by
/// hand.
const COMMANDS: usize = 400;

#[test]
fn random_arguments_are_answered_and_their_changes_replay() {
    let first = seed_or(1);
    for seed in rounds(60).map(|round| first + round) {
        let mut prng = Prng::new(seed);
        let mut server = SingleServer::new(seed);
        for _ in 0..COMMANDS {
            server.send_random(&mut prng);
        }
        server.check();
    }
}
