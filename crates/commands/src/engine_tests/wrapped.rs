//! Which commands IDEMP may wrap.

use crate::testing::parse;

fn wrapped(line: &str) -> Result<String, String> {
    let args = parse(line);
    let wrapped = crate::wrapped(args.as_args());
    wrapped.map(|(found, _)| found.row.name.to_string()).map_err(|error| error.to_string())
}

#[test]
fn idemp_wraps_writing_commands() {
    for name in ["incr c", "set a b", "eval x 0", "evalsha x 0", "publish c m", "flushall", "blpop k 0"] {
        let first = name.split(' ').next().unwrap_or_default();
        assert_eq!(wrapped(&format!("IDEMP k 1 {name}")).as_deref(), Ok(first));
    }
    assert_eq!(wrapped("IDEMP k 1 XGROUP DESTROY s g").as_deref(), Ok("xgroup|destroy"));
}

#[test]
fn idemp_refuses_commands_without_writes_or_replies_to_keep() {
    for name in [
        "get k",
        "eval_ro x 0",
        "multi",
        "exec",
        "watch k",
        "subscribe c",
        "spublish c m",
        "hello",
        "auth secret",
        "select 1",
        "monitor",
        "debug sleep 0",
        "config set a b",
        "client list",
        "idemp k 1 idemp k 1 incr c",
        "lease k 1 me",
        "unlease k me",
        "wait 1 1",
        "save",
        "xgroup help",
        "function flush",
    ] {
        let error = wrapped(&format!("IDEMP k 1 {name}")).expect_err(name);
        assert!(
            error.starts_with("ERR IDEMP runs commands that write, scripts and PUBLISH, and "),
            "{error}"
        );
    }
    assert_eq!(wrapped("IDEMP k 1").expect_err("no command"), "ERR syntax error");
    let arity = wrapped("IDEMP k 1 incr").expect_err("no key");
    assert_eq!(arity, "ERR wrong number of arguments for 'incr' command");
    assert!(
        wrapped("IDEMP k 1 nosuch a").expect_err("no command").starts_with("ERR unknown command 'nosuch'")
    );
}
