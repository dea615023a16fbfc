//! `sheaf backup`: the command-line interface of `backup::fetch`.

use std::path::{Path, PathBuf};

use backup::fetch::{BackupError, Copied, Notice, Onto, Remote, copy_server, os};
use recovery::offline::ProgressBars;
use tls::ClientFiles;

/// A running server whose data is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The URL of the server's HTTP port.
    pub url: String,
    /// The name of the user as whom the command logs in.
    pub user: String,
    /// A file whose first line is the password of the user.
    pub password_file: Option<PathBuf>,
    /// The certificates for a URL that begins with `https`.
    pub tls: ClientFiles,
}

impl Source {
    /// Copies the data into `dir`, which may be an interrupted copy or an earlier backup.
    ///
    /// # Errors
    /// [`BackupError`].
    pub(crate) fn copy_into(&self, dir: &Path) -> Result<Copied, BackupError> {
        let password = self.password_file.as_ref();
        let password =
            password.map(|path| settings::read_password(path).map_err(os("read", path))).transpose()?;
        let bars = ProgressBars::default();
        let show = |stage, done, total| {
            bars.show(stage, done, total);
            Ok(())
        };
        let tell = |notice: Notice<'_>| println!("{notice}");
        let remote = Remote::new(&self.url, &self.user, password.as_deref());
        let remote = if self.url.starts_with("https://") { remote.over_tls(&self.tls)? } else { remote };
        let copied = copy_server(&remote, dir, Onto::Backup, &tell, &show);
        bars.finish();
        copied
    }
}

/// `sheaf backup`: copies the data of a server into `dir`, and prints the result.
///
/// # Errors
/// [`BackupError`].
pub fn run(dir: &Path, source: &Source) -> Result<(), BackupError> {
    let Copied { manifest, reused_bytes, copied_bytes, .. } = source.copy_into(dir)?;
    println!("backup       {} files, {} bytes in {}", manifest.files.len(), manifest.bytes(), dir.display());
    println!("copied       {copied_bytes} bytes; {reused_bytes} bytes were there already");
    println!(
        "state        the log up to its end at lsn {}, of {}; every byte was verified",
        manifest.end_lsn, manifest.made_at
    );
    println!("restore      sheaf restore {} --dir DIR", dir.display());
    Ok(())
}
