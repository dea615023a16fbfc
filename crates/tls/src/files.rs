//! Reads certificates and keys in PEM, and notices that files have changed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::LoadError;

/// The maximum bytes of one file. The largest bundles of authorities have some hundred KiB.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// A file, with the setting or flag that names the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) name: &'static str,
    pub(crate) path: &'a Path,
}

impl Named<'_> {
    fn unreadable(&self, error: &io::Error) -> LoadError {
        LoadError::Unreadable { name: self.name, path: self.path.into(), reason: error.to_string() }
    }

    fn unusable(&self, reason: impl Into<String>) -> LoadError {
        LoadError::Unusable { name: self.name, path: self.path.into(), reason: reason.into() }
    }

    fn read(&self) -> Result<Vec<u8>, LoadError> {
        let bytes = fs::metadata(self.path).map_err(|error| self.unreadable(&error))?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(self.unusable(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        fs::read(self.path).map_err(|error| self.unreadable(&error))
    }

    /// The certificates of the file. A file without any is an error.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, LoadError> {
        let content = self.read()?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
        let found = found.map_err(|error| self.unusable(format!("it is no PEM: {error}")))?;
        if found.is_empty() { Err(self.unusable("it holds no certificate in PEM")) } else { Ok(found) }
    }

    /// The key of the file.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, LoadError> {
        let content = self.read()?;
        let is_locked = content.windows(9).any(|window| window == b"ENCRYPTED");
        PrivateKeyDer::from_pem_slice(&content).map_err(|_| {
            self.unusable(match is_locked {
                true => "the key has a passphrase, which is not supported: remove it with `openssl pkey`",
                false => "it holds no private key in PEM",
            })
        })
    }

    /// Adds the certificates of the file to `authorities`. After an error, none of them was added.
    pub(crate) fn add_authorities(&self, authorities: &mut RootCertStore) -> Result<(), LoadError> {
        let mut added = RootCertStore::empty();
        for certificate in self.certificates()? {
            added.add(certificate).map_err(|error| self.unusable(error.to_string()))?;
        }
        authorities.extend(added.roots);
        Ok(())
    }

    /// Adds the certificates of all usable files in a directory.
    pub(crate) fn add_directory(&self, authorities: &mut RootCertStore) -> Result<(), LoadError> {
        let before = authorities.len();
        for path in files_of(self.path).map_err(|error| self.unreadable(&error))? {
            let file = Named { name: self.name, path: &path };
            match file.add_authorities(authorities) {
                // A file that cannot be used is skipped, because the directory may hold files of other kinds.
                Ok(()) | Err(LoadError::Unusable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if authorities.len() == before {
            Err(self.unusable("no file there holds a certificate"))
        } else {
            Ok(())
        }
    }
}

/// The files of a directory, in the order of their names.
fn files_of(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The state of files as the OS shows it. By it, a change of a file is noticed without reading the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<(PathBuf, Option<FileStamp>)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl Stamp {
    /// The present state of these files, and of the files in this directory.
    pub(crate) fn of<'a>(files: impl Iterator<Item = &'a Path>, directory: Option<&Path>) -> Stamp {
        let inside = directory.and_then(|directory| files_of(directory).ok()).unwrap_or_default();
        let all = files.map(Path::to_path_buf).chain(inside);
        Stamp(all.map(|path| (stamp_of(&path), path)).map(|(stamp, path)| (path, stamp)).collect())
    }
}

fn stamp_of(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).ok()?;
    Some(FileStamp { modified: found.modified().ok(), bytes: found.len(), inode: found.ino() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Authority, Directory};

    #[test]
    fn a_file_with_one_broken_certificate_adds_none() {
        let directory = Directory::new("broken-authority");
        let whole = Authority::new().file(&directory);
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let path = directory.path("broken.crt");
        fs::write(&path, fs::read_to_string(&whole).unwrap() + broken).unwrap();
        let mut authorities = RootCertStore::empty();
        Named { name: "tls-ca-cert-file", path: &path }.add_authorities(&mut authorities).unwrap_err();
        assert!(authorities.is_empty());
        let within = Named { name: "tls-ca-cert-dir", path: whole.parent().unwrap() };
        within.add_directory(&mut authorities).unwrap();
        assert_eq!(authorities.len(), 1, "that of the other file");
    }
}
