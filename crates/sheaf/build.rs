//! Gives the binary its version and its commit. The commit is the value of `SHEAF_COMMIT`, which packages
//! set, or else the commit of the repository, or else none.

use std::process::Command;

const COMMIT_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=SHEAF_COMMIT");
    // The file `logs/HEAD` of git changes with every commit and checkout.
    if let Some(log) =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| std::fs::exists(log).unwrap_or(false))
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let given = std::env::var("SHEAF_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "HEAD"])).unwrap_or_default();
    let commit = &commit[..commit.len().min(COMMIT_DIGITS)];
    let version = env!("CARGO_PKG_VERSION");
    println!("cargo::rustc-env=SHEAF_COMMIT={commit}");
    match commit {
        "" => println!("cargo::rustc-env=SHEAF_VERSION={version}"),
        commit => println!("cargo::rustc-env=SHEAF_VERSION={version} ({commit})"),
    }
}

/// The output of git; `None` if git fails, for example outside a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(arguments).output().ok().filter(|ran| ran.status.success())?;
    let text = String::from_utf8(ran.stdout).ok()?.trim().to_owned();
    Some(text).filter(|text| !text.is_empty())
}
