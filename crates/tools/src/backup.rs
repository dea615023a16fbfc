//! `sheaf backup`: the command-line interface of `backup::fetch`.

use std::path::Path;

use backup::fetch::{BackupError, Copied, Notice, Onto, Remote, copy_server, os};
use recovery::offline::ProgressBars;
use tls::ClientFiles;

/// `sheaf backup`: copies the data of the server at `url` into `dir`, as `user`, and prints the result.
/// `files` are for a URL that begins with `https`.
///
/// # Errors
/// [`BackupError`].
pub fn run(
    dir: &Path,
    url: &str,
    user: &str,
    password_file: Option<&Path>,
    files: &ClientFiles,
) -> Result<(), BackupError> {
    let password =
        password_file.map(|path| settings::read_password(path).map_err(os("read", path))).transpose()?;
    let bars = ProgressBars::default();
    let show = |stage, done, total| {
        bars.show(stage, done, total);
        Ok(())
    };
    let tell = |notice: Notice<'_>| println!("{notice}");
    let remote = Remote::new(url, user, password.as_deref());
    let remote = if url.starts_with("https://") { remote.over_tls(files)? } else { remote };
    let made = copy_server(&remote, dir, Onto::Backup, &tell, &show);
    bars.finish();
    let Copied { manifest, reused_bytes, copied_bytes, .. } = made?;
    println!("backup       {} files, {} bytes in {}", manifest.files.len(), manifest.bytes(), dir.display());
    println!("copied       {copied_bytes} bytes; {reused_bytes} bytes were there already");
    println!(
        "state        the log up to its end at lsn {}, of {}; every byte was verified",
        manifest.end_lsn, manifest.made_at
    );
    println!("restore      sheaf restore {} --dir DIR", dir.display());
    Ok(())
}
