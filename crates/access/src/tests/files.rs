//! ACL files, with the error texts of Redis.

use crate::file::parse_file;
use crate::samples::{commands, grammar, user};

fn errors_of(text: &str) -> String {
    let commands = commands();
    let error = parse_file(&grammar(commands), b"/f", text.as_bytes()).unwrap_err();
    let text = String::from_utf8(error.text).unwrap();
    let end = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    text.strip_suffix(end).expect(&text).to_owned()
}

#[test]
fn the_lines_of_a_file_are_users() {
    let commands = commands();
    let text = b"user a on >b ~* +@all\n\n  user b (+get   ~a) on\r\nuser  on";
    let users = parse_file(&grammar(commands), b"/f", text).unwrap();
    assert_eq!(users.len(), 3);
    assert_eq!(users[&b"a"[..]], user("on >b ~* +@all"));
    assert_eq!(users[&b"b"[..]], user("on (+get ~a)"));
    assert_eq!(users[&b""[..]], user("on"), "two spaces: the name is empty, as in Redis");
}

#[test]
fn all_errors_are_reported_as_redis_does() {
    let start = " should start with user keyword followed by the username. ";
    for (text, errors) in [
        ("foo\n", format!("/f:1{start}")),
        ("user\n", format!("/f:1{start}")),
        ("USER a on\n", format!("/f:1{start}")),
        ("user a on\nuser a off\n", "WARNING: Duplicate user 'a' found on line 2. ".into()),
        ("user a (+get\n", "/f:1: Unmatched parenthesis in selector definition.".into()),
        (
            "# comment\n\n  user a +nosuch\n",
            format!(
                "/f:1{start}/f:3: Error in applying operation '+nosuch': Unknown command or category name in \
                 ACL. "
            ),
        ),
        (
            "user x +nosuch foo\nbar\n",
            format!(
                "/f:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. \
                 /f:1: Syntax error. /f:2{start}"
            ),
        ),
        ("user  a   on   ~x\n", "/f:1: Syntax error. ".into()),
        (
            "user x (+get)x\nuser y #b\n",
            "/f:1: Unmatched parenthesis in selector definition./f:2: The password hash must be exactly 64 \
             characters and contain only lowercase hexadecimal characters. "
                .into(),
        ),
    ] {
        assert_eq!(errors_of(text), errors, "{text:?}");
    }
}
