//! Commands as the executor resolves and runs them.

use engine::{Call, Resolved};
use wire::OwnedArgs;

use crate::testing::TestServer;

#[test]
fn resolving_does_not_depend_on_the_command_before() {
    let lines = [
        "GET a",
        "GET b",
        "get a",
        "SET a 1",
        "GET",
        "OBJECT ENCODING a",
        "OBJECT FREQ a",
        "OBJECT",
        "PING",
        "MSET a 1 b 2",
        "MSET b 2 a 1",
        "NOSUCH a",
        "NOSUCH b",
        "CONFIG GET a",
        "CONFIG SET a b",
    ];
    let requests = lines.map(|line| line.split(' ').map(str::as_bytes).collect::<OwnedArgs>());
    let server = TestServer::new();
    for before in &requests {
        for args in &requests {
            let resolve = |args: &OwnedArgs, before| server.executor.resolve(args.as_args(), before);
            let call = Call { args: before.as_args(), resolved: resolve(before, None) };
            let (after, alone) = (resolve(args, Some(call)), resolve(args, None));
            let row = |resolved: Resolved| resolved.found().map(|found| (found.row.name, found.index));
            assert_eq!((row(after), after.hash()), (row(alone), alone.hash()), "{args:?} after {before:?}");
        }
    }
}
