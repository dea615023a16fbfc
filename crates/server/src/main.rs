//! The `sheaf` binary.
fn main() {}
