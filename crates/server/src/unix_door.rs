//! The Unix socket of the Redis protocol (`unixsocket`): a door for processes on this machine. The
//! permissions of its file say which users may open it.
//!
//! Invariants
//! - The socket of a server that listens is not taken away. A socket that a killed server has left is
//!   replaced.
//! - No client can connect before the file has its mode.
//! - No file but a socket is removed at the start. At the end, only the socket made here is removed.

use std::{
    ffi::c_int,
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::Path,
    sync::Arc,
};

use settings::{Key, Settings};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::{
    listen::{ACCEPT_PAUSE, Reception},
    mailbox::UnixPeer,
};

/// The socket of `unixsocket`. When the value is dropped, the file of the socket is removed.
pub(crate) struct UnixDoor {
    listener: UnixListener,
    path: Arc<str>,
    /// The inode number of the socket's file.
    inode: u64,
}

impl UnixDoor {
    /// Makes the socket that the settings name; `None` if they name none.
    ///
    /// # Errors
    /// Why the socket cannot be made or used.
    pub(crate) fn open(settings: &Settings) -> io::Result<Option<UnixDoor>> {
        let path = settings.text(Key::Unixsocket);
        if path.is_empty() {
            return Ok(None);
        }
        let mode = mode_of(settings)?;
        let explained = |error: io::Error| {
            io::Error::new(error.kind(), format!("unixsocket: cannot listen at {path}: {error}"))
        };
        remove_stale(Path::new(path)).map_err(explained)?;
        let socket = bind(Path::new(path), mode).map_err(explained)?;
        // The kernel shortens the queue to the length that it permits.
        socket.listen(c_int::MAX).map_err(explained)?;
        let listener = UnixListener::from(OwnedFd::from(socket));
        listener.set_nonblocking(true)?;
        let inode = fs::metadata(path).map_err(explained)?.ino();
        Ok(Some(UnixDoor { listener, path: path.into(), inode }))
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Accepts connections until the runtime ends.
    ///
    /// # Errors
    /// If the operating system refuses to listen.
    pub(crate) fn accept(&self, reception: Reception) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(self.listener.try_clone()?)?;
        let path = self.path.clone();
        tokio::spawn(async move {
            loop {
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(target: "server", %error, "cannot accept a connection at the Unix socket");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                // A peer whose user is unknown is not served.
                let Ok(peer) = stream.peer_cred() else { continue };
                let Ok(stream) = stream.into_std() else { continue };
                reception.receive_unix(stream, UnixPeer { path: path.clone(), uid: peer.uid() });
            }
        });
        Ok(())
    }
}

impl Drop for UnixDoor {
    fn drop(&mut self) {
        if fs::symlink_metadata(&*self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&*self.path);
        }
    }
}

/// Makes a socket at this path, with this mode. Clients can connect only once it listens, so none connects
/// with the rights that the file has before its mode is set.
fn bind(path: &Path, mode: Option<u32>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    if let Some(mode) = mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(socket)
}

/// The mode of the file, written in octal digits as in Redis. `None`: the file keeps the mode that the
/// process gives to new files.
fn mode_of(settings: &Settings) -> io::Result<Option<u32>> {
    match settings.text(Key::Unixsocketperm) {
        "" | "0" => Ok(None),
        text => match u32::from_str_radix(text, 8) {
            Ok(mode @ 1..=0o777) => Ok(Some(mode)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("unixsocketperm: '{text}' is no mode of a file, such as 770"),
            )),
        },
    }
}

/// Removes the socket that a killed server has left.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is a file that is no socket"));
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A blocking connect would wait for a server that listens and accepts no connection.
    socket.set_nonblocking(true)?;
    let listens = || Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there"));
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(()) => listens(),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => listens(),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: &Path, mode: &str) -> Settings {
        let mut settings = Settings::default();
        settings.set("unixsocket", path.to_str().unwrap()).unwrap();
        settings.set("unixsocketperm", mode).unwrap();
        settings
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn nobody_connects_before_the_file_has_its_mode() {
        let directory = std::env::temp_dir().join(format!("sheaf-unix-mode-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("s");
        let socket = bind(&path, Some(0o600)).unwrap();
        assert_eq!(mode(&path), 0o600);
        let refused = std::os::unix::net::UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "it does not listen yet");
        drop(socket);
        let door = UnixDoor::open(&settings(&path, "600")).unwrap();
        assert!(door.is_some() && std::os::unix::net::UnixStream::connect(&path).is_ok());
        drop(door);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_socket_is_replaced_only_if_nobody_listens() {
        let directory = std::env::temp_dir().join(format!("sheaf-unix-door-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("s");
        let refused = |mode| UnixDoor::open(&settings(&path, mode)).err().map(|error| error.to_string());
        let door = UnixDoor::open(&settings(&path, "700")).unwrap().unwrap();
        assert_eq!(mode(&path), 0o700);
        assert!(refused("").unwrap().ends_with("another server listens there"));
        drop(door);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a killed server leaves it");
        let door = UnixDoor::open(&settings(&path, "0770")).unwrap().unwrap();
        assert_eq!(mode(&path), 0o770);
        // Another process has replaced the socket.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "x").unwrap();
        drop(door);
        assert!(refused("").unwrap().ends_with("there is a file that is no socket"));
        assert!(refused("rwx").unwrap().contains("no mode"));
        assert!(UnixDoor::open(&Settings::default()).unwrap().is_none());
        fs::remove_dir_all(&directory).unwrap();
    }
}
