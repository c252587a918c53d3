//! The Unix socket through which processes of one user reach the server of a directory.
//!
//! Invariants:
//! - The socket has mode 0600 before it gets its name, so only processes of the server's user and
//!   of root can connect.
//! - It is removed when the server stops accepting connections.
//! - A socket of a killed server is replaced, which is safe because the server
//!   holds the lock of the store.
//! - A file that is not a socket is never removed.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;

use crate::error::ServerError;

/// A listening socket; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The user of this process.
    user: u32,
}

impl LocalSocket {
    /// Binds a socket at this path.
    pub(crate) fn bind(runtime: &Handle, path: &Path) -> Result<Self, ServerError> {
        let _guard = runtime.enter();
        let bound = || {
            match fs::symlink_metadata(path) {
                Ok(found) if !found.file_type().is_socket() => {
                    return Err(io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        "there is a file that is not a socket",
                    ));
                }
                _ => {}
            }
            // The socket gets its name only after other users cannot connect to it.
            let mut new = path.as_os_str().to_owned();
            new.push(".n");
            let new = PathBuf::from(new);
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&new)?;
            fs::set_permissions(&new, Permissions::from_mode(0o600))?;
            fs::rename(&new, path)?;
            // Read the user id from a connection to this process, because `accept` compares the ids
            // that connections report.
            let (one, _other) = UnixStream::pair()?;
            let user = one.peer_cred()?.uid();
            Ok((listener, user))
        };
        let (listener, user) = bound().map_err(|source| ServerError::Listen {
            address: path.display().to_string(),
            source,
        })?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            user,
        })
    }

    /// Returns the next connection of the same user.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == self.user || peer.uid() == 0 => return Ok(stream),
                _ => drop(stream),
            }
        }
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // A socket file that remains refuses connections, and the next server replaces it.
        drop(fs::remove_file(&self.path));
    }
}
