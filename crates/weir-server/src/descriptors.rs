//! File descriptors: how many the process may open, and how many of them connections may use.
//!
//! The store opens files while it serves: segments of the log, topics, snapshots. Connections must
//! not use up the descriptors that the store needs. So a reserve is excluded, and connections get
//! at most 80 % of the rest (reliability OV7).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::ServerError;

/// Descriptors reserved for the store, the listeners and the process itself.
const RESERVE: usize = 256;
/// With fewer descriptors, the server refuses to start.
pub(crate) const DESCRIPTORS_MIN: usize = 96;
/// Share of the rest that connections from other machines may use, in percent. The remainder is for
/// the Unix socket.
const CONNECTIONS_PERCENT: usize = 80;
/// Upper bound on the counted descriptors, because the system may report any limit.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// How many connections the descriptors allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    /// Maximum number of connections of the TCP ports together.
    pub(crate) connections_max: usize,
    /// Maximum number of connections of all ports, including the Unix socket.
    pub(crate) local_connections_max: usize,
}

/// Raises the soft limit of open files of this process to its hard limit.
///
/// # Errors
/// [`ServerError::Descriptors`] if there are too few to serve. Nothing was opened.
pub fn raise_descriptor_limit() -> Result<(), ServerError> {
    raise().map(drop)
}

pub(crate) fn raise() -> Result<Descriptors, ServerError> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If the process may not raise it, the soft limit remains.
    let now = setrlimit(Resource::Nofile, raised).map_or(limit.current, |()| raised.current);
    let now = now.and_then(|now| usize::try_from(now).ok());
    Descriptors::of(now.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX))
}

impl Descriptors {
    /// Lowers the limits to `connections`, the number that the memory allows.
    pub(crate) fn at_most(self, connections: usize) -> Self {
        Self {
            connections_max: self.connections_max.min(connections),
            ..self
        }
    }

    fn of(limit: usize) -> Result<Self, ServerError> {
        if limit < DESCRIPTORS_MIN {
            let need = DESCRIPTORS_MIN;
            return Err(ServerError::Descriptors { limit, need });
        }
        let rest = limit - RESERVE.min(limit / 3 * 2);
        Ok(Self {
            connections_max: rest * CONNECTIONS_PERCENT / 100,
            local_connections_max: rest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{DESCRIPTORS_MIN, Descriptors};
    use crate::error::ServerError;

    #[test]
    fn a_reserve_is_kept_from_connections() {
        for (limit, connections, local) in [(1024, 614, 768), (512, 204, 256), (96, 25, 32)] {
            let split = Descriptors::of(limit).ok();
            let split = split.map(|split| (split.connections_max, split.local_connections_max));
            assert_eq!(split, Some((connections, local)), "{limit}");
        }
        let few = Descriptors::of(DESCRIPTORS_MIN - 1);
        assert!(matches!(
            few,
            Err(ServerError::Descriptors {
                limit: 95,
                need: 96
            })
        ));
    }
}
